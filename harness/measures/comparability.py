"""Whether runs can share one table: what must agree, and where it differs.

A speedup is a ratio to LLaDA in the same run, so a row keeps its meaning beside rows of another run. But rows can be
compared with one another only if machine, model, problems and settings are the same. A check compares values that both
records have; a value that an older record lacks is no difference. Checkpoints that a method uses may differ: `weights`
lists them.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pandas as pd
from msgspec import UNSET, to_builtins

from harness.errors import UserError
from harness.measures.table import method_labels, suite_titles
from harness.records.schema import Setting
from harness.records.store import Run

Where = tuple[str, str, str]  # what is compared, and its method and suite, "" for all
Values = dict[Where, str | None]  # None: the record does not say


@dataclass(frozen=True)
class Difference:
    """A difference of run number `run` from the first: the check's name, what differs, and both values.

    method, suite: whose rows it concerns, "" for all of the run's.
    """

    check: str
    run: int
    what: str
    first: str
    other: str
    method: str = ""
    suite: str = ""


def _settings(run: Run) -> dict[tuple[str, str], Setting]:
    """The settings of every method on every suite, from the configuration."""
    methods = run.config.methods.items()
    return {(name, suite): own for name, method in methods for suite, own in method.suites.items()}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _whole(what: str, value: Callable[[Run], Any]) -> Callable[[Run], Values]:
    """A check of one value of the whole run; None where the record does not say."""
    return lambda run: {(what, "", ""): _text(value(run))}


def _of_environment(name: str) -> Callable[[Run], Values]:
    return _whole(name, lambda run: run.meta.environment.get(name))


def _device(run: Run) -> Values:
    kind = _text(run.meta.environment.get("device"))
    kind = kind and kind.split(":")[0]  # any GPU of a machine will do
    return {
        ("device", "", ""): kind,
        ("name of the device", "", ""): _text(run.meta.environment.get("gpu" if kind == "cuda" else "cpu")),
    }


def _architecture(run: Run) -> Values:
    bases = run.config.models.get("base", {}).values()
    weights = [run.meta.weights.get(name) or {} for name in dict.fromkeys(bases)]
    found: Values = {}
    for name, what in (("parameters", "parameters of the base"), ("max_length", "longest sequence of the base")):
        values = sorted({str(model.get(name)) for model in weights})
        found[what, "", ""] = None if not values or "None" in values else ", ".join(values)
    return found


def _data(run: Run) -> Values:
    files = run.meta.data.get("files") or {}
    digests = {suite: _text(file.get("sha256")) for suite, file in files.items()}
    found: Values = {("SHA-256 of the problems", "", name): digest and digest[:16] for name, digest in digests.items()}
    for name, suite in run.config.suites.items():
        known = suite.configuration is not UNSET
        said = f"{suite.configuration} {str(suite.configuration_sha256)[:16]}" if known else None
        found["OpenCompass's configuration", "", name] = said
    return found


def _gen_length(run: Run) -> Values:
    lengths: dict[str, set[str]] = {}
    for (_, suite), own in _settings(run).items():
        lengths.setdefault(suite, set()).add(str(own.gen_length))
    return {
        ("generation length", "", suite): None if "None" in values else ", ".join(sorted(values))
        for suite, values in lengths.items()
    }


def _stop_at_eos(run: Run) -> Values:
    stops: dict[str, bool] = {}
    for (_, suite), own in _settings(run).items():
        stops[suite] = stops.get(suite, False) or bool(own.options.get("stop_at_eos"))
    return {("stop at EOS", "", suite): "on" if stop else "off" for suite, stop in stops.items()}


def _methods(run: Run) -> Values:
    found: Values = {}
    for name, method in run.config.methods.items():
        found["decoder", name, ""] = method.method or None
        found["label", name, ""] = method_labels(run)[name]
    for (name, suite), own in _settings(run).items():
        options = {key: value for key, value in own.options.items() if key != "stop_at_eos"}
        rest = {
            key: value for key, value in to_builtins(own).items() if key not in ("gen_length", "options", "published")
        }
        found["settings", name, suite] = json.dumps(options | rest, sort_keys=True)
    return found


CHECKS: dict[str, Callable[[Run], Values]] = {
    "device": _device,
    "threads": _of_environment("threads"),
    "dtype": _of_environment("dtype"),
    "compile": _whole("torch.compile", lambda run: "on" if run.config.compile else "off"),
    "graphs": _whole("CUDA graphs", lambda run: "on" if run.config.graphs else "off"),
    "platform": _of_environment("platform"),
    "torch": _whole("torch", lambda run: (run.meta.environment.get("packages") or {}).get("torch")),
    "timed": _whole("seconds", lambda run: "timed" if run.config.timed else "untimed"),
    "architecture": _architecture,
    "data": _data,
    "gen_length": _gen_length,
    "temperature": _whole("temperature", lambda run: run.config.temperature),
    "seed": _whole("seed", lambda run: ", ".join(map(str, run.config.draws)) if run.config.temperature else None),
    "stop_at_eos": _stop_at_eos,
    "methods": _methods,
}
HASHED = {"prompts": ("prompt_hash", ["suite"]), "tokens": ("tokens_hash", ["method", "suite"])}
VERDICTS = "verdicts"  # of the same tokens, which two runs may not judge differently
NAMES = [*CHECKS, *HASHED, VERDICTS]
# Checks whose differences can change tokens, other than by rounding that decides a tie.
CHANGES_TOKENS = {
    *("dtype", "architecture", "data", "gen_length", "temperature", "seed", "stop_at_eos", "methods"),
    *HASHED,
}


def differences(runs: Sequence[Run]) -> list[Difference]:
    """All differences of later runs from the first: settings, prompts, and tokens and verdicts of what both decoded."""
    first, found = runs[0], []
    for number, run in enumerate(runs[1:], 1):
        for check, values in CHECKS.items():
            ours, theirs = values(first), values(run)
            for (what, method, suite), ours_value in ours.items():
                value = theirs.get((what, method, suite))
                if ours_value is not None and value is not None and value != ours_value:
                    of = (f" of {method}" if method else "") + (f" on {suite}" if suite else "")
                    found.append(Difference(check, number, what + of, ours_value, value, method, suite))
        for check, (column, keys) in HASHED.items():
            found += _hashed(check, number, column, keys, runs)
        found += _contradictions(number, runs)
    return found


def check_comparable(runs: Sequence[Run], allowed: Collection[str] = ()) -> list[Difference]:
    """The differences of runs, all of `allowed` checks. Raises UserError that lists all others, or an unknown name."""
    unknown = [name for name in allowed if name not in NAMES]
    if unknown:
        raise UserError(f"--allow {','.join(unknown)}: no such check; they are {', '.join(NAMES)}")
    for run in runs:
        method_labels(run), suite_titles(run)  # a damaged run.json is refused here
    found = differences(runs)
    refused = [each for each in found if each.check not in allowed]
    if refused:
        listed = [
            f"{each.what}: {each.first} in {runs[0].folder}, {each.other} in {runs[each.run].folder}"
            for each in refused
        ]
        names = [name for name in NAMES if name in {*allowed, *(each.check for each in refused)}]
        raise UserError(
            f"the runs differ, so that their rows cannot be compared: {'; '.join(listed)}; "
            f"to put them into one table all the same, with footnotes, add --allow {','.join(names)}"
        )
    return found


def weights(run: Run) -> dict[tuple[str, str], dict[str, str]]:
    """Which checkpoints a method uses on a suite: (method, suite) -> {role: name and start of its SHA-256}."""
    models, known = run.config.models, run.meta.weights
    found = {}
    for name, method in run.config.methods.items():
        roles = [role for role in (method.role, method.draft_role) if role in models]
        for suite in suite_titles(run):
            used = {role: models[role][suite] for role in roles if suite in models[role]}
            found[name, suite] = {role: _checkpoint(model, known.get(model) or {}) for role, model in used.items()}
    return found


def _checkpoint(name: str, record: dict[str, Any]) -> str:
    digests = sorted(str(digest) for digest in (record.get("sha256") or {}).values())
    name = PurePath(str(record.get("name") or name)).name
    if not digests:
        return name
    whole = digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return f"{name} ({whole[:8]})"


def _hashed(check: str, number: int, column: str, keys: list[str], runs: Sequence[Run]) -> list[Difference]:
    """The first shared item of every suite (and method) whose hashes differ between the first run and another."""
    if any(column not in run.items for run in (runs[0], runs[number])):
        return []
    ours, theirs = (_hashes(run, column, keys) for run in (runs[0], runs[number]))
    both = ours.merge(theirs, on=[*keys, "item"], suffixes=("_first", "_other"))
    both = both[both[f"{column}_first"] != both[f"{column}_other"]].drop_duplicates(keys)
    found = []
    for row in both.to_dict("records"):
        method, suite = row.get("method", ""), row["suite"]
        of = (f" of {method}" if method else "") + f" on {suite}, first at item {row['item']}"
        values = (row[f"{column}_first"], row[f"{column}_other"])
        found.append(Difference(check, number, check + of, *values, method=method, suite=suite))
    return found


def _contradictions(number: int, runs: Sequence[Run]) -> list[Difference]:
    """The first shared item of every method and suite with the same tokens in both runs, right in one of them alone."""
    judged = ["tokens_hash", "correct"]
    if any(not set(judged) <= set(run.items) for run in (runs[0], runs[number])):
        return []
    key = ["method", "suite", "item"]
    ours, theirs = (run.items[[*key, *judged]].dropna() for run in (runs[0], runs[number]))
    both = ours.merge(theirs, on=[*key, "tokens_hash"], suffixes=("_first", "_other")).sort_values(key)
    both = both[both["correct_first"] != both["correct_other"]].drop_duplicates(["method", "suite"])
    word = {True: "right", False: "wrong"}
    found = []
    for row in both.to_dict("records"):
        method, suite = row["method"], row["suite"]
        what = f"the verdict on the same tokens of {method} on {suite}, first at item {row['item']}"
        first, other = (word[bool(row[f"correct_{side}"])] for side in ("first", "other"))
        found.append(Difference(VERDICTS, number, what, first, other, method, suite))
    return found


def _hashes(run: Run, column: str, keys: list[str]) -> pd.DataFrame:
    """The hashes of a run's items by `keys` and item, in their order; one each."""
    items = run.items[[*keys, "item", column]].dropna().astype(dict.fromkeys((*keys, column), str))
    return items.sort_values([*keys, "item", column]).drop_duplicates([*keys, "item"])
