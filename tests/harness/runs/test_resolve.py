"""The command line resolved to a configuration, and everything that is refused before work
starts."""

import json
import re
from pathlib import Path

import pytest
from command_lines import config_of, resolved_run
from generated import write_suites
from msgspec.structs import replace

from harness.errors import UserError
from harness.records.schema import RunConfig
from harness.runs.folder import claim_folder
from harness.runs.models import read_models


def resolved(*line: str) -> RunConfig:
    return resolved_run(*line).config


def test_defaults_are_nano_on_its_generated_suites() -> None:
    config = config_of()
    assert list(config["suites"]) == ["gsm8k", "math", "humaneval", "mbpp"]
    assert list(config["methods"]) == ["llada", "llada/2", "fef-2", "fef-4"]
    assert config["data"] == "generated"
    both = {"base": "nano", "fef": "nano-fef"}
    assert config["models"] == {
        role: dict.fromkeys(config["suites"], name) for role, name in both.items()
    }


@pytest.mark.parametrize(
    ("given", "written"), [("generated:0", "generated"), ("generated-dev:007", "generated-dev:7")]
)
def test_generated_problems_have_one_name(given: str, written: str) -> None:
    assert config_of("--data", given)["data"] == written


def test_where_logits_stand_is_for_models_of_no_known_family() -> None:
    with pytest.raises(UserError, match="give --trust-remote-code, or leave it out"):
        resolved("--reads-at=-1")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("--device", "cuda"), "--device-map says where the models are: leave --device out"),
        (("--device", "cpu"), "--device-map says where the models are: leave --device out"),
        (("--graphs",), "--graphs are of models on one device, and --device-map spreads them"),
        (("--workers", "2"), "--device-map spreads a model over the GPUs of a machine, and each"),
        (("--batch", "2"), "--batch packs the calls of plain forwards, and --device-map makes"),
    ],
)
def test_what_does_not_go_with_a_device_map_is_refused(line: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        resolved("--device-map", "auto", *line)


def test_a_device_map_is_recorded_where_it_is_given() -> None:
    config = config_of("--device-map", "auto", "--untimed")
    assert config["device_map"] == "auto"
    assert "batch" not in config  # of more than 100 items others are decoded at once
    assert "device_map" not in config_of()


def test_chat_template_arguments_are_recorded_where_they_are_given() -> None:
    assert config_of("--chat-template-args", '{"enable_thinking": true}')["chat_template_args"] == {
        "enable_thinking": True
    }
    for none in ((), ("--chat-template-args", "{}")):
        assert "chat_template_args" not in config_of(*none)  # older records keep their hash


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("enable_thinking=true",), "must be a JSON object, such as '{\"enable_thinking\": true}'"),
        (("[1]",), "must be a JSON object"),
        (
            ('{"enable_thinking": true}', "--prompt", "plain"),
            "--prompt plain takes none: leave one out",
        ),
    ],
)
def test_chat_template_arguments_that_are_none_are_refused(
    line: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        resolved("--chat-template-args", *line)


def test_llada_8b_gets_lladas_own_settings(tmp_path: Path) -> None:
    write_suites(tmp_path, count=3)
    config = config_of(
        *("--model", "GSAI-ML/LLaDA-8B-Instruct", "--data", str(tmp_path)),
        *("--suite", "gsm8k,math500,humaneval,mbpp", "--methods", "llada,llada/2,fef-2"),
    )
    suites = config["methods"]["llada"]["suites"]
    assert suites["gsm8k"] == {"gen_length": 256, "block_length": 8, "options": {"steps": 256}}
    assert suites["humaneval"]["options"] == {"logits_eos_inf": True, "steps": 512}
    assert suites["mbpp"]["options"] == {"confidence_eos_eot_inf": True, "steps": 256}
    assert config["methods"]["llada/2"]["suites"]["math500"]["options"]["steps"] == 256
    fef = config["methods"]["fef-2"]["suites"]
    assert fef["gsm8k"] == {"gen_length": 256, "block_length": 256, "options": {"steps": 2}}
    # rows differ in the method alone
    assert fef["humaneval"]["options"] == {
        "logits_eos_inf": True,
        "steps": 2,
    }
    assert fef["mbpp"]["options"] == {"confidence_eos_eot_inf": True, "steps": 2}
    names = {
        name: suite["configuration"].partition("_")[2] for name, suite in config["suites"].items()
    }
    assert names["gsm8k"] == "gen_1d7fe4" and names["math500"] == "0shot_gen_11c4b5"
    assert names["humaneval"] == "gen_8e312c" and names["mbpp"] == "gen"


def test_without_a_trained_checkpoint_the_row_says_so() -> None:
    base = config_of("--model", "base=nano")["methods"]["fef-2"]
    assert base["label"] == "FeF-DLLM w/o train (step=2)" and base["role"] == "base"
    trained = config_of("--model", "base=nano,fef=elsewhere", "--data", "generated")["methods"][
        "fef-2"
    ]
    assert trained["label"] == "FeF-DLLM (step=2)" and trained["role"] == "fef"


def test_a_table_of_models_may_differ_by_suite(tmp_path: Path) -> None:
    table = tmp_path / "models.json"
    table.write_text(
        json.dumps({"base": "nano", "fef": {"gsm8k": "math-model", "default": "code-model"}})
    )
    assert read_models(str(table), ["gsm8k", "mbpp"])["fef"] == {
        "gsm8k": "math-model",
        "mbpp": "code-model",
    }
    table.write_text(
        json.dumps({"base": "nano", "fef": {"gms8k": "math-model", "default": "code-model"}})
    )
    with pytest.raises(UserError, match="names the suite gms8k; did you mean gsm8k"):
        read_models(str(table), ["gsm8k", "mbpp"])


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["--suite", "gsm9k"], "gsm8k"),
        (["--suite", "gsm8k,gsm8k"], "twice"),
        (["--methods", "fef-3"], "fef-2"),
        (["--model", "base=nano,teacher=x"], "control"),
        (["--model", "fef=nano"], "base"),
        (["--model", "base=nano,draft="], "must name a model"),
        (["--model", "missing.json"], "cannot read"),
        (["--model", "base=nano,garbage"], "each role once"),
        (["--limit", "0"], "at least 1"),
        (["--threads", "-1"], "--threads -1 must be at least 1"),
        (["--seed", "-1"], "--seed -1 must be whole numbers of at least 0"),
        (["--device", "meta"], "device meta is not supported; valid: cpu, cuda"),
        (["--device", "cpu:"], "device cpu: is not supported; valid: cpu, cuda"),
        (["--temperature", "-1"], "negative"),
        (["--gen-length", "48", "--block-length", "5"], "divide"),
        (["--data", "nowhere"], "missing"),
    ],
)
def test_bad_input_is_one_line_that_names_what_is_valid(line: list[str], named: str) -> None:
    with pytest.raises((UserError, ValueError), match=named) as caught:
        config_of(*line)
    assert "\n" not in str(caught.value)


