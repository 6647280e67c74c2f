"""The adapter of lm-evaluation-harness: requests in, texts and likelihoods out, costs in a file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.utils import make_table

from harness import cli
from harness.errors import UserError
from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.chat import encode_question, response_text
from model_wrappers.costs import hash_of
from model_wrappers.lm_eval_model import FefDllm
from model_wrappers.options import note

QUESTIONS = ["Copy [ cat, dog, owl ]", "Copy [ owl ]", "Copy [ cat ]"]


def generations(contexts: list[str], **settings: Any) -> list[Instance]:
    return [
        Instance("generate_until", {}, (context, settings), 0, ("copies", number, 1))
        for number, context in enumerate(contexts)
    ]


def choices(context: str, *continuations: str, doc_id: int = 0) -> list[Instance]:
    return [
        Instance("loglikelihood", {}, (context, each), number, ("animals", doc_id, 1))
        for number, each in enumerate(continuations)
    ]


def asked(model: FefDllm, question: str) -> str:
    return model.apply_chat_template([{"role": "user", "content": question}])


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_texts_are_those_of_the_same_prompts_decoded_alone(nano: Backbone, tmp_path: Path) -> None:
    model = FefDllm(
        nano,
        method="fef",
        steps=1,
        gen_length=16,
        batch_size="2",
        costs=str(tmp_path / "new" / "costs"),
    )
    texts = model.generate_until(
        generations([asked(model, each) for each in QUESTIONS], until=["never"], do_sample=False)
    )
    for text, question, line in zip(
        texts, QUESTIONS, lines(tmp_path / "new" / "costs"), strict=True
    ):
        prompt_P = torch.tensor(encode_question(nano.text_tokenizer(), question))
        out = decode(nano, prompt_P, "fef", steps=1, gen_length=16)
        assert text == response_text(nano, out.tokens) and line["tokens_hash"] == hash_of(
            out.tokens
        )
        assert line["forwards"] == out.trace.forwards and line["windows"] == [
            vars(each) for each in out.trace.windows
        ]
        assert (line["task"], line["doc_id"], line["request"]) == (
            "copies",
            QUESTIONS.index(question),
            "generate_until",
        )


def test_a_device_map_counts_and_not_the_device_that_lm_eval_names() -> None:
    device = "cuda:0" if torch.cuda.is_available() else "cpu:0"
    model = FefDllm("nano", method="llada", device=device, device_map="auto")
    assert model.device == model.backbone.device


def test_a_text_ends_before_until_and_at_max_gen_toks(nano: Backbone) -> None:
    model = FefDllm(nano, method="llada", block_length=8)
    context = [asked(model, QUESTIONS[0])]
    (whole,) = model.generate_until(generations(context, max_gen_toks=16))
    middle = whole[len(whole) // 2 :]
    (cut,) = model.generate_until(generations(context, max_new_tokens=16, until=middle))
    assert middle and cut == whole[: whole.find(middle)]
    eight, four = (
        model.generate_until(generations(context, max_gen_toks=most))[0] for most in (8, 4)
    )
    # decoded in a block of 8, cut at 4 tokens
    assert eight.startswith(four) and len(four) < len(eight)


def test_sampling_is_the_tasks_and_repeats_differ(nano: Backbone) -> None:
    def twice(**settings: Any) -> list[str]:
        model = FefDllm(nano, method="llada", gen_length=16)
        return model.generate_until(generations([asked(model, "How many?")] * 2, **settings))

    once, again = (twice(do_sample=True, temperature=1.0) for _ in range(2))
    assert once == again and once[0] != once[1]
    greedy = twice(do_sample=False, temperature=1.0, top_p=0.9)
    assert greedy[0] == greedy[1]
    likeliest = twice(do_sample=True, temperature=1.0, top_k=1)
    assert likeliest == greedy


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"do_sample": True, "temperature": 1.0, "min_p": 0.9},
            "task copies, document 0: .* has min_p=0.9, and",
        ),
        ({"num_beams": 4}, "has num_beams=4"),
        ({"max_gen_toks": 16, "max_new_tokens": 32}, "must say one length"),
    ],
)
def test_settings_of_a_task_that_it_cannot_follow_are_refused(
    nano: Backbone, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        FefDllm(nano, method="llada", gen_length=16).generate_until(
            generations(["How many?"], **settings)
        )


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"stepz": 4}, "unknown keyword 'stepz' for FefDllm.*did you mean steps"),
        ({"repetition_penalty": 1.1}, "unknown keyword 'repetition_penalty'"),
    ],
)
def test_arguments_that_it_does_not_know_are_refused(
    nano: Backbone, keywords: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        FefDllm(nano, method="llada", **keywords)


def test_gen_length_wins_and_what_changes_nothing_is_passed_over(
    nano: Backbone, capsys: pytest.CaptureFixture[str]
) -> None:
    note.cache_clear()
    model = FefDllm(
        pretrained="nano",
        method="llada",
        gen_length=16,
        batch_size="auto:4",
        repetition_penalty=1.0,
    )
    context = [asked(model, QUESTIONS[0])]
    (expected,) = model.generate_until(generations(context))
    neutral: dict[str, Any] = {"until": [""], "repetition_penalty": 1.0, "top_p": 1, "num_beams": 1}
    for most in (4, 32):
        assert model.generate_until(generations(context, max_gen_toks=most, **neutral)) == [
            expected
        ]
    sampled = generations(context, do_sample=True, temperature=1.0, **neutral)
    assert len(model.generate_until(sampled)) == 1
    assert "responses have gen_length=16 tokens, not max_gen_toks=4" in capsys.readouterr().err


def test_answers_of_another_method_are_not_taken_from_a_cache(
    nano: Backbone, tmp_path: Path
) -> None:
    """lm-eval knows the answers in its file by their requests alone."""

    def texts(**settings: Any) -> list[str]:
        model = FefDllm(nano, gen_length=16, **settings)
        cached = CachingLM(model, str(tmp_path / "answers.db"))
        found: list[str] = cached.generate_until(generations([asked(model, QUESTIONS[0])]))
        cached.dbdict.close()
        return found

    first = texts(method="llada")
    assert texts(method="llada", batch_size=2, max_batch_size=4) == first
    for other in ({"method": "threshold"}, {"method": "llada", "block_length": 8}):
        with pytest.raises(ValueError, match=r"--use_cache: the file has answers of .*llada"):
            texts(**other)


def test_lm_evals_tables_have_their_heads() -> None:
    """With older versions of pytablewriter its columns are called A, B and C."""
    results = {"copies": {"alias": "copies", "acc,none": 0.5, "acc_stderr,none": "N/A"}}
    meta = {"versions": {"copies": 1}, "n-shot": {"copies": 0}, "higher_is_better": {}}
    head = make_table({"results": results, **meta}).partition("\n")[0]
    assert "Tasks" in head and "Metric" in head and "|A" not in head.replace(" ", "")


MINE = """
from harness.methods.presets import Preset
from harness.plugins import register_preset
from model_wrappers import register


