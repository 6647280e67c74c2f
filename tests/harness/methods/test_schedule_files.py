"""Schedules in a run: found, checked against what they were made for, refused by name, or replaced by uniform ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_lines import refused
from msgspec import convert

from harness.errors import UserError
from harness.methods.schedule_files import Purpose, describe_schedules
from harness.options import RunOptions, parsed
from harness.records.hashes import model_hashes
from harness.records.schema import RunConfig
from harness.records.store import config_hash
from harness.run import main
from harness.runs import resolve as resolving
from harness.runs.resolve import resolve
from harness.suites.registry import SUITES, generator_of, suite_named
from harness.training.tokenizer import NANO_SUITES
from model_wrappers.backbones.registry import NANO
from model_wrappers.decoders.ddosp import read_schedule

SHIPPED = NANO / "schedules"


def config_of(*line: str) -> dict[str, Any]:
    """As run.json has it."""
    return resolve(parsed(RunOptions, ["--suite", "gsm8k", "--methods", "llada,ddosp", *line])).config.to_json()


def given(folder: Path, **changes: Any) -> Path:
    """A folder with nano's schedule for gsm8k, changed."""
    content = json.loads((SHIPPED / "gsm8k.json").read_text()) | changes
    folder.mkdir(exist_ok=True)
    (folder / "gsm8k.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("suite", NANO_SUITES)
def test_nanos_schedules_are_for_its_weights_and_lengths(suite: str) -> None:
    content = json.loads((SHIPPED / f"{suite}.json").read_text())
    length = generator_of(suite_named(suite)).length
    assert content["model"] == "nano" and content["weights"] == model_hashes(NANO)
    assert content["suite"] == suite and content["gen_length"] == content["block_length"] == length
    assert len(read_schedule(f"nano/{suite}", 1, length // 2, length)[0]) == content["steps"] == length // 2
    assert content["error"] < content["uniform_error"]


def test_a_run_on_nano_takes_the_schedules_shipped_with_it() -> None:
    config = config_of("--suite", ",".join(NANO_SUITES))
    ddosp = config["methods"]["ddosp"]
    assert ddosp["label"] == "DDOSP"
    for suite, setting in ddosp["suites"].items():
        assert setting["options"]["schedule"] == f"nano/{suite}" and len(setting["schedule_sha256"]) == 64
    assert describe_schedules(convert(config, RunConfig), SUITES) == [
        f"DDOSP on {suite}: schedule nano/{suite}" for suite in NANO_SUITES
    ]
    assert str(NANO) not in json.dumps(config)
    assert "schedule_sha256" not in config["methods"]["llada"]["suites"]["gsm8k"]


def test_lengths_without_a_shipped_schedule_fall_back_to_the_uniform_one_and_say_so() -> None:
    config = config_of("--suite", "gsm8k,math", "--gen-length", "32")
    ddosp = config["methods"]["ddosp"]
    assert ddosp["label"] == "DDOSP (uniform schedule)"
    assert ddosp["suites"]["gsm8k"]["options"]["schedule"] is ddosp["suites"]["gsm8k"]["schedule_sha256"] is None
    first, second = describe_schedules(convert(config, RunConfig), SUITES)
    assert first.startswith("DDOSP on gsm8k: uniform schedule") and second.startswith("DDOSP on math: uniform schedule")
    assert (
        "made for gen_length 48, block_length 48, steps 24, not for gen_length 32, block_length 32, steps 16" in first
    )
    command = "python harness/schedule.py --model nano --suite gsm8k --steps 16 --gen-length 32 --block-length 32"
    assert f"{command}, then --schedules results/schedules/nano" in first


def test_one_suite_without_a_schedule_is_enough_for_the_label(tmp_path: Path) -> None:
    model = tmp_path / "model"
    line = ["--model", str(model), "--data", "generated", "--suite", "gsm8k,math"]
    assert config_of(*line)["methods"]["ddosp"]["label"] == "DDOSP (uniform schedule)"
    model.mkdir()
    given(model / "schedules", model=str(model))
    ddosp = config_of(*line)["methods"]["ddosp"]
    assert ddosp["label"] == "DDOSP (uniform schedule)"
    assert ddosp["suites"]["gsm8k"]["options"]["schedule"] == str(model / "schedules" / "gsm8k.json")
    assert ddosp["suites"]["math"]["options"]["schedule"] is None


def test_a_given_schedule_is_used_and_its_content_is_part_of_the_configuration(tmp_path: Path) -> None:
    same = config_of("--schedules", str(given(tmp_path / "a")))
    option = same["methods"]["ddosp"]["suites"]["gsm8k"]["options"]["schedule"]
    assert option == str(tmp_path / "a" / "gsm8k.json") and same["methods"]["ddosp"]["label"] == "DDOSP"
    quotas = json.loads((SHIPPED / "gsm8k.json").read_text())["quotas"]
    changed = config_of("--schedules", str(given(tmp_path / "a", quotas=[quotas[0][::-1]])))
    assert config_hash(convert(changed, RunConfig)) != config_hash(convert(same, RunConfig))


def test_suites_that_the_folder_does_not_hold_keep_the_shipped_schedule(tmp_path: Path) -> None:
    suites = config_of("--suite", "gsm8k,math", "--schedules", str(given(tmp_path)))["methods"]["ddosp"]["suites"]
    assert suites["gsm8k"]["options"]["schedule"] == str(tmp_path / "gsm8k.json")
    assert suites["math"]["options"]["schedule"] == "nano/math"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"suite": "math"}, "made for suite math, not for suite gsm8k"),
        ({"gen_length": 64}, "made for gen_length 64, not for gen_length 48"),
        ({"block_length": 16}, "made for block_length 16, not for block_length 48"),
        ({"steps": 12}, "made for steps 12, not for steps 24"),
        ({"logits_eos_inf": True}, "made for logits_eos_inf True, not for logits_eos_inf False"),
        ({"confidence_eos_eot_inf": True}, "made for confidence_eos_eot_inf True, not for confidence_eos"),
        ({"weights": {"model.safetensors": "0" * 64}}, "made for model nano with other weights, not for model nano"),
        ({"model": "x", "weights": {}}, "made for model x, not for model nano"),
        ({"model": "x", "weights": {"x": ""}, "steps": 6}, "for model x, steps 6, not for model nano, steps 24"),
    ],
)
def test_a_schedule_made_for_something_else_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], named: str
) -> None:
    line = ["--suite", "gsm8k", "--methods", "ddosp", "--schedules", str(given(tmp_path, **changes))]
    error = refused(main, [*line, "--out", str(tmp_path / "run")], capsys)
    assert named in error and error.startswith("error: schedule ")
    assert "python harness/schedule.py --model nano --suite gsm8k --steps 24 --gen-length 48" in error
    assert not (tmp_path / "run").exists()


