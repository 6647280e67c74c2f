"""OpenCompass's work folder becomes a table: its accuracies, and the costs that our wrapper left beside."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.errors import UserError
from tables.render import main
from tables.sheets.work_folder import work_folder_sheet

SUMMARY = (
    "dataset,version,metric,mode,fef,llada\ngsm8k,1d7fe4,accuracy,gen,75.00,50.00\nARC-c,a450bd,accuracy,ppl,40.00,-\n"
)


def line(item: int, seconds: float, began: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"item": item, "began": began, "seconds": seconds, "forwards": 4, **more}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Two models on GSM8K, one of them cut into parts and begun again after a kill, and one on choices."""
    speculative = {"content_tokens": 20, "proposed": 10, "accepted": 8}
    costs = {
        "fef/gsm8k_0": [line(0, 9.0, **speculative), line(0, 1.0, began=2.0, **speculative)],
        "fef/gsm8k_1": [line(0, 3.0, batch=2, **speculative)],
        "fef/ARC-c": [line(0, 1.0, label="A"), line(0, 2.0, label="B")],
        "llada/gsm8k": [line(0, 8.0, content_tokens=10), line(1, 4.0, content_tokens=6)],
    }
    folder = tmp_path / "outputs" / "20261126_120000"
    for name, lines in costs.items():
        path = folder / "predictions" / f"{name}.costs.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    (folder / "summary").mkdir()
    (folder / "summary" / "summary_20261126_120000.csv").write_text(SUMMARY)
    return folder


def test_means_of_responses_stand_beside_opencompass_accuracies(work: Path) -> None:
    numbers = work_folder_sheet(work).numbers.set_index(["model", "dataset"])
    fef, llada, choices = (numbers.loc[key] for key in (("fef", "gsm8k"), ("llada", "gsm8k"), ("fef", "ARC-c")))
    # What a kill left undone was asked again, and counts once; choices are summed.
    assert (fef.seconds, fef.responses, fef.accuracy) == (2.0, 2, 75.0)
    assert (llada.seconds, llada.tokens_per_forward, llada.accuracy) == (6.0, 2.0, 50.0)
    assert (choices.seconds, choices.forwards, choices.responses) == (3.0, 8, 1)
    assert fef.acceptance == pytest.approx(80) and pd.isna(llada.acceptance)


def test_the_newest_folder_of_several_is_rendered_and_says_that_seconds_are_not_paired(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(work.parent)]) == 0
    assert "Mean Acc." in capsys.readouterr().out
    text = (work.parent / "tables" / "opencompass.tex").read_text()
    assert "not paired" in text and "up to 2 at once" in text
    assert "Mean" in text and "50.0 & 6.00" in text  # LLaDA's, and below Mean nothing, as it has no choices


def test_a_torn_line_is_named(work: Path) -> None:
    path = work / "predictions" / "llada" / "gsm8k.costs.jsonl"
    path.write_text(path.read_text() + '{"item": 2, "beg')
    with pytest.raises(UserError, match=r"gsm8k.costs.jsonl, line 3.*remove that line"):
        work_folder_sheet(work)