@register("fill")
def filled(request, token=70):
    request.x_1L[0, request.start :] = token


register_preset("fill-72", Preset("Fill", "fill", {"token": 72}, lengths={"gen_length": 4}))
"""


@pytest.mark.parametrize(
    ("method", "token"),
    [("fill,token=71,gen_length=4", 71), ("filled,gen_length=4", 70), ("fill-72", 72)],
)
def test_model_args_name_methods_of_a_file(
    method: str, token: int, nano: Backbone, tmp_path: Path, registries: None
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    model = FefDllm.create_from_arg_string(f"path=nano,method={tmp_path}/mine.py:{method}")
    assert model.generate_until(generations(["How many?"])) == [
        nano.text_tokenizer().decode([token] * 4)
    ]


def test_keywords_of_lm_evals_models_are_taken(nano: Backbone) -> None:
    names = {
        "max_length": 50,
        "tokenizer": nano.text_tokenizer().name_or_path,
        "torch_dtype": "float32",
    }
    neutral = {
        "parallelize": False,
        "revision": "main",
        "peft": None,
        "attn_implementation": "eager",
    }
    model = FefDllm("nano", method="llada", gen_length=8, enable_thinking=True, **names, **neutral)
    assert model.longest == 50 and model.chat_template_kwargs == {"enable_thinking": True}
    settings = {
        "use_cache": True,
        "early_stopping": False,
        "num_return_sequences": 1,
        "pad_token_id": 3,
    }
    more = {"no_repeat_ngram_size": 0, "min_new_tokens": 1}
    assert len(model.generate_until(generations(["Copy"], **settings, **more))) == 1


def test_a_model_that_decodes_no_batches_decodes_one_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note.cache_clear()
    backbone = load_backbone("nano")
    backbone.model.model.layers[0].mlp.act_fn = torch.nn.Tanh()
    changed = Backbone(backbone.family, backbone.model, backbone.tokenizer, "changed")
    model = FefDllm(changed, method="llada", gen_length=8, batch_size=4)
    assert len(model.generate_until(generations(["Copy", "How"]))) == 2
    assert "changed decodes one response at a time" in capsys.readouterr().err


def test_a_prompt_that_is_too_long_is_refused_by_its_document(nano: Backbone) -> None:
    model = FefDllm(nano, method="llada", gen_length=8, batch_size=2, max_seq_len=20)
    with pytest.raises(
        ValueError, match=r"task copies, document 1: prompt of .* exceed the limit of 20"
    ):
        model.generate_until(generations(["Copy", "Copy " * 20]))


def test_likelihoods_are_those_of_continuations_and_their_costs_are_kept(
    nano: Backbone, tmp_path: Path
) -> None:
    model = FefDllm(nano, method="llada", draws=16, costs=str(tmp_path / "costs"))
    context, written = "Tom has 3 apples. ", ["He has 3 apples.", "owl"]
    found = model.loglikelihood(choices(context, *written))
    for (value, greedy), continuation, line in zip(
        found, written, lines(tmp_path / "costs"), strict=True
    ):
        whole = nano.text_tokenizer()(context + continuation).input_ids
        # the space is the continuation's
        read = len(nano.text_tokenizer()(context.strip()).input_ids)
        own = model.likelihood(torch.tensor(whole[:read]), torch.tensor(whole[read:]))
        assert value == own.value and not greedy
        assert (line["rows"], line["forwards"]) == (16, 1) and line["doc_id"] == 0
    assert [line["choice"] for line in lines(tmp_path / "costs")] == [0, 1]


@pytest.mark.parametrize("name", ["nano", "nano-ar", "nano-block"])
def test_a_continuation_is_greedy_if_the_model_writes_it(name: str) -> None:
    backbone = load_backbone(name)
    model = FefDllm(backbone, method="ar" if name == "nano-ar" else "llada", draws=1)
    context = asked(model, "Copy [ cat ]")
    block = 1 if name == "nano" else backbone.blocks.length  # type: ignore[union-attr]
    prompt_P = torch.tensor(encode_question(backbone.text_tokenizer(), "Copy [ cat ]"))
    written = decode(backbone, prompt_P, model.decoder, gen_length=-(-4 // block) * block).tokens[
        :4
    ]
    text = str(backbone.text_tokenizer().decode(written))
    ((_, greedy),) = model.loglikelihood(choices(context, text))
    ((_, other),) = model.loglikelihood(choices(context, " owl"))
    assert greedy and not other


def test_an_empty_context_is_bos(nano: Backbone) -> None:
    model = FefDllm(nano, method="llada", draws=16)
    prompt_P, answer_A = model._pair("", "Tom has 3 apples.")
    assert prompt_P.tolist() == [nano.text_tokenizer().bos_token_id]
    assert nano.text_tokenizer().decode(answer_A) == "Tom has 3 apples."


def test_a_chat_template_writes_bos_once_and_a_prefix_stays_open(nano: Backbone) -> None:
    model = FefDllm(nano, method="llada")
    turns = [{"role": "user", "content": "Copy [ cat ]"}]
    assert model._ids(asked(model, "Copy [ cat ]")) == encode_question(
        nano.text_tokenizer(), "Copy [ cat ]"
    )
    begun = model.apply_chat_template(
        [*turns, {"role": "assistant", "content": "[ cat"}], add_generation_prompt=False
    )
    assert (
        begun.endswith("[ cat") and model.chat_template(True) == nano.text_tokenizer().chat_template
    )


def test_without_lm_eval_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install 'lm-eval"):
        cli.main(["lm-eval"])


TASKS = {
    "copies": (
        """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n"], do_sample: false}
