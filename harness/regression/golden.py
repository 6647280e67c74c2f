"""The gate's judgement of records against golden ones: what is compared and printed, what another platform excuses.

At temperature 0 text, tokens, costs and verdicts must be equal: any difference is a change of the code, or, on another
class of platform, rounding. Of samples accuracy must not be inferior, paired by item.
"""

import dataclasses
import json
import math
import tempfile
from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from harness.errors import UserError
from harness.records.consistency import differences
from harness.records.schema import RunRecord
from harness.records.store import KEY, Run, read_lines, read_run, write_atomically
from harness.regression.revision import Side, checkout, request_of, revision_of
from harness.runs.loading import load, recorded
from harness.stats import paired_lower_limit
from model_wrappers.costs import window_sums

COSTS = ("forwards", "rows", "token_forwards", "draft_forwards", "draft_rows", "draft_token_forwards")
SPENT = ("proposed", "accepted", "rejected", "committed", *COSTS)
# What follows from the tokens of a response, its verdict among it.
RESPONSE = ("tokens_hash", "text", "content_tokens", "eos_tokens", "post_stop_tokens", *SPENT, "correct")
EXACT = ("seed", "prompt_hash", "prompt_tokens", "gold", *RESPONSE)
COLUMNS = ["verdict", "method", "suite", "measure", "golden", "run", "items"]
SHOWN = 5  # items named in a row
Key = tuple[str, str, int]  # method, suite, item


def platform_class(meta: RunRecord) -> dict[str, Any]:
    """What decides how floating-point numbers round: platform, processor and its vector instructions, torch, batch."""
    environment = meta.environment
    packages = environment.get("packages") or {}
    cpu = str(environment.get("cpu")).split(" ", 1)[0]
    return {
        "platform": environment.get("platform"),
        "processor": environment.get("gpu") or f"{cpu} {environment.get('cpu_capability')}",
        "threads": environment.get("threads"),
        "dtype": environment.get("dtype"),
        "torch": packages.get("torch"),
        "transformers": packages.get("transformers"),
        "responses at once": 1 if meta.config.batch is UNSET else meta.config.batch,
    }


def check_complete(golden: Run) -> None:
    """Raise UserError, naming what lacks, unless every method has the first items of every suite.

    They are `limit` of generated problems, else as many as any method has there.
    """
    config, lacks = golden.config, list[str]()
    none = [what for what in ("methods", "suites") if not getattr(config, what)]
    none += ["items"] if not none and golden.items.empty else []
    held = {} if none else {pair: set(part) for pair, part in golden.items.groupby(["method", "suite"])["item"]}
    for suite in config.suites:
        found = [held.get((method, suite), set()) for method in config.methods]
        limit = config.limit if config.generated and config.suites[suite].questions is UNSET else None
        wanted = set(range(limit * len(config.draws) if limit else 1 + max(set().union(*found), default=0)))
        lacks += [
            f"{method} on {suite} ({len(part & wanted)} of {len(wanted)} items)"
            for method, part in zip(config.methods, found, strict=True)
            if not part >= wanted
        ]
    if none or lacks:
        wrong = f"holds no {' and no '.join(none)}" if none else f"lacks items of {_named(pd.Series(lacks))}"
        raise UserError(f"{golden.folder} {wrong}: restore it, or write it anew with --update")


def _settings(meta: RunRecord) -> dict[str, Any]:
    config = meta.config
    files = meta.data.get("files") or {}
    return {
        "names": {"methods": sorted(config.methods), "suites": sorted(config.suites)},
        **{name: getattr(config, name) for name in ("limit", "temperature", "seed", "device", "dtype", "graphs")},
        **{name: getattr(config, name) for name in ("seeds", "prompt", "chat_template_args", "reads_at")},
        "methods": {
            name: {part: value for part, value in to_builtins(method).items() if part != "label"}
            for name, method in config.methods.items()
        },
        "models": config.models,
        "data": {suite: (files.get(suite) or {}).get("sha256") for suite in config.suites},
    }


