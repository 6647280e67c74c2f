"""Every method beside one of them: problems, intervals, speeds, responses alike, what is not
compared; claims."""

import json
import math
import subprocess
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from paths import ROOT
from rendering import render
from run_records import item, rows_of, save

from harness.errors import UserError
from harness.measures.against import ALL, Claim, against, read_claims, with_words, word
from harness.measures.intervals import paired
from harness.records.schema import Setting
from harness.records.store import read_meta
from harness.stats import mean_difference_interval, paired_interval, speedup_interval
from tables.claims import main


def some_items(suite: str) -> list[dict[str, Any]]:
    """LLaDA right on 6 of 10; DCD on 4 of these and 3 others, at half the speed, with LLaDA's
    tokens on 2."""
    rows = []
    for number in range(10):
        own = {"seconds": 1 + number / 10, "tokens_hash": f"{number}"}
        rows.append(item("llada", suite, number, correct=number < 6, **own))
        own = {"seconds": 2 * own["seconds"], "tokens_hash": f"{number}" if number < 2 else "other"}
        rows.append(item("dcd", suite, number, correct=2 <= number < 9, **own))
    return rows


def compared(*flips: tuple[float, float, float]) -> pd.DataFrame:
    """Comparisons on one suite each."""
    return pd.DataFrame({"flips": [[each] for each in flips], "judged": [n for _, _, n in flips]})


def by_suite(frame: pd.DataFrame, method: str) -> pd.DataFrame:
    return frame[frame["method"] == method].set_index("suite")


def test_problems_are_counted_by_suite_and_over_all_of_them(tmp_path: Path) -> None:
    found = by_suite(
        against(save(tmp_path, [*some_items("gsm8k"), *some_items("math")]), "llada"), "dcd"
    )
    assert list(found.index) == ["gsm8k", "math", ALL]
    counts = found[["items", "judged", "lost", "gained", "same"]]
    assert counts.loc["math"].tolist() == [10, 10, 2, 3, 2]
    assert (counts.loc[ALL] == 2 * counts.loc["math"]).all()
    for suite, flips in {"gsm8k": [(2, 3, 10)], ALL: [(2, 3, 10)] * 2}.items():
        low, high = mean_difference_interval(flips)
        points = found.loc[suite, ["points", "points_low", "points_high"]].tolist()
        assert points == pytest.approx([10.0, 100 * low, 100 * high])


def test_speed_is_the_references_seconds_over_the_methods(tmp_path: Path) -> None:
    run = save(tmp_path, [*some_items("gsm8k"), *some_items("math")])
    assert by_suite(against(run, "llada"), "dcd")["speed"].tolist() == pytest.approx([0.5] * 3)
    turned = by_suite(against(run, "dcd"), "llada")
    assert (
        turned["speed"].tolist() == pytest.approx([2.0] * 3)
        and turned.loc["math", "points"] == -10.0
    )
    low, high = speedup_interval(
        [paired(run, "dcd")["llada", suite].seconds for suite in ("gsm8k", "math")]
    )
    assert turned.loc[ALL, ["speed_low", "speed_high"]].tolist() == [low, high]


def test_exchanging_method_and_reference_inverts_a_speed_over_suites(tmp_path: Path) -> None:
    # Twice as fast on one suite and half as fast on the other is no difference in either direction.
    rows = [
        item(method, suite, n, seconds=seconds * (1 + n % 3))
        for method, suite, seconds in (
            ("llada", "gsm8k", 1.0),
            ("dcd", "gsm8k", 0.5),
            ("llada", "math", 1.0),
            ("dcd", "math", 2.0),
        )
        for n in range(9)
    ]
    run = save(tmp_path, rows)
    for reference, method in (("llada", "dcd"), ("dcd", "llada")):
        whole = by_suite(against(run, reference), method).loc[ALL]
        assert whole[["speed", "speed_low", "speed_high"]].tolist() == pytest.approx([1.0] * 3)


def test_a_missing_suite_leaves_points_and_no_mean_speed(tmp_path: Path) -> None:
    items = [*some_items("gsm8k"), *(row for row in some_items("math") if row["method"] == "llada")]
    run = save(
        tmp_path,
        [*items, *(item("llada/2", suite, n) for suite in ("gsm8k", "math") for n in range(10))],
    )
    found = by_suite(against(run, "llada"), "dcd")
    assert list(found.index) == ["gsm8k", ALL] and found.loc[ALL, "judged"] == 10
    assert found.loc[ALL, ["speed", "speed_low"]].isna().all()
    text = render(run, against="llada")["against.md"]
    assert (
        rows_of(text)["DCD"][4:] == ["+10.0 [i]", "-", "2 of 10"]
        and "[i] fewer items than other rows have" in text
    )