metric_list: [{metric: exact_match}]
"""
    ),
    "animals": (
        """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
    ),
}
ROWS = {
    "copies": [{"question": each, "answer": each.removeprefix("Copy ")} for each in QUESTIONS],
    "animals": [{"question": "Tom has 3", "choices": ["apples", "owl"], "answer": 0}],
}


@pytest.mark.slow
def test_the_command_of_lm_eval_decodes_as_we_do(tmp_path: Path) -> None:
    for task, text in TASKS.items():
        data = tmp_path / f"{task}.jsonl"
        data.write_text("\n".join(map(json.dumps, ROWS[task])))
        head = (
            f"task: {task}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test:"
            f" {data}}}}}\ntest_split: test"
        )
        (tmp_path / f"{task}.yaml").write_text(head + text)
    command = [str(Path(sys.executable).with_name("fef-dllm")), "lm-eval", "--model", "fef-dllm"]
    command += [
        "--model_args",
        "path=nano-fef,method=fef,steps=1,gen_length=16,draws=16",
        "--tasks",
        "copies,animals",
    ]
    command += [
        "--include_path",
        str(tmp_path),
        "--batch_size",
        "2",
        "--apply_chat_template",
        "--log_samples",
    ]
    quiet = {
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [*command, "--output_path", "out"],
        cwd=tmp_path,
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (costs,) = (tmp_path / "out").glob("costs_*.jsonl")
    (samples,) = (tmp_path / "out").rglob("samples_copies*.jsonl")
    backbone = load_backbone("nano-fef")
    by_request = {(line["task"], line["doc_id"], line.get("choice")): line for line in lines(costs)}
    assert len(by_request) == 5
    for sample in lines(samples):
        prompt_P = torch.tensor(
            encode_question(backbone.text_tokenizer(), sample["doc"]["question"])
        )
        out, line = (
            decode(backbone, prompt_P, "fef", steps=1, gen_length=16),
            by_request["copies", sample["doc_id"], None],
        )
        assert sample["resps"] == [[response_text(backbone, out.tokens)]]
        assert line["tokens_hash"] == hash_of(out.tokens) and line["forwards"] == out.trace.forwards
    assert all(by_request["animals", 0, choice]["rows"] == 16 for choice in (0, 1))
    (results,) = (tmp_path / "out").rglob("results*.json")
    scores = json.loads(results.read_text())["results"]
    assert 0 <= scores["copies"]["exact_match,none"] <= 1 and scores["animals"]["acc,none"] in (
        0,
        1,
    )
