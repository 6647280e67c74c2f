"""Which problems of a suite a run decodes, where it is not all: --items."""

from collections.abc import Collection
from pathlib import Path

from harness.errors import UserError, explained
from harness.measures.table import checked_items
from harness.records.schema import RunConfig
from harness.records.store import read_run

WRONG = "wrong:"
Items = dict[str, tuple[int, ...]]  # by suite the numbers of problems, which begin at 0


def chosen_items(given: str | Items, config: RunConfig, limit: int | None) -> Items:
    """The numbers of the problems that --items names, by suite.

    Args:
        given: numbers and ranges, `wrong:RUN`, or numbers by suite.
        config: of the run that decodes them, with its suites and methods.
        limit: at most so many of each suite, the first ones.

    Raises:
        UserError: text that names no items, or a run that has nothing wrong, or other generated
            problems.
    """
    if isinstance(given, dict):
        chosen = given
    elif given.startswith(WRONG):
        chosen = _wrong_items(Path(given.removeprefix(WRONG)), config)
    else:
        chosen = dict.fromkeys(config.suites, _numbers(given))
    return {suite: numbers[:limit] for suite, numbers in chosen.items()}


def _numbers(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    form = f"--items {text} must be numbers and ranges, such as 3,17,40-60, or wrong:RUN"
    with explained(form, ValueError):
        for part in text.split(","):
            first, _, last = part.partition("-")
            named = range(int(first), int(last or first) + 1)
            if not named:
                raise ValueError(f"{part} goes backwards")
            numbers.update(named)
    return tuple(sorted(numbers))


def _wrong_items(folder: Path, config: RunConfig) -> Items:
    """The problems that a run has a wrong response to, by a method that both runs have; where they
    share none, by any of its methods."""
    run = read_run(folder, windows=False)
    there = run.config.data
    if isinstance(there, str) and there != config.data:
        raise UserError(
            f"--items {WRONG}{folder}: its numbers are of --data {there}; give that too"
        )
    items = checked_items(run)
    methods = config.methods.keys() & set(items["method"]) or set(items["method"])
    wrong = items[(items["verdict"] == 0) & items["method"].isin(methods)]
    chosen = {}
    for suite in config.suites:
        problems = wrong.loc[wrong["suite"] == suite, "problem"].astype(int).unique()
        chosen[suite] = tuple(sorted(problems.tolist()))
    if not any(chosen.values()):
        raise UserError(
            f"--items {WRONG}{folder}: nothing there is wrong; score that run, or name items"
        )
    return chosen


def check_numbers(suite: str, numbers: Collection[int], problems: int) -> None:
    """Raise UserError for a number that is beyond the problems of a suite."""
    highest = max(numbers, default=0)
    if highest >= problems:
        raise UserError(
            f"--items {highest}: {suite} has {problems} problems, numbered from 0; give numbers"
            f" below {problems}"
        )


def joined_items(before: Items, now: Items) -> Items:
    """The items that a run has of each suite, and those that join them."""
    joined = {**before}
    for suite, numbers in now.items():
        joined[suite] = tuple(sorted({*before.get(suite, ()), *numbers}))
    return joined
