"""Theorem 2 and its corollary against enumeration and simulation; the table that sets them beside a
run."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rendering import render
from run_records import drafted_window as window
from run_records import has_latex, item, rows_of, save

from harness.errors import UserError
from harness.measures.theory import (
    THEORY,
    acceleration_ratio,
    acceptance_by_position,
    expected_committed,
    fef_windows,
    theory,
)
from harness.records.store import Run
from tables import render as cli
from tables.output import write_pdf


def committed(accepts: tuple[bool, ...]) -> int:
    """Positions a window commits: drafts up to the first rejection, and the corrected one."""
    return accepts.index(False) + 1 if False in accepts else len(accepts)


def fef_run(folder: Path, **fields: Any) -> Run:
    """Two items. LLaDA: 12 forwards of 0.1 s. FeF, k = 4: 5 windows commit 16 positions in 3.5 s;
    w/o SD: 1.75 s."""
    lengths = [(4, 4), (4, 1), (4, 3), (4, 4), (2, 2)]
    counts = {"proposed": 18, "accepted": 14, "rejected": 2, "draft_forwards": 5}
    items, windows = [], []
    for number in range(2):
        items.append(item("llada", "gsm8k", number, forwards=12, seconds=1.2, draft_forwards=0))
        items.append(item("fef-2", "gsm8k", number, forwards=10, seconds=3.5, **counts))
        items.append(
            item("fef-2-nosd", "gsm8k", number, forwards=16, seconds=1.75, draft_forwards=0)
        )
        windows += [window("fef-2", number, *pair) for pair in lengths]
    options = {"gsm8k": {"options": {"steps": 2, "window": 4}}}
    methods = {
        "llada": {"label": "LLaDA", "method": "llada"},
        "fef-2": {"label": "FeF", "method": "fef", "suites": options},
        "fef-2-nosd": {"label": "FeF w/o SD", "method": "fef"},
    }
    config = {"data": "generated", "methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "passes.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in fields.pop("passes", PASSES))
    )
    return save(folder, items, fields.pop("windows", windows), config=config, **fields)


# Medians: a plain forward 0.08 s, a draft pass 0.1 s, a verification 0.5 s.
PASSES = [
    {
        "method": "fef-2",
        "suite": "gsm8k",
        "item": number,
        "drafts": 4,
        "plain": c,
        "draft": rho,
        "verification": pi,
    }
    for number, (c, rho, pi) in enumerate([(0.08, 0.1, 0.5), (0.08, 0.1, 0.5), (0.3, 0.3, 0.9)])
]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.94, 1.0])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_expected_committed_is_the_mean_over_all_outcomes(alpha: float, k: int) -> None:
    outcomes = itertools.product((True, False), repeat=k)
    mean = sum(committed(o) * alpha ** sum(o) * (1 - alpha) ** (k - sum(o)) for o in outcomes)
    assert expected_committed(alpha, k) == pytest.approx(mean, rel=1e-12)


def test_acceleration_ratio_is_the_corollarys() -> None:
    assert acceleration_ratio(6.0, 1.0, 1.0) == 3.0
    assert acceleration_ratio(6.0, 1.0, 5.0) == pytest.approx(5.0)
    # A round costs c_rho + c_pi and commits 6; the baseline pays c_pi for each of them.
    assert acceleration_ratio(6.0, 0.2, 0.7) == pytest.approx(6 * 0.7 / 0.9)


def test_the_theory_frame_is_what_a_hand_computes(tmp_path: Path) -> None:
    frame = theory(fef_run(tmp_path))
    assert list(frame.columns) == THEORY and len(frame) == 1
    row = frame.to_dict("records")[0]
    alpha = 14 / 16
    e_4, e_2 = expected_committed(alpha, 4), expected_committed(alpha, 2)
    c, c_rho, c_pi, passes = 0.08, 0.1, 0.5, (4 + 2 + 4 + 4 + 2) / 12
    sequential, forwards = e_4 * c_pi / (c_rho + c_pi), e_4 / 2 / passes
    speed = e_4 * c / (c_rho + c_pi) / passes
    expected = {
        **{
            "window": 4,
            "alpha": alpha,
            "acceptance": 14 / 18,
            "windows": 10,
            "committed_per_window": 16 / 5,
        },
        **{"expected_committed": e_4, "expected_committed_windows": (4 * e_4 + e_2) / 5},
        **{"passes": passes, "c": c, "c_rho": c_rho, "c_pi": c_pi},
        **{
            "predicted_over_sequential": sequential,
            "over_sequential": 0.5,
            "over_sequential_ratio": 0.5 / sequential,
        },
        **{
            "predicted_forward_speedup": forwards,
            "forward_speedup": 1.2,
            "forward_speedup_ratio": 1.2 / forwards,
        },
        **{"predicted_speedup": speed, "speedup": 1.2 / 3.5, "speedup_ratio": 1.2 / 3.5 / speed},
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_what_the_records_lack_is_a_dash(tmp_path: Path) -> None:
    run = fef_run(tmp_path)
    alone = run.items[run.items["method"] == "fef-2"]
    row = theory(replace(run, items=alone)).to_dict("records")[0]
    absent = {name for name, value in row.items() if pd.isna(value)}
    relative = {
        name
        for name in THEORY[THEORY.index("over_sequential") :]
        if name != "predicted_forward_speedup"
    }
    assert absent == relative | {"passes", "predicted_forward_speedup"}
    unmeasured = replace(run, passes=pd.DataFrame())
    row = theory(unmeasured).to_dict("records")[0]
    assert all(
        pd.isna(row[name]) for name in ("c", "c_rho", "c_pi", "predicted_speedup", "speedup_ratio")
    )
    assert row["passes"] > 0 and row["forward_speedup_ratio"] > 0 and row["speedup"] > 0
    assert rows_of(render(unmeasured)["theory.md"])["FeF"][8:12] == ["-"] * 4


def test_windows_of_other_methods_are_left_out(tmp_path: Path) -> None:
    run = fef_run(tmp_path)
    windows = [window("fef-2", 0, 4, 1), window("llada", 0, 4, 1)]
    assert len(fef_windows(replace(run, windows=pd.DataFrame(windows)))) == 1


def test_acceptance_by_position_is_a_hand_count() -> None:
    windows = pd.DataFrame({"proposed": [3, 3, 3, 2, 1], "accepted": [3, 1, 0, 2, 1]})
    positions = acceptance_by_position(windows)
    counts = positions[["position", "proposed", "tested", "accepted"]].to_numpy().tolist()
    assert counts == [[1, 5, 5, 4], [2, 4, 3, 2], [3, 3, 1, 1]]
    assert positions["given_tested"].to_list() == [4 / 5, 2 / 3, 1.0]
    assert positions["unconditional"].to_list() == [4 / 5, 2 / 4, 1 / 3]
    assert acceptance_by_position(windows[:0]).empty


def test_all_tables_go_into_one_pdf_and_nothing_else_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not has_latex():
        pytest.skip("no pdflatex with booktabs and multirow")
    run = fef_run(tmp_path / "run")
    for out in ("one", "two"):
        assert cli.main([str(run.folder), "--pdf", "--out", str(tmp_path / out)]) == 0
    assert f"compiled: {tmp_path / 'one' / 'tables.pdf'}" in capsys.readouterr().out
    written = {path.name for path in (tmp_path / "one").iterdir()}
    assert written == {*render(run), "tables.pdf"}
    content = (tmp_path / "one" / "tables.pdf").read_bytes()
    assert content.startswith(b"%PDF") and content == (tmp_path / "two" / "tables.pdf").read_bytes()
    with pytest.raises(
        UserError, match="could not compile the tables: ! Undefined control sequence"
    ):
        write_pdf([r"\nothing"], tmp_path / "one")
