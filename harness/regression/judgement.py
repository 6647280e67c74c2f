"""The gate's judgement of records: what is compared, what is printed, what another class of platform excuses."""

import json
import tempfile
from collections.abc import Collection, Mapping, Set
from pathlib import Path

from msgspec.structs import replace

from harness.errors import UserError
from harness.records.consistency import differences
from harness.records.store import KEY, Run, read_lines, read_run, write_atomically
from harness.regression.golden import (
    RESPONSE,
    SPENT,
    Key,
    check_complete,
    check_settings,
    compare_accuracy,
    compare_exactly,
    items_that_differ,
    of_first,
    platform_class,
)
from harness.regression.revision import Side, checkout, request_of, revision_of
from harness.runs.loading import load
from harness.runs.recorded import recorded
from harness.runs.responses import window_sums


def judge_records(
    run: Run, golden: Run, margin: float, first: int | None = None, unscored: Collection[str] = ()
) -> bool:
    """Print what differs from the golden records; whether the run passes. margin: points that samples may lose.

    first: how many items of each suite the run has (None: all). unscored: suites whose verdicts may be missing.
    """
    check_complete(golden)
    golden = golden if first is None else of_first(golden, first)
    check_settings(golden, run)
    if run.config.temperature == 0:
        print(f"records: {len(golden.items)} golden items, compared exactly")
        passed = _judge_exactly(run, golden, unscored)
    else:
        check_complete(run)
        found = compare_accuracy(golden, run, margin)
        passed = set(found["verdict"]) == {"ok"}
        print(f"records: accuracy of the same items, margin {margin:g} points (not greedy)")
        print(found.to_string(index=False, float_format="%.2f"))
    print("records: passed" if passed else "records: REGRESSED; if this is meant, --update")
    return passed


def _judge_exactly(run: Run, golden: Run, allowed: Collection[str]) -> bool:
    not_scored: dict[str, str] = run.meta.scoring.get("not_scored") or {}
    for suite, why in not_scored.items():
        left_out = "left out" if suite in allowed else f"missing; if that is meant: --allow-unscored {suite}"
        print(f"verdicts of {suite} are {left_out}: {why}")
    unscored = {suite for suite in not_scored if suite in allowed}
    excused: list[Key] = []
    platforms = differences(platform_class(golden.meta), platform_class(run.meta))
    differing = items_that_differ(golden, run, unscored) if platforms else {}
    if platforms:
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
        texts = [each.items.set_index(list(KEY))["text"].get(key) for each in (golden, run)]
        print(f"{' '.join(map(str, key))}\n  golden: {texts[0]!r}\n  run:    {texts[1]!r}")
    return found.empty


def excused_items(golden: Run, run: Run, differing: Mapping[Key, Set[str]]) -> list[Key]:
    """Those of the items that the revision which made the golden records decodes as the run did, on this machine.

    differing: the measures that each differs in. Rounding decides ties between tokens and how many drafts are accepted,
    but no prompt, and no verdict on the same tokens. The proof is exact: that revision has the run's tokens, text,
    acceptance and costs. Raises UserError where it cannot decode.
    """
    keys = [
        key
        for key, measures in differing.items()
        if measures <= set(SPENT) or ("tokens_hash" in measures and measures <= set(RESPONSE))
    ]
    if not keys:
        return []
    methods, suites = ({key[place] for key in keys} for place in (0, 1))
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
                same = answer["text"] == row["text"] and all(spent.get(each) == row.get(each) for each in SPENT)
                found += [key] if same else []
    return found


def update(run: Run, folder: Path) -> None:
    """Make a run's records, all of its items, the golden ones; prints what changed. Windows are left out."""
    check_complete(run)
    if (folder / "run.json").exists():
        changed = compare_exactly(read_run(folder, windows=False), run)
        print(changed.to_string(index=False) if len(changed) else "no difference")
    folder.mkdir(parents=True, exist_ok=True)
    meta = json.loads((run.folder / "run.json").read_bytes())
    kept = {name: value for name, value in meta.items() if name != "sessions"}
    write_atomically(folder / "run.json", json.dumps(kept, indent=1) + "\n")
    items = read_lines(run.folder / "items.jsonl")
    write_atomically(folder / "items.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    print(f"golden records: {folder} ({len(run.items)} items)")
