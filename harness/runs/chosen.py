"""--items: the problems of each suite that a run decodes, where it does not decode all."""

from collections.abc import Collection
from pathlib import Path

from msgspec import UNSET

from harness.errors import UserError, explained
from harness.measures.table import checked_items
from harness.records.schema import RunConfig
from harness.records.store import read_run

WRONG = "wrong:"
# By suite the numbers of its problems, counted from 0.
Items = dict[str, tuple[int, ...]]


def chosen_items(selection: str | Items, config: RunConfig, limit: int | None) -> Items:
    """The numbers of the problems that --items names, by suite.

    Args:
        selection: numbers and ranges, `wrong:RUN`, or numbers by suite.
        config: of the run that decodes them, with its suites and methods.
        limit: the most items of a suite; the first ones are taken.

    Raises:
        UserError: the text names no items, or the run that it names has no wrong response, or has
            other generated problems.
    """
    if isinstance(selection, dict):
        chosen = selection
    elif selection.startswith(WRONG):
        chosen = _wrong_items(Path(selection.removeprefix(WRONG)), config)
    else:
        chosen = dict.fromkeys(config.suites, _numbers(selection))
    return {suite: numbers[:limit] for suite, numbers in chosen.items()}


def _numbers(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    message = f"--items {text} must be numbers and ranges, such as 3,17,40-60, or wrong:RUN"
    with explained(message, ValueError):
        for part in text.split(","):
            first, _, last = part.partition("-")
            part_numbers = range(int(first), int(last or first) + 1)
            if not part_numbers:
                raise ValueError(f"{part} goes backwards")
            numbers.update(part_numbers)
    return tuple(sorted(numbers))


def _wrong_items(folder: Path, config: RunConfig) -> Items:
    """The problems with a wrong response in an earlier run.

    Only responses by methods that both runs have count; if they share no method, those by any.
    """
    run = read_run(folder)
    for suite in config.suites.keys() & run.config.suites.keys():
        _check_problems(f"--items {WRONG}{folder}", suite, run.config, config)
    items = checked_items(run)
    # A set that is empty gives way to all methods of that run.
    methods = config.methods.keys() & set(items["method"]) or set(items["method"])
    wrong = items[(items["verdict"] == 0) & items["method"].isin(methods)]
    chosen = {}
    for suite in config.suites:
        problems = wrong["problem"][wrong["suite"] == suite].astype(int).unique()
        chosen[suite] = tuple(sorted(problems.tolist()))
    if not any(chosen.values()):
        raise UserError(
            f"--items {WRONG}{folder}: nothing there is wrong; score that run, or name items"
        )
    return chosen


def _check_problems(where: str, suite: str, before: RunConfig, now: RunConfig) -> None:
    """Raise UserError if a suite has other problems now: item 17 is then another one."""
    files = [config.suites[suite].questions for config in (before, now)]
    hashes = [UNSET if questions is UNSET else questions.sha256 for questions in files]
    if hashes[0] != hashes[1]:
        raise UserError(f"{where}: its numbers are of another file of {suite}; put that back")
    data = _data_of(before, suite)
    if hashes[0] is UNSET and data != _data_of(now, suite):
        raise UserError(f"{where}: its numbers are of --data {data}; give that too")


def _data_of(config: RunConfig, suite: str) -> str | None:
    return config.data.get(suite) if isinstance(config.data, dict) else config.data


def check_numbers(suite: str, numbers: Collection[int], problems: int) -> None:
    """Raise UserError if a number is not below the suite's number of problems."""
    highest = max(numbers, default=0)
    if highest >= problems:
        raise UserError(
            f"--items {highest}: {suite} has {problems} problems, numbered from 0; give numbers"
            f" below {problems}"
        )


def joined_items(before: Items, now: Items) -> Items:
    """The union of two selections, suite by suite."""
    joined = {**before}
    for suite, numbers in now.items():
        joined[suite] = tuple(sorted({*before.get(suite, ()), *numbers}))
    return joined