def test_a_model_other_than_nano_needs_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPASS_DATA_CACHE", raising=False)
    for model, says in (
        ("nano_fef", "did you mean nano-fef"),
        ("qqq", "valid: nano, "),
    ):
        with pytest.raises(
            UserError, match=f"^--data FOLDER or .* is needed for {model}, .*; {says}"
        ):
            config_of("--model", model)


def test_the_model_of_long_problems_is_in_every_row_and_trained_for_all() -> None:
    config = config_of(
        "--model", "nano-long", "--suite", "gsm8k-long", "--methods", "llada,fef-2,fef-two-stream-1"
    )
    assert config["data"] == "generated" and set(config["models"]) == {"base", "fef"}
    assert {model for models in config["models"].values() for model in models.values()} == {
        "nano-long"
    }
    assert config["methods"]["fef-two-stream-1"]["label"] == "FeF-DLLM two-stream (step=1)"


def test_a_folder_is_begun_gone_on_with_or_refused(tmp_path: Path) -> None:
    config = resolved()
    (tmp_path / "log.txt").write_text("of a script")
    assert (
        claim_folder(tmp_path, config, resume=True)
        == claim_folder(tmp_path, config, resume=False)
        == tmp_path
    )
    (tmp_path / "items.jsonl").write_text("")
    with pytest.raises(UserError, match=r"has items\.jsonl and no run\.json"):
        claim_folder(tmp_path, config, resume=True)
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "config": config.to_json()}))
    assert claim_folder(tmp_path, config, resume=True) == tmp_path
    with pytest.raises(UserError, match="already holds a run"):
        claim_folder(tmp_path, config, resume=False)
    with pytest.raises(UserError, match=r"other settings: seed \(0 there, 1 now\)"):
        claim_folder(tmp_path, replace(config, seed=1), resume=True)
    with pytest.raises(UserError, match="--out"):
        claim_folder(None, config, resume=True)
