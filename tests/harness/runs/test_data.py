"""Data files that would make nonsense prompts or judgements are refused before anything is
decoded."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_lines import resolved_run
from generated import write_suites
from transformers import PreTrainedTokenizerFast

from harness.errors import UserError
from harness.records.schema import item_seed
from harness.runs.loading import load
from harness.runs.problems import load_problems, prepare, prompts_of
from harness.suites.mbpp import FIRST_TEST_ROW
from harness.suites.registry import SUITES, drawn, suite_named, write_problems
from model_wrappers import load_backbone
from model_wrappers.backbones.registry import SHIPPED
from model_wrappers.costs import hash_of
from model_wrappers.opencompass_model import DiffusionModel

FILES = {suite: f"{suite}/test.jsonl" for suite in ("gsm8k", "lists")}
FILES["humaneval"] = "humaneval/human-eval-v2-20210705.jsonl"
Row = dict[str, Any]


def prepared(folder: Path, suite: str, content: str) -> None:
    """What a run does with a data file before it decodes."""
    write_suites(folder, "test", 3, [suite])
    (folder / "data" / FILES[suite]).write_text(content)
    spec = SUITES[suite]
    problems = load_problems(spec, spec.datasets(True, folder), 3)
    prepare(
        spec, problems, {"llada": DiffusionModel(load_backbone("nano"), "llada", gen_length=32)}
    )


def lines(*rows: Row) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


GOOD = {"question": "How many?", "answer": "2 and 2 is 4\n#### 4"}


def test_a_good_file_is_taken(tmp_path: Path) -> None:
    prepared(tmp_path, "gsm8k", lines(GOOD, GOOD))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no problems"),
        (lines({"answer": "#### 4"}), "no column question"),
        (lines({"question": "How many?"}), "column answer"),
        (
            lines(GOOD, {"question": None, "answer": "#### 4"}),
            "item 1: question must be text, not None",
        ),
        (lines({"question": 5, "answer": "#### 4"}), "item 0: question must be text, not 5"),
        (lines({"question": "  ", "answer": "#### 4"}), "item 0: question must be text"),
        (
            lines(GOOD, GOOD | {"answer": "4"}),
            r"item 1: the reference '4' is not in its suite's format",
        ),
        (
            lines(GOOD | {"question": "Fill <|mdm_mask|> in"}),
            r"item 0: .* holds the mask token <\|mdm_mask\|>",
        ),
        ("[1, 2]\n", "gsm8k"),
        ("{", "gsm8k"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        prepared(tmp_path, "gsm8k", content)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% for message in messages %}", "chat template .* fails"),
        ("{{ messages[7].content }}", "chat template .* fails"),
        ("{% for i in range(10**30) %}x{% endfor %}", "chat template .* fails"),
        ("{{ raise_exception('not so') }}", "chat template .* fails: not so"),
        ("{% for message in messages %}{{ message['text'] }}{% endfor %}", "empty prompt"),
    ],
)
def test_a_chat_template_that_fails_is_refused(template: str, says: str) -> None:
    model = DiffusionModel(load_backbone("nano"), "llada", gen_length=32)
    tokenizer = model.backbone.text_tokenizer()
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=says):
        model.generate(["How many?"])


def test_a_run_renders_the_template_with_what_its_configuration_has(tmp_path: Path) -> None:
    trained = [folder.name for folder in SHIPPED.values()]
    shutil.copytree(SHIPPED["nano"], model := tmp_path / "model", ignore=lambda *_: trained)
    (model / "chat_template.jinja").write_text("{{ mood }}: {{ messages[-1].content }}")
    line = (
        "--suite",
        "gsm8k",
        "--methods",
        "llada",
        "--limit",
        "1",
        "--model",
        str(model),
        "--data",
        "generated",
    )
    (job,), backbones = load(
        resolved_run(*line, "--chat-template-args", '{"mood": "calm"}'), tmp_path
    )
    assert backbones[str(model)].text_tokenizer().decode(job.prompts[0]).startswith("calm: ")


@pytest.mark.parametrize("change", ["template", "vocabulary"])
def test_models_that_encode_a_prompt_differently_are_refused(tmp_path: Path, change: str) -> None:
    write_suites(tmp_path, "test", 3, ["gsm8k"])
    gsm8k, models = SUITES["gsm8k"], {}
    for name in ("nano", "nano-fef"):
        models[name] = DiffusionModel(load_backbone(name), "llada", gen_length=32)
    tokenizer = models["nano-fef"].backbone.text_tokenizer()
    if change == "template":
        tokenizer.chat_template = f"Now. {tokenizer.chat_template}"
    else:
        tokenizer.add_tokens(["How many"])
    problems = load_problems(gsm8k, gsm8k.datasets(True, tmp_path), 3)
    with pytest.raises(UserError, match="nano and nano-fef encode the prompt differently"):
        prepare(gsm8k, problems, models)


def test_an_autoregressive_model_has_its_own_prompts_where_it_encodes_them_otherwise(
    tmp_path: Path,
) -> None:
    write_suites(tmp_path, "test", 2, ["gsm8k"])
    gsm8k, ar = SUITES["gsm8k"], DiffusionModel(load_backbone("nano-ar"), "ar", gen_length=16)
    models = {"ar": ar, "llada": DiffusionModel(load_backbone("nano"), "llada", gen_length=32)}
    tokenizer = ar.backbone.text_tokenizer()
    problems = load_problems(gsm8k, gsm8k.datasets(True, tmp_path), 2)
    assert prepare(gsm8k, problems, models).own_prompts == {}
    tokenizer.chat_template = f"Now. {tokenizer.chat_template}"
    job = prepare(gsm8k, problems, models, seeds=(0, 1))
    assert (
        job.prompt("llada", 3) is job.prompts[3]
        and len(job.prompts) == len(job.own_prompts["nano-ar"]) == 4
    )
    assert len(job.prompt("ar", 3)) > len(job.prompt("llada", 3))
    assert prompts_of(job)[1].prompt_hash == hash_of(job.prompt("llada", 1))


def test_a_configuration_that_asks_another_model_to_judge_is_refused(tmp_path: Path) -> None:
    write_suites(tmp_path, "test", 2, ["gsm8k"])
    gsm8k = SUITES["gsm8k"]
    (config,) = gsm8k.datasets(True, tmp_path)
    judged = {
        **config["eval_cfg"],
        "evaluator": {"type": "AccEvaluator", "llm_evaluator": {"judge_cfg": {}}},
    }
    with pytest.raises(UserError, match="suite gsm8k asks another model to judge"):
        load_problems(gsm8k, [{**config, "eval_cfg": judged}], 2)


def test_logits_that_are_not_finite_name_method_suite_and_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.runs.respond import respond

    write_suites(tmp_path, "test", 3, ["gsm8k"])
    backbone = load_backbone("nano")
    gsm8k = SUITES["gsm8k"]
    problems = load_problems(gsm8k, gsm8k.datasets(True, tmp_path), 3)
    job = prepare(gsm8k, problems, {"llada": DiffusionModel(backbone, "llada", gen_length=32)})
    logits: Callable[..., Any] = backbone.logits
    monkeypatch.setattr(
        backbone, "logits", lambda *given, **named: logits(*given, **named) * float("nan")
    )
    with pytest.raises(
        UserError, match="llada on gsm8k, item 2: the model's logits are not finite"
    ):
        respond(job, "llada", 2)


def test_an_evaluator_that_there_is_not_is_named_before_anything_is_decoded(tmp_path: Path) -> None:
    generator = replace(
        suite_named("gsm8k").generated, evaluation={"evaluator": {"type": "harness.Gsm8kEvaluatr"}}
    )
    suite = replace(suite_named("gsm8k"), generator=generator)
    write_problems(tmp_path, suite, drawn(suite, "generated", 2))
    with pytest.raises(
        UserError, match=r"suite gsm8k: there is no evaluator harness\.Gsm8kEvaluatr"
    ):
        load_problems(suite, suite.datasets(True, tmp_path), 2)


@pytest.mark.parametrize("suite", ["mbpp", "opencompass:mbpp_gen"])
def test_a_file_that_was_replaced_within_its_time_is_read_anew(suite: str, tmp_path: Path) -> None:
    """Unpacking and copying keep times, and the cache of datasets knows a file by its time."""
    path = tmp_path / "data" / "mbpp" / "mbpp.jsonl"
    texts = []
    for split in ("test", "dev"):
        write_suites(tmp_path, split, 3, ["mbpp"])
        os.utime(path, (1, 1))
        spec = suite_named(suite)
        (part,) = load_problems(spec, spec.datasets(False, tmp_path), 3)
        first = json.loads(path.read_text(encoding="utf-8").split("\n")[FIRST_TEST_ROW])
        assert part.rows["text"][0] == first["text"]
        texts.append(first["text"])
    assert texts[0] != texts[1]


def test_the_seed_of_an_item_is_the_one_that_records_were_made_with() -> None:
    assert item_seed(0, "gsm8k", 0) == 206750317586755
