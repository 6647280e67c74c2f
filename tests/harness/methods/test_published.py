"""Published settings: where they hold, what goes before them, and that every decoder takes what is written for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.methods.published import PUBLISHED, Published, family_of, published_settings
from harness.options import RunOptions, parsed
from harness.runs.resolve import resolve
from harness.suites.registry import SUITES
from harness.suites.splits import write_suites
from model_wrappers import METHODS

LLADA = "GSAI-ML/LLaDA-8B-Instruct"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems in the layout of the real ones."""
    folder = tmp_path_factory.mktemp("data")
    write_suites(folder, count=3)
    return folder


def settings(data: Path | str, *line: str, model: str = LLADA) -> dict[str, dict[str, Any]]:
    """The settings of every method on GSM8K and HumanEval."""
    options = parsed(RunOptions, ["--model", model, "--data", str(data), "--suite", "gsm8k,humaneval", *line])
    return {name: method["suites"] for name, method in resolve(options).config.to_json()["methods"].items()}


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.decoder)
def test_a_source_is_a_commit_and_the_suites_are_known(entry: Published) -> None:
    commit = entry.source.partition("@")[2].split()[0]
    assert len(commit) == 40 and set(commit) <= set("0123456789abcdef")
    assert set(entry.suites) <= set(SUITES)
    for own in entry.suites.values():
        lengths = entry.lengths | own
        assert lengths["gen_length"] % lengths["block_length"] == 0


@pytest.mark.parametrize(
    "entry", [each for each in PUBLISHED if each.decoder in METHODS], ids=lambda each: each.decoder
)
def test_a_decoder_takes_the_options_that_are_published_for_it(entry: Published) -> None:
    for own in entry.suites.values():
        options = {**entry.options, **own}
        assert all(METHODS[entry.decoder].takes(name) for name in options if name not in entry.lengths)


def test_fast_dllms_rows_have_its_blocks_and_lladas_row_has_its_own(data: Path) -> None:
    found = settings(data, "--methods", "llada,threshold,factor,entropy")
    assert found["llada"]["gsm8k"] == {"gen_length": 256, "block_length": 8, "options": {"steps": 256}}
    assert found["entropy"]["gsm8k"] == {"gen_length": 256, "block_length": 8, "options": {}}
    for name, options in (("threshold", {"tau": 0.9}), ("factor", {"f": 1.0})):
        own = found[name]["gsm8k"]
        assert (own["gen_length"], own["block_length"], own["options"]) == (256, 32, options)
        assert own["published"].startswith("NVlabs/Fast-dLLM@")
    assert found["threshold"]["humaneval"]["options"] == {"tau": 0.9, "logits_eos_inf": True}


def test_what_a_preset_or_the_command_line_sets_goes_before_them(data: Path) -> None:
    own = settings(data, "--methods", "threshold(tau=0.8)", "--gen-length", "64")["threshold(tau=0.8)"]["gsm8k"]
    assert own == {"gen_length": 64, "block_length": 32, "options": {"tau": 0.8}}  # and no source


def test_blocks_are_not_longer_than_responses(data: Path) -> None:
    assert settings(data, "--methods", "threshold", "--gen-length", "16")["threshold"]["gsm8k"]["block_length"] == 16


@pytest.mark.parametrize(("model", "data"), [("nano", "generated"), (LLADA, "generated"), ("nano", "real")])
def test_they_do_not_hold_for_nano_and_not_for_generated_problems(model: str, data: str, tmp_path: Path) -> None:
    write_suites(tmp_path, count=3)
    where = tmp_path if data == "real" else data
    own = settings(where, "--methods", "threshold", model=model)["threshold"]["gsm8k"]
    assert own == {"gen_length": 48, "block_length": 48, "options": {}}


def test_another_family_has_no_settings_of_lladas(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "dream"}))
    assert family_of(str(tmp_path)) == "dream" and published_settings("threshold", "dream", "gsm8k") == ({}, "")


@pytest.mark.parametrize(
    ("model", "family"), [(LLADA, "llada"), ("nano", "llada"), ("someone/else", ""), ("a b//c", ""), ("", "")]
)
def test_the_family_is_that_of_the_config_or_of_the_name(model: str, family: str) -> None:
    assert family_of(model) == family


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"model_type": 5}'])
def test_a_damaged_config_is_left_to_the_loader(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert family_of(str(tmp_path)) in ("", "5")