def test_problems_that_one_has_no_verdict_of_do_not_count(tmp_path: Path) -> None:
    items = [row | ({"correct": None} if row["item"] < 4 else {}) for row in some_items("gsm8k")]
    found = by_suite(against(save(tmp_path, items, suites={"gsm8k": "GSM8K"}), "llada"), "dcd")
    assert found.loc["gsm8k", ["items", "judged", "lost", "gained"]].tolist() == [10, 6, 0, 3]
    none = [row | {"correct": None, "tokens_hash": None} for row in some_items("gsm8k")]
    found = by_suite(
        against(save(tmp_path / "none", none, suites={"gsm8k": "GSM8K"}), "llada"), "dcd"
    )
    assert math.isnan(found.loc["gsm8k", "points"]) and found.loc["gsm8k", "same"] == 0


def test_numbers_have_the_marks_of_both_methods(tmp_path: Path) -> None:
    run = save(tmp_path, some_items("gsm8k"), suites={"gsm8k": "GSM8K"})
    lengths = {"gen_length": 64, "block_length": 64, "options": {}}
    run.config.methods["llada"].suites["gsm8k"] = Setting(**lengths, tuned_on="generated")
    run.config.methods["dcd"].suites["gsm8k"] = Setting(
        **lengths | {"gen_length": 16, "block_length": 16}
    )
    text = render(run, against="llada")["against.md"]
    assert rows_of(text)["DCD"][:2] == ["+10.0 [lp]", "0.50x [lp]"]
    assert "- [l] other length" in text and "- [p] tuned on these problems" in text


def test_marks_are_those_beside_the_method_that_is_asked_for(tmp_path: Path) -> None:
    run = save(tmp_path, some_items("gsm8k"), suites={"gsm8k": "GSM8K"})
    lengths = {"gen_length": 64, "block_length": 64, "options": {"stop_at_eos": True}}
    run.config.methods = {
        name: run.config.methods[method] for name, method in (("own", "llada"), ("dcd", "dcd"))
    }
    run.config.methods["own"].suites["gsm8k"] = Setting(**lengths)
    run.config.methods["dcd"].suites["gsm8k"] = Setting(
        **lengths | {"gen_length": 16, "options": {}}
    )
    own = with_fields(
        run, items=run.items.assign(method=run.items["method"].astype(str).replace("llada", "own"))
    )
    text = render(own, against="own")["against.md"]
    assert rows_of(text)["DCD"][:2] == ["+10.0 [l]", "0.50x [l]"]


def test_the_table_has_intervals_below_and_no_sign_at_zero(tmp_path: Path) -> None:
    run = save(tmp_path, some_items("gsm8k"), suites={"gsm8k": "GSM8K"})
    low, high = paired_interval(2, 3, 10)
    rows = rows_of(text := render(run, against="llada")["against.md"])
    assert f"not shown ({against(run, 'llada')['needed'].iloc[0]:,.0f})" in text
    assert rows["DCD"] == ["+10.0", "0.50x", "2 of 10"]
    assert rows["95% interval"] == [f"{100 * low:.1f} to {100 * high:.1f}", "0.50 to 0.50", ""]
    even = [row | {"correct": True} for row in some_items("gsm8k")]
    even_run = save(tmp_path / "even", even, suites={"gsm8k": "GSM8K"})
    assert rows_of(render(even_run, against="dcd")["against.md"])["LLaDA"][0] == "0.0"


def test_a_method_that_the_run_lacks_is_refused_with_those_it_has(tmp_path: Path) -> None:
    run = save(tmp_path, [item("llada", "gsm8k", 0)])
    with pytest.raises(
        UserError, match="--against threshold: the run has no such method; valid: llada, llada/2"
    ):
        render(run, against="threshold")
    with pytest.raises(UserError, match="--against dcd: it has no items yet"):
        render(run, against="dcd")


def test_an_interval_has_one_word() -> None:
    assert {word(0.1, 9.0), word(0.1, 0.9)} == {"ahead"} and word(-9.0, -0.1) == "behind"
    assert word(-1.9, 1.9) == "level" and word(math.nan, math.nan) == ""
    assert {word(-2.1, 1.9), word(-1.9, 2.1)} == {"not shown"}


def test_words_are_of_intervals_after_holm() -> None:
    counts = compared((11, 24, 100), (11, 24, 100), (50, 50, 1000))
    alone, three = with_words(counts.head(1)), with_words(counts)
    assert alone["word"].tolist() == ["ahead"]
    assert three["word"].tolist()[:2] == ["not shown", "not shown"]
    assert (three["holm_low"].head(2) < alone["holm_low"].iloc[0]).all()


