"""What captions say of a run: its model, its items, its machine and workers, its code, what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_records import NANO_SHA256, full_items, save

from tables.render import render


def test_caption_names_other_models_and_not_where_they_lie(tmp_path: Path) -> None:
    weights: dict[str, Any] = {"base": {"name": "/models/LLaDA-8B-Instruct"}, "fef": {"name": "/models/tuned"}}
    gpu = {"device": "cuda:0", "gpu": "H200", "cpu": "Test CPU", "dtype": "bfloat16"}
    caption = render(save(tmp_path, full_items(), weights=weights, environment=gpu))["main.md"].splitlines()[0]
    assert "Measured on LLaDA-8B-Instruct, tuned." in caption and "nano" not in caption and "/models" not in caption
    assert "Environment: cuda:0 (H200), bfloat16." in caption
    for parameters, sentence in (
        (2_612_345, "Measured on mine (2.6 M parameters); not comparable with the paper's 8B results."),
        (8_015_581_184, "Measured on mine (8.0 B parameters). 4 items"),
    ):
        weights = {"base": {"name": "/models/mine", "parameters": parameters}}
        assert sentence in render(save(tmp_path, full_items(), weights=weights))["main.md"]
    weights = {"8b": {"name": "LLaDA-8B-Instruct", "parameters": 8_015_581_184}, "nano": {"name": "nano"}}
    caption = render(save(tmp_path, full_items(), weights=weights))["main.md"]
    assert "Measured on LLaDA-8B-Instruct, nano (at most 8.0 B parameters)." in caption


def test_a_model_that_is_called_nano_and_has_other_weights_is_not_nano(tmp_path: Path) -> None:
    for sha256 in ({"model.safetensors": "0" * 64}, {}, NANO_SHA256 | {"more.safetensors": "0" * 64}):
        weights = {"nano": {"name": "nano", "parameters": 2_512_345, "sha256": sha256}}
        caption = render(save(tmp_path, full_items(), weights=weights))["main.md"]
        assert "Measured on nano (2.5 M parameters); not comparable" in caption and "shipped" not in caption


def workers_of(*kinds: tuple[str, str]) -> dict[str, Any]:
    """The part of a session on its workers: host and device of each."""
    return {f"{host}:{number}": {"host": host, "name": name} for number, (host, name) in enumerate(kinds)}


@pytest.mark.parametrize(
    ("sessions", "said"),
    [
        ([[("n1", "H100")]], "1 worker on 1 host."),
        ([[("n1", "H100"), ("n1", "H100"), ("n2", "H100")]], "3 workers on 2 hosts."),
        ([[("n1", "H100")], [("n1", "H100"), ("n2", "H100")]], "1 or 2 workers on 2 hosts."),
        ([[("n1", "H100"), ("n2", "A100"), ("n2", "A100")]], "3 workers (2 A100, 1 H100) on 2 hosts."),
    ],
)
def test_captions_say_how_many_workers_of_which_kind(
    tmp_path: Path, sessions: list[list[tuple[str, str]]], said: str
) -> None:
    run = save(tmp_path, full_items(), sessions=[{"workers": workers_of(*kinds)} for kinds in sessions])
    assert f"Environment: cpu (Test CPU), 2 threads, float32, {said}" in render(run)["main.md"]


def test_captions_say_that_the_code_had_changes_that_no_commit_has(tmp_path: Path) -> None:
    """In every table, with seconds or without."""
    for dirty in (True, False):
        run = save(tmp_path / str(dirty), full_items(), environment={"device": "cpu", "dirty": dirty})
        captions = [text for name, text in render(run, paper=True, measures=True).items() if name.endswith(".md")]
        assert len(captions) >= 4 and {"changes that no commit has." in text for text in captions} == {dirty}


def test_captions_say_what_was_left_out_and_not_decoded_later(tmp_path: Path) -> None:
    rows = [{"method": "llada", "suite": "gsm8k", "item": number, "reason": "killed"} for number in (0, 4, 5)]
    run = save(tmp_path, full_items(), sessions=[{"left_out": rows}])
    assert "2 responses were left out: killed." in render(run)["main.md"]
