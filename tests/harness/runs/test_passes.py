"""Single passes that a run times: what is recorded is read again, and what is damaged is
refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import UserError
from harness.records.store import Recorder, read_run
from harness.runs.worker import pass_seconds
from model_wrappers import load_backbone
from model_wrappers.opencompass_model import DiffusionModel

PROMPT = torch.tensor([5, 6, 7, 8])
ROW = {
    "method": "fef-2",
    "suite": "gsm8k",
    "item": 0,
    "drafts": 4,
    "plain": 0.1,
    "draft": 0.1,
    "verification": 0.3,
}


@pytest.mark.parametrize(
    "options", [{"window": 4}, {"verify": "two-stream", "window": 4, "anchor": 6}, {}]
)
@pytest.mark.parametrize("draft", [None, "nano-fef"])
def test_passes_of_the_method_are_timed(options: dict[str, Any], draft: str | None) -> None:
    model = DiffusionModel(load_backbone("nano"), "fef", options, gen_length=12, draft=draft)
    found = pass_seconds(model, PROMPT)
    assert found["drafts"] == min(options.get("window", 16), 12)
    assert all(0 < found[name] < 60 for name in ("plain", "draft", "verification"))


def test_passes_are_recorded_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1, "config": {}}')
    recorder = Recorder(tmp_path)
    for number in (0, 5):
        recorder.add({name: ROW[name] for name in ("method", "suite")} | {"item": number}, [])
    recorder.add_passes(ROW)
    with (tmp_path / "passes.jsonl").open("a") as file:
        file.write('{"method": "fef')  # torn by a kill
    Recorder(tmp_path).add_passes(ROW | {"item": 5})
    assert read_run(tmp_path).passes["item"].to_list() == [0, 5]
    with (tmp_path / "passes.jsonl").open("a") as file:
        file.write('{"method": "fef-2", "suite": "gsm8k", "item": 1, "plain": -1}\n')
    with pytest.raises(UserError, match=r"passes\.jsonl, line 3"):
        read_run(tmp_path)
