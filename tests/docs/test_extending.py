"""docs/extending.md works as it is written: its files, saved outside the repository, and its
commands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import ROOT

from harness.methods.presets import PRESETS
from harness.methods.settings import setting_of
from harness.plugins import load
from harness.records.files import read_prompts
from harness.records.store import read_run
from harness.run import main
from harness.sandbox.program import choose
from harness.suites.questions import judge_of
from harness.tune import spaces_of
from model_wrappers import decode, load_backbone
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.lm_eval_model import FefDllm
from model_wrappers.opencompass_model import DiffusionModel
from model_wrappers.text_model import TextModel

PAGE = ROOT / "docs" / "extending.md"
FILE = re.compile(r"`([\w.]+\.(?:py|jsonl))`:\n\n```\w+\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^python (harness/run\.py .*)$", re.MULTILINE)


@pytest.fixture
def outside(tmp_path: Path, registries: None) -> Path:
    """A folder with the files of the page."""
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def arguments(start: str, outside: Path) -> list[str]:
    """The arguments of the page's command that has this text, with its files where they are."""
    (found,) = [line for line in COMMAND.findall(PAGE.read_text(encoding="utf-8")) if start in line]
    return [word.replace("../", f"{outside}/") for word in shlex.split(found)[1:]]


def test_the_decoder_runs_with_its_options(outside: Path) -> None:
    out = outside / "run"
    assert main([*arguments("left-to-right(", outside), "--limit", "1", "--out", str(out)]) == 0
    run = read_run(out)
    forwards = run.items.set_index("method")["forwards"]
    assert forwards["left-to-right(tokens=2)"] * 2 == forwards["llada"]
    assert "| Left to right (tokens=2)" in (out / "tables" / "main.md").read_text()


def test_the_decoder_is_found_by_its_file_in_opencompass_and_lm_eval(outside: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").replace("../", f"{outside}/")
    (block,) = re.findall(r"```python\n(models = .*?)```", text, re.DOTALL)
    configuration: dict[str, Any] = {}
    exec(block, configuration)
    (keywords,) = configuration["models"]
    (arguments,) = re.findall(r"--model_args (\S+)", text)
    models: list[TextModel] = [
        DiffusionModel(**keywords),
        FefDllm.create_from_arg_string(arguments),
    ]
    assert [model.options for model in models] == [{"tokens": 2}] * 2
    assert [model.decoder.label for model in models] == ["Left to right"] * 2


@pytest.mark.parametrize(("start", "calls"), [("margin(", (1, 96)), ("look(", (2, 96))])
def test_the_rule_and_the_drafting_decoder_run(
    outside: Path, start: str, calls: tuple[int, int]
) -> None:
    out = outside / "run"
    assert main([*arguments(start, outside), "--limit", "1", "--untimed", "--out", str(out)]) == 0
    run = read_run(out)
    own = run.items[run.items["method"] != "llada"]
    assert own["forwards"].between(*calls).all() and own["method"].str.startswith(start[:-1]).all()
    if start == "look(":
        committed = run.windows["committed"].sum()
        assert committed == 48 and (run.windows["accepted"] <= run.windows["proposed"]).all()


def test_the_rule_is_tuned_over_the_values_that_are_given(outside: Path) -> None:
    (given,) = re.findall(r'--decoders "(.*?)"', PAGE.read_text(encoding="utf-8"))
    spaces = spaces_of(given.replace("../", f"{outside}/"))
    assert list(spaces) == ["llada", "threshold", "margin"] and spaces["margin"].values == {
        "low": (0.1, 0.3)
    }


@pytest.mark.slow
def test_the_suites_run(outside: Path) -> None:
    for start, suite in (("judge=number", "mine"), ("sums.py", "sums")):
        out = outside / suite
        assert main([*arguments(start, outside), "--limit", "1", "--out", str(out)]) == 0
        assert set(read_run(out).items["suite"]) >= {suite}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "prompt", "gold"),
    [
        ("animals=", "\nB. owl\n", "B"),
        ("programs=", "add(a, b)", "assert add(1, 2) == 3\nassert add(-1, 1) == 0"),
        ("holes=", "Anna has 2 apples", "First, 2 + 3 = 5. The answer is 5."),
    ],
)
def test_choices_programs_and_holes_run_and_are_judged(
    outside: Path, start: str, prompt: str, gold: str
) -> None:
    if start == "programs=" and choose().sandbox is None:
        pytest.skip("no sandbox works here")
    out = outside / "run"
    assert main([*arguments(start, outside), "--untimed", "--trace", "--out", str(out)]) == 0
    items = read_run(out).items
    assert len(items) == 4 and items["correct"].notna().all() and items["gold"].iloc[0] == gold
    assert prompt in next(iter(read_prompts(out).values()))


def test_the_preset_is_one_with_its_own_block_length(outside: Path) -> None:
    load(str(outside / "preset.py"))
    setting = setting_of(PRESETS["threshold-careful"], "gsm8k", {"gen_length": 48})
    assert (setting.block_length, setting.options) == (16, {"tau": 0.99})


def test_the_judge_is_a_function_of_response_and_answer(outside: Path) -> None:
    right = judge_of(f"{outside / 'judge.py'}:right")
    assert right("It is 5 .", "5") and not right("It is 55", "5")


def test_a_checkpoint_of_the_family_loads_and_decodes(outside: Path) -> None:
    load(str(outside / "qwen.py"))
    model = FAMILIES["masked_qwen2"].imported().model
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
    }
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = model.config_class(vocab_size=40, mask_token_id=39, eos_token_id=38, **sizes, **heads)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model(config).save_pretrained(outside / "checkpoint")
    backbone = load_backbone(outside / "checkpoint")
    ids_1L = torch.tensor([[5, 1, 39, 39, 7, 39]])
    other_1L = ids_1L.clone()
    other_1L[0, -1] = 3
    # it looks ahead
    assert not torch.allclose(backbone.logits(ids_1L)[0, 0], backbone.logits(other_1L)[0, 0])
    assert not (decode(backbone, torch.tensor([3, 14]), "fef", gen_length=8).tokens == 39).any()


@pytest.mark.slow
def test_the_python_of_the_page_runs(outside: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = next(block for block in blocks if "import harness" in block)
    code = (
        code.replace("limit=2", f"limit=1, out={str(outside / 'run')!r}")
        + "print(run.summary.to_string())\n"
    )
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    line = [sys.executable, "-c", code]
    done = subprocess.run(
        line, cwd=outside, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Left to right" in done.stdout or "left-to-right" in done.stdout