def compare_exactly(
    golden: Run, run: Run, excused: Collection[Key] = (), unscored: Collection[str] = ()
) -> pd.DataFrame:
    """One row per method, suite and measure that differs, COLUMNS, with totals over the items; empty if nothing does.

    verdict: "missing" (items), "regressed" (a verdict lost, a cost that rose), or "changed". excused: items that are
    left out. unscored: suites whose verdicts are.
    """
    rows: list[list[Any]] = [
        ["changed", "-", "-", f"weights of {name}", "-", "-", "all"]
        for name, weights in golden.meta.weights.items()
        if weights.get("sha256") != (run.meta.weights.get(name) or {}).get("sha256")
    ]
    both, differ = _compared(golden, run, unscored)
    kept = pd.Series([key not in excused for key in _keys(both)], index=both.index, dtype=bool)
    lost = both[kept & (both["_merge"] == "left_only")]
    for (method, suite), part in lost.groupby(["method", "suite"], sort=False):
        rows.append(["missing", method, suite, "items", len(part), 0, _named(part["item"])])
    for measure in EXACT:
        for (method, suite), part in both[kept & differ[measure]].groupby(["method", "suite"], sort=False):
            there, now = part[f"{measure}_golden"], part[f"{measure}_run"]
            worse = (measure in COSTS and not (now <= there).all()) or (
                measure == "correct" and (there.eq(True) & now.ne(True)).any()
            )
            verdict = "regressed" if worse else "changed"
            if all(isinstance(value, str) or pd.isna(value) for side in (there, now) for value in side):
                totals: list[Any] = [str(side.iloc[0])[:24] for side in (there, now)]  # hashes and texts: the first
            else:
                totals = [int(side.fillna(0).astype(int).sum()) for side in (there, now)]
            rows.append([verdict, method, suite, measure, *totals, _named(part["item"])])
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(golden: Run, run: Run, unscored: Collection[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The golden items with the run's (columns NAME_golden, NAME_run), and in which measures those of both differ."""
    # A measure that one side lacks altogether must still differ from the other's.
    sides = [each.items.reindex(columns=[*KEY, *EXACT]) for each in (golden, run)]
    both = sides[0].merge(sides[1], on=list(KEY), how="left", suffixes=("_golden", "_run"), indicator=True)
    differ = {}
    for measure in EXACT:
        there, now = both[f"{measure}_golden"], both[f"{measure}_run"]
        differ[measure] = there.ne(now) & (there.notna() | now.notna()) & (both["_merge"] == "both")
    differ["correct"] &= ~both["suite"].isin(list(unscored))
    return both, pd.DataFrame(differ)


def _keys(both: pd.DataFrame) -> list[Key]:
    return [(str(method), str(suite), int(item)) for method, suite, item in both[list(KEY)].itertuples(index=False)]


def _named(items: pd.Series) -> str:
    first = ", ".join(str(item) for item in items.head(SHOWN))
    return first + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")


def compare_accuracy(golden: Run, run: Run, margin: float, unscored: Collection[str] = ()) -> pd.DataFrame:
    """One row per method: accuracy there and here over the scored items of all suites, and whether it holds.

    verdict: "missing" if the run lacks one of these verdicts, "ok" if the one-sided 95% lower limit of the paired
    difference lies above -margin points, else "regressed" if more items were lost than gained, else "undecided".
    unscored: suites that are left out.
    """
    both, _ = _compared(golden, run, unscored)
    scored = both[both["correct_golden"].notna() & ~both["suite"].isin(list(unscored))]
    rows: list[list[Any]] = []
    for method in golden.config.methods:
        there = scored[scored["method"] == method]
        part = there[there["correct_run"].notna()]
        if part.empty or len(part) < len(there):
            rows.append(["missing", method, len(part), *[math.nan] * 2, len(there) - len(part), *[math.nan] * 2])
            continue
        before, now = part["correct_golden"].astype(bool), part["correct_run"].astype(bool)
        lost, gained = int((before & ~now).sum()), int((~before & now).sum())
        lower = 100 * paired_lower_limit(lost, gained, len(part))
        verdict = "ok" if lower > -margin else "regressed" if lost > gained else "undecided"
        rows.append([verdict, method, len(part), 100 * before.mean(), 100 * now.mean(), lost, gained, lower])
    return pd.DataFrame(rows, columns=["verdict", "method", "items", "golden", "run", "lost", "gained", "lower limit"])


def judge_records(
    run: Run, golden: Run, margin: float, first: int | None = None, unscored: Collection[str] = ()
) -> bool:
    """Print what differs from the golden records; whether the run passes. margin: points that samples may lose.

    first: how many items of each suite the run has (None: all). unscored: suites whose verdicts may be missing.
    """
    check_complete(golden)
    if first is not None and len(golden.config.draws) > 1:
        raise UserError("--first is for records of one seed: items of several are numbered seed after seed")
    if first is not None:  # as if the golden record's run had had that limit
        limit = min(first, golden.config.limit or first)
        meta = replace(golden.meta, config=replace(golden.config, limit=limit))
        golden = dataclasses.replace(golden, meta=meta, items=golden.items[golden.items["item"] < limit])
    # Methods, suites and items too are the same, or the record could shrink unseen; labels and order may differ.
    there, now = _settings(golden.meta), _settings(run.meta)
    if other := differences(there.pop("names"), now.pop("names")) or differences(there, now):
        raise UserError(f"{run.folder} and {golden.folder} differ in settings: {'; '.join(other)}")
    not_scored = run.meta.scoring.get("not_scored") or {}
    for suite, why in not_scored.items():
        left_out = "left out" if suite in unscored else f"missing; if that is meant: --allow-unscored {suite}"
        print(f"verdicts of {suite} are {left_out}: {why}")
    unscored = {suite for suite in not_scored if suite in unscored}
    if run.config.temperature == 0:
        print(f"records: {len(golden.items)} golden items, compared exactly")
        passed = _judge_exactly(run, golden, unscored)
    else:
        check_complete(run)
        both, differ = _compared(golden, run, unscored)
        if (unlike := differ["prompt_hash"] | differ["gold"]).any():
            named = " ".join(map(str, _keys(both[unlike])[0]))
            raise UserError(f"{run.folder} and {golden.folder} have different problems: {named}")
        found = compare_accuracy(golden, run, margin, unscored)
        passed = set(found["verdict"]) == {"ok"}
        print(f"records: accuracy of the same items, margin {margin:g} points (not greedy)")
        print(found.to_string(index=False, float_format="%.2f"))
    print("records: passed" if passed else "records: REGRESSED; if this is meant, --update")
    return passed


def _judge_exactly(run: Run, golden: Run, unscored: Collection[str]) -> bool:
    excused: list[Key] = []
    if platforms := differences(platform_class(golden.meta), platform_class(run.meta)):
        both, differ = _compared(golden, run, unscored)
        measures = [set(differ.columns[row]) for row in differ.to_numpy()]
        differing = {key: found for key, found in zip(_keys(both), measures, strict=True) if found}
        print(f"another class of platform: {'; '.join(platforms)}")
        print("there rounding may decide otherwise: what the golden records' revision gives here, too, is excused")
        try:
            excused = excused_items(golden, run, differing)
        except UserError as error:
            print(f"the golden records' revision cannot decode here: {error}")
    for key in excused:
        print(f"excused, the golden records' revision gives the same here: {' '.join(map(str, key))}")
    found = compare_exactly(golden, run, excused, unscored)
    print(found.to_string(index=False) if len(found) else "no difference")
    changed = found[found["measure"].isin(["tokens_hash", "text"])]
    if len(changed):
        first = changed.iloc[0]
        key = (first["method"], first["suite"], int(str(first["items"]).split(",")[0].split(" ")[0]))
        sides = (each.items.reindex(columns=[*KEY, "text"]) for each in (golden, run))
        texts = [each.set_index(list(KEY))["text"].get(key) for each in sides]
        print(f"{' '.join(map(str, key))}\n  golden: {texts[0]!r}\n  run:    {texts[1]!r}")
    return found.empty


def excused_items(golden: Run, run: Run, differing: Mapping[Key, Set[str]]) -> list[Key]:
    """The items that the golden records' revision decodes as the run did, on this machine: same tokens, text and costs.

    differing: the measures that each differs in. Raises UserError where that revision cannot decode.
    """
    # Rounding decides ties between tokens and how many drafts are accepted, but no prompt, and no verdict on the same
    # tokens.
    keys = [
        key
        for key, measures in differing.items()
        if measures <= set(SPENT) or ("tokens_hash" in measures and measures <= set(RESPONSE))
    ]
    if not keys:
        return []
    methods, suites, _ = map(set, zip(*keys, strict=True))
    config = replace(
        run.config,
        methods={name: method for name, method in run.config.methods.items() if name in methods},
        suites={name: suite for name, suite in run.config.suites.items() if name in suites},
    )
    rows = {tuple(row[name] for name in KEY): row for row in run.items.to_dict("records")}
    found = []
    with checkout(revision_of(golden.folder)) as tree, tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        jobs = {job.suite: job for job in load(recorded(config, run.meta.data), Path(scratch))[0]}
        with Side(tree, config.threads or 1) as side:
            for key in keys:
                method, suite, item = key
                job, row = jobs[suite], rows[key]
                problem, seed = job.draw(item)
                prompt = job.prompts[problem].tolist()
                answer = side.decode(request_of(config, job.models[method], prompt, seed))
                if "error" in answer or not answer["tokens"].startswith(row["tokens_hash"]):
                    continue
                spent = answer["costs"] | window_sums(answer["windows"])
                if answer["text"] == row["text"] and all(spent.get(each) == row.get(each) for each in SPENT):
                    found.append(key)
    return found


def update(run: Run, folder: Path) -> None:
    """Make a run's records, all of its items, the golden ones; prints what changed. Windows are left out.

    Raises UserError if the run lacks items, or if the folder has a run's or somebody else's files of these names.
    """
    check_complete(run)
    begun = (folder / "run.json").exists()
    if (folder / ("windows.jsonl" if begun else "items.jsonl")).exists():
        holds = "a run" if begun else "a file items.jsonl"
        raise UserError(f"{folder} holds {holds}, and no golden records; choose another folder with --against")
    if begun:
        changed = compare_exactly(read_run(folder, windows=False), run)
        print(changed.to_string(index=False) if len(changed) else "no difference")
    folder.mkdir(parents=True, exist_ok=True)
    meta = json.loads((run.folder / "run.json").read_bytes())
    kept = {name: value for name, value in meta.items() if name != "sessions"}
    write_atomically(folder / "run.json", json.dumps(kept, indent=1) + "\n")
    items = read_lines(run.folder / "items.jsonl")
    write_atomically(folder / "items.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    print(f"golden records: {folder} ({len(run.items)} items)")