def test_ahead_needs_the_exact_test_too() -> None:
    four = with_words(compared((0, 4, 300)))
    assert four["holm_low"].item() > 0 and four["word"].item() == "not shown"  # p = 0.125
    assert with_words(compared((0, 6, 300)))["word"].item() == "ahead"


def test_as_many_problems_as_needed_show_a_difference() -> None:
    few = with_words(compared((5, 8, 100)))
    factor = few["needed"].item() / 100
    many = with_words(compared((5 * factor, 8 * factor, 100 * factor)))
    assert few["word"].item() == "not shown" and many["word"].item() == "ahead"
    assert with_words(compared((8, 8, 100)))["needed"].item() == math.inf


# Claims: compared from records, corrected together
TWO = """
[[claim]]
claim = "DCD is more accurate"
record = "run"
method = "dcd"
reference = "llada"
at_least = -2

[[claim]]
claim = "DCD is twice as fast"
record = "run"
method = "dcd"
reference = "llada"
measure = "speed"
"""


def write(folder: Path, text: str) -> Path:
    right = {"llada": lambda n: n % 2 == 0, "dcd": lambda n: n % 10 < 7}
    rows = [
        item(
            method, "gsm8k", n, correct=right[method](n), seconds=2.0 if method == "llada" else 1.0
        )
        for method in right
        for n in range(200)
    ]
    save(folder / "run", rows, suites={"gsm8k": "GSM8K"})
    (folder / "claims.toml").write_text(text)
    return folder / "claims.toml"


