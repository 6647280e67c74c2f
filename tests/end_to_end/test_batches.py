"""Runs with --batch: the records of a run without, whatever else is decoded at the same time."""

from pathlib import Path
from typing import Any

import pytest
from greenlet import GreenletExit

import harness
from harness.errors import UserError
from harness.records.store import TIMED, read_run
from model_wrappers import Backbone
from model_wrappers.options import Options, note
from model_wrappers.request import Request

METHODS = "llada,threshold+dual(block_length=16),fef-2,fef-two-stream"
KEYS = ["method", "suite", "item"]
LINE: dict[str, Any] = {"untimed": True, "limit": 3, "threads": 1}
FAILURE: type[BaseException] = KeyError


def recorded(folder: Path) -> dict[Any, dict[str, Any]]:
    items = read_run(folder).items
    items = items.drop(columns=[name for name in items if name in TIMED])
    return {tuple(row[name] for name in KEYS): row for row in items.to_dict("records")}


def fails_on_odd_prompts(request: Request, options: Options) -> None:
    request.backbone.logits(request.x_1L)
    if int(request.x_1L[0, : request.start].sum()) % 2:  # the first of the three
        raise FAILURE("lost")
    fill(request)


def fill(request: Request) -> None:
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.commit(masked, 5, None, "filled")


@pytest.mark.parametrize(
    ("suites", "batch"),
    [
        pytest.param("gsm8k", 4, marks=pytest.mark.slow),
        pytest.param("gsm8k,humaneval", "auto", marks=pytest.mark.slow),
    ],
)
def test_a_batched_run_has_the_records_of_one_without(
    tmp_path: Path, suites: str, batch: int | str
) -> None:
    for name, at_once in (("alone", None), ("batch", batch)):
        harness.evaluate(
            METHODS,
            suites,
            out=tmp_path / name,
            batch=at_once,
            trace=batch == 4,
            **LINE | {"limit": 2},
        )
    assert recorded(tmp_path / "alone") == recorded(tmp_path / "batch")
    assert (tmp_path / "batch" / "windows.jsonl").exists()
    run = read_run(tmp_path / "batch")
    assert run.config.batch == batch and not run.config.timed
    # Responses of a batch share the memory.
    assert "peak_bytes" in read_run(tmp_path / "alone").items and "peak_bytes" not in run.items


def test_a_model_whose_calls_cannot_be_packed_says_so_and_decodes_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = LINE | {"methods": "threshold,llada", "suite": "gsm8k", "limit": 2}
    harness.evaluate(**run, out=tmp_path / "alone")
    monkeypatch.setattr(Backbone, "can_pack", False)
    note.cache_clear()
    capsys.readouterr()
    harness.evaluate(**run, out=tmp_path / "batch", batch=4)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["nano decodes one response at a time"]
    assert recorded(tmp_path / "alone") == recorded(tmp_path / "batch")


def test_the_tables_say_that_seconds_do_not_count(tmp_path: Path) -> None:
    harness.evaluate("llada,threshold", "gsm8k", out=tmp_path / "run", batch=2, limit=1)
    text = (tmp_path / "run" / "tables" / "main.md").read_text()
    assert "- batch: 2\n" in text and "Speed" not in text


@pytest.mark.parametrize("failure", [KeyError, GreenletExit])
def test_a_decoder_that_fails_loses_no_other_response(
    failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.FAILURE", failure)
    with pytest.raises(
        UserError, match=r"fails_on_odd_prompts on gsm8k, item 0: .*lost.*--batch 1 decodes them"
    ):
        harness.evaluate(
            ["threshold", fails_on_odd_prompts], "gsm8k", out=tmp_path / "run", batch=8, **LINE
        )
    kept = recorded(tmp_path / "run")
    assert {method for method, _, _ in kept} == {"threshold", "fails_on_odd_prompts"}
    assert sum(method == "threshold" for method, _, _ in kept) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [({"batch": 0}, "--batch 0 must be 1 to 1024"), ({"batch": "many"}, "--batch 'many' must be")],
)
def test_what_cannot_be_a_batch_is_refused(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        harness.evaluate("llada", "gsm8k", out=tmp_path / "run", **LINE | options)
    assert not (tmp_path / "run").exists()