def test_a_suite_decoded_without_eos_takes_a_schedule_made_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"gen_length": 48, "options": {"logits_eos_inf": True}}
    monkeypatch.setattr(resolving, "settings_for", lambda *_: usual)
    line = ("--suite", "humaneval", "--model", "someone/llada", "--data", "generated", "--schedules", str(tmp_path))
    changes = {"suite": "humaneval", "model": "someone/llada", "weights": {}}
    for logits_eos_inf in (True, False):
        given(tmp_path, **changes, logits_eos_inf=logits_eos_inf)
        (tmp_path / "gsm8k.json").rename(tmp_path / "humaneval.json")
        if logits_eos_inf:
            assert config_of(*line)["methods"]["ddosp"]["label"] == "DDOSP"
        else:
            with pytest.raises(UserError, match="made for logits_eos_inf False, not for logits_eos_inf True"):
                config_of(*line)


def test_the_command_names_an_option_where_it_is_not_the_suites_own() -> None:
    lengths = {"gen_length": 512, "block_length": 512, "steps": 256}
    own, suite = Purpose("someone/llada", "humaneval", **lengths, logits_eos_inf=True), SUITES["humaneval"]
    assert "eos" not in own.command(suite, generated=False)
    assert "--no-logits-eos-inf" in Purpose("someone/llada", "humaneval", **lengths).command(suite, generated=False)
    assert "--logits-eos-inf" in own.command(suite, generated=True)


def test_the_same_weights_under_another_name_are_the_same_model(tmp_path: Path) -> None:
    folder = given(tmp_path, model="elsewhere/nano")
    assert config_of("--schedules", str(folder))["methods"]["ddosp"]["label"] == "DDOSP"


def test_a_hub_id_is_compared_by_its_name(tmp_path: Path) -> None:
    line = ["--model", "someone/llada", "--data", "generated", "--schedules", str(tmp_path)]
    given(tmp_path, model="someone/llada")
    assert config_of(*line)["methods"]["ddosp"]["label"] == "DDOSP"
    given(tmp_path)
    with pytest.raises(UserError, match=r"model nano, not for model someone/llada.* --responses generated$"):
        config_of(*line)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"quotas": [[24, 24]]}, "block 1: 2 steps"),
        ({"quotas": [[2] * 24, [2] * 24]}, "2 blocks, not 1"),
        ({"quotas": [2] * 24}, "per block"),
        ({"weights": None}, "cannot be read"),
    ],
)
def test_a_schedule_that_does_not_add_up_is_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        config_of("--schedules", str(given(tmp_path, **changes)))


def test_a_folder_of_which_nothing_would_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds none of gsm8k\.json"):
        config_of("--schedules", str(tmp_path))
    with pytest.raises(UserError, match="for ddosp, which --methods does not name"):
        config_of("--schedules", str(given(tmp_path)), "--methods", "llada")