def test_a_claim_is_compared_from_its_record(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    assert main([str(path)]) == 0
    points, speed = pd.read_csv(path.with_suffix(".csv")).to_dict("records")
    low, high = paired_interval(20, 60, 200)
    assert (points["value"], points["word"], points["goal"]) == (20.0, "ahead", "holds")
    assert (points["low"], points["high"]) == pytest.approx((100 * low, 100 * high))
    assert (speed["value"], speed["low"], speed["high"], speed["word"]) == (2.0, 2.0, 2.0, "ahead")
    assert "DCD is twice as fast" in path.with_suffix(".md").read_text()


def test_a_goal_that_is_not_shown_fails(tmp_path: Path) -> None:
    assert main([str(write(tmp_path, TWO.replace("at_least = -2", "at_least = 15")))]) == 1


def test_claims_say_what_their_records_are_of(tmp_path: Path) -> None:
    own = {"gen_length": 64, "block_length": 64, "options": {}, "tuned_on": "generated-dev:2"}
    methods = {"llada": {"label": "LLaDA"}, "dcd": {"label": "DCD", "suites": {"gsm8k": own}}}
    config = {
        "methods": methods,
        "suites": {"gsm8k": {"title": "GSM8K"}},
        "data": "generated-dev:2",
    }
    save(
        tmp_path / "run",
        [item(method, "gsm8k", n) for method in methods for n in range(4)],
        config=config,
    )
    (tmp_path / "claims.toml").write_text(TWO)
    main([str(tmp_path / "claims.toml")])
    page = (tmp_path / "claims.md").read_text()
    assert "\n\n**run**\n\n- problems a suite: 4\n" in page
    assert "\n- data: generated-dev:2\n" in page
    assert page.endswith("\n- DCD: tuned\\_on=generated-dev:2\n") and "+0.0 [p]" in page


def test_claims_of_seeds_that_agree_are_those_of_one(tmp_path: Path) -> None:
    right = {"llada": lambda n: n % 2 == 0, "dcd": lambda n: n % 10 < 7}
    for name, seeds in (("one", [0]), ("three", [0, 1, 2])):
        rows = [
            item(method, "gsm8k", 40 * draw + n, correct=right[method](n))
            for method in right
            for draw in range(len(seeds))
            for n in range(40)
        ]
        config = {
            "seeds": seeds,
            "methods": {method: {"label": method, "method": method} for method in right},
            "suites": {"gsm8k": {"title": "GSM8K"}},
        }
        save(
            tmp_path / name,
            rows,
            config=config,
            data={"files": {"gsm8k": {"items": 40 * len(seeds)}}},
        )
    claim = TWO.split("[[claim]]")[1]
    path = tmp_path / "claims.toml"
    path.write_text("".join(f"[[claim]]{claim.replace('run', name)}" for name in ("one", "three")))
    main([str(path)])
    one, three = pd.read_csv(path.with_suffix(".csv"))[
        ["items", "value", "low", "high", "word"]
    ].to_dict("records")
    assert one["items"] == 40
    assert three == pytest.approx(one)


def test_claims_of_speed_are_corrected_for_their_number(tmp_path: Path) -> None:
    """By Bonferroni: two claims have intervals at 97.5%."""
    rows = [
        item(method, "gsm8k", n, correct=True, seconds=1 + (n * n % 7) * own)
        for method, own in (("llada", 0.5), ("dcd", 0.2))
        for n in range(30)
    ]
    run = save(tmp_path / "run", rows, suites={"gsm8k": "GSM8K"})
    speed = TWO[TWO.rindex("[[claim]]") :]
    (tmp_path / "claims.toml").write_text(speed + speed.replace("twice", "not"))
    main([str(tmp_path / "claims.toml")])
    frame = pd.read_csv(tmp_path / "claims.csv")
    seconds = [paired(run, "llada")["dcd", "gsm8k"].seconds]
    both, alone = speedup_interval(seconds, 1 - 0.05 / 2), speedup_interval(seconds)
    assert frame[["low", "high"]].to_numpy().tolist() == [pytest.approx(both)] * 2
    assert both[0] < alone[0] and both[1] > alone[1]


def test_a_speed_of_several_sessions_is_their_mean_and_its_interval_covers_each(
    tmp_path: Path,
) -> None:
    suites = {"gsm8k": "GSM8K"}
    for folder, fast, threads in (
        ("run/speed", 0.5, 2),
        ("run/speed-one", 0.25, 1),
        ("run/speed-two", 0.4, 2),
    ):
        rows = [
            item(method, "gsm8k", n, seconds=seconds * (1 + n % 3), prompt_hash="p")
            for method, seconds in (("llada", 1.0), ("dcd", fast))
            for n in range(9)
        ]
        machine = {"device": "cpu", "cpu": "Test CPU", "threads": threads, "dtype": "float32"}
        save(tmp_path / folder, rows, suites=suites, environment=machine)
    rows = [
        item(method, "gsm8k", n, prompt_hash="p") for method in ("llada", "dcd") for n in range(20)
    ]
    save(tmp_path / "run", rows, suites=suites)
    (tmp_path / "claims.toml").write_text(TWO[TWO.rindex("[[claim]]") :])
    main([str(tmp_path / "claims.toml")])
    (row,) = pd.read_csv(tmp_path / "claims.csv").to_dict("records")
    # The geometric mean of 2, 4 and 2.5.
    assert (row["value"], row["low"], row["high"]) == pytest.approx((20 ** (1 / 3), 2, 4))
    assert row["sessions"] == "4.00 on 1; 2.00, 2.50 on 2"


CLAIMS_FILE = "results/reference/claims.toml"
GOALS = [claim for claim in read_claims(ROOT / CLAIMS_FILE) if claim.at_least is not None]


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.record}: {goal.claim}")
def test_a_goal_stood_in_the_file_before_its_record_was_made(goal: Claim, tmp_path: Path) -> None:
    """Every run is of a clean commit; up to it, the last file of claims that has the record's has
    this goal."""
    record = ROOT / "results" / "reference" / goal.record
    for folder in (record, *(path.parent for path in record.glob("speed*/run.json"))):
        environment = read_meta(folder).environment
        assert not environment["dirty"], f"{folder} was made from a tree with changes"
        if git("cat-file", "-e", environment["commit"]).returncode:
            pytest.skip("this clone has no history")
        commits = git("log", "--format=%H", environment["commit"], "--", CLAIMS_FILE).stdout.split()
        files = (git("show", f"{commit}:{CLAIMS_FILE}").stdout for commit in commits)
        before = tmp_path / "claims.toml"
        before.write_text(next((text for text in files if f'record = "{goal.record}"' in text), ""))
        assert replace(goal, claim="x") in [
            replace(claim, claim="x") for claim in read_claims(before)
        ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"dcd"', '"nobody"'),
        ('"run"', '"elsewhere"'),
        ("at_least", "at_most"),
        ('"speed"', '"x"'),
    ],
)
def test_what_no_record_bears_is_refused(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        main([str(write(tmp_path, TWO.replace(old, new)))])


def test_a_claim_of_points_needs_verdicts(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    items = tmp_path / "run" / "items.jsonl"
    rows = [json.loads(line) | {"correct": None} for line in items.read_text().splitlines()]
    items.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="has no verdicts on gsm8k; score it first"):
        main([str(path)])


def test_an_unknown_key_of_a_claim_is_refused_with_the_known(tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text(TWO.replace("at_least", "goal"))
    with pytest.raises(
        UserError, match=r"unknown field `goal`.*keys of a .* are claim, record, .*at_least"
    ):
        read_claims(tmp_path / "claims.toml")
