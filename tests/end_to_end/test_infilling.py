"""Responses with holes: what is given stays, in every decoder, trace and suite of a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UserError
from harness.records.files import each_frame
from harness.records.store import read_run
from harness.run import main
from model_wrappers import load_backbone

ROWS = [
    {
        "question": "Anna has 2 apples and buys 3 more. How many apples does Anna have?",
        "given": "First, 2 + 3 = ___. The answer is ___.",
        "answer": "First, 2 + 3 = 5. The answer is 5.",
    },
    {"question": "Copy [ cat, dog ]", "given": "[ ___, dog ]", "answer": "[ cat, dog ]"},
]
HOLES = [2, 1]


def run_of(folder: Path, *line: str, model: str = "nano") -> Path:
    """A finished run on the rows in a folder."""
    path = folder / "holes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    out = folder / "run"
    line = ("--suite", f"holes={path}", "--model", model, *line, "--untimed", "--out", str(out))
    assert main(list(line)) == 0
    return out


def test_decoders_fill_the_holes_and_the_rest_stays(tmp_path: Path) -> None:
    out = run_of(tmp_path, "--methods", "llada,fef-2,wino,threshold+dual", "--trace")
    items = read_run(out).items
    for item in items.to_dict("records"):
        before, *_, after = ROWS[item["item"]]["given"].split("___")
        assert item["text"].startswith(before.rstrip()) and item["text"].endswith(after)
        if item["method"] == "llada":
            assert item["forwards"] == HOLES[item["item"]] and item["correct"]
    mask_id = load_backbone("nano").mask_id
    for _, trace in each_frame(out):
        first = trace.column("forward") == 0
        given = trace.column("position")[first]
        assert len(given) == 64 - HOLES[trace.item] and len(np.unique(given)) == len(given)
        assert mask_id not in trace.column("token")[first]


@pytest.mark.slow
def test_responses_at_once_and_other_seeds_have_the_same_holes(tmp_path: Path) -> None:
    sampled = ["--temperature", "1", "--seed", "0,1", "--batch", "4", "--methods", "llada,fef-2"]
    items = read_run(run_of(tmp_path, *sampled)).items
    assert len(items) == 2 * 2 * len(ROWS)
    for item in items.to_dict("records"):
        assert item["text"].endswith(ROWS[item["item"] % 2]["given"].rpartition("___")[2])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--methods", "ar"], "holes, item 0: .* has no mask, so it completes no given response"),
        (
            ["--methods", "llada", "--gen-length", "8"],
            "holes, item 0: given .* must have a hole, ___, and at most 8 tokens",
        ),
    ],
)
def test_what_cannot_be_completed_is_refused_before_decoding(
    line: list[str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=says):
        run_of(tmp_path, *line)
    assert not (tmp_path / "run" / "items.jsonl").exists()
