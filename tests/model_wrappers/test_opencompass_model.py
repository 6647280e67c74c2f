"""The OpenCompass adapter: chat turns in, text out, one response at a time."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from mmengine.config import Config
from opencompass.datasets.base import BaseDataset
from opencompass.openicl.icl_inferencer import GenInferencer, PPLInferencer
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import ZeroRetriever

from harness.cli import CONFIGS
from model_wrappers import Backbone, Decoded
from model_wrappers import decode as api_decode
from model_wrappers.chat import content_length, response_text
from model_wrappers.costs import hash_of
from model_wrappers.opencompass_model import DiffusionModel, encode_chat


def test_a_conversation_becomes_the_chat_template(nano: Backbone) -> None:
    said = (("HUMAN", "Copy [ cat ]"), ("BOT", "[ cat ]"), ("HUMAN", "Copy [ dog ]"))
    turns = [{"role": role, "prompt": text} for role, text in said]
    assert (
        nano.text_tokenizer().decode(encode_chat(nano, turns))
        == "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nCopy [ cat ]<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[ cat ]<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nCopy [ dog ]<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_responses_are_texts_of_what_is_decoded(nano: Backbone) -> None:
    model = DiffusionModel(nano, "fef", {"steps": 1}, gen_length=16)
    questions = ["Copy [ cat, dog, owl ]", "Copy [ owl ]"]
    out = model.respond(encode_chat(nano, questions[1]), seed=0)
    texts = model.generate_from_template(questions, max_out_len=16)
    assert len(texts) == 2 and texts[1] == response_text(nano, out.tokens) and len(out.tokens) == 16


def test_a_response_that_took_a_compilation_is_decoded_again(
    nano: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Decoded] = []
    graphs = iter([3, 4, 4, 4])  # before and after each response: the first one compiled a graph
    monkeypatch.setattr(Backbone, "graphs", property(lambda self: next(graphs)))

    def decode(*arguments: Any, **options: Any) -> Decoded:
        decoded.append(api_decode(*arguments, **options))
        return decoded[-1]

    monkeypatch.setattr("model_wrappers.text_model.decode", decode)
    model = DiffusionModel(nano, "fef", {"steps": 1}, gen_length=8)
    reported = [
        model.respond(encode_chat(nano, text), seed=0) for text in ("Copy [ cat ]", "Copy [ owl ]")
    ]
    assert len(decoded) == 3 and reported[0] is decoded[1] and reported[1] is decoded[2]


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"gen_lenght": 32}, "unknown keyword 'gen_lenght'.*did you mean gen_length"),
        ({"gen_steps": 4}, "unknown keyword 'gen_steps'.*valid: .*steps"),
        (
            {"generation_kwargs": {"temperature": 1.0, "min_p": 0.5}},
            "has min_p=0.5, and decoders here take",
        ),
        ({"gen_length": 10, "block_length": 4}, "divide"),
        ({"generation_kwargs": {"do_sample": True}}, "do_sample needs a temperature above 0"),
        ({"dtype": "bfloat16", "reads_at": 0}, "dtype, reads_at: the model is loaded already"),
    ],
)
def test_what_it_does_not_know_is_refused_when_the_model_is_built(
    nano: Backbone, keywords: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        DiffusionModel(nano, "fef", **keywords)


def test_every_model_file_has_four_decoders_that_the_wrapper_takes(nano: Backbone) -> None:
    files = sorted(
        path for path in (CONFIGS / "models").glob("[!_]*.py") if path.stem != "nano_smoke"
    )
    assert len(files) == 6
    for path in files:
        models = Config.fromfile(str(path))["models"]
        names = [each["abbr"].removeprefix(f"{path.stem}-") for each in models]
        published = ["dream"] if path.stem.startswith("dream") else []
        assert names == [*published, "llada", "fef-2", "two-stream", "threshold"]
        for each in models:
            DiffusionModel(**({**each} | {"path": nano}))


def test_the_smoke_model_file_has_one_decoder_with_short_responses(nano: Backbone) -> None:
    (model,) = Config.fromfile(str(CONFIGS / "models" / "nano_smoke.py"))["models"]
    assert DiffusionModel(**({**model} | {"path": nano})).gen_length == 48


def test_truncation_is_of_the_generation_settings_or_a_keyword(nano: Backbone) -> None:
    settings = {"temperature": 1.0, "top_p": 0.9, "top_k": -1}
    model = DiffusionModel(nano, "threshold", generation_kwargs=settings)
    assert model.options == {"top_p": 0.9} and model.temperature == 1.0
    assert DiffusionModel(nano, "threshold", top_p=0.5, top_k=0).options == {"top_p": 0.5}
    with pytest.raises(ValueError, match=r"top_p=1\.5 for threshold must be"):
        DiffusionModel(nano, "threshold", generation_kwargs=settings | {"top_p": 1.5})


def test_options_may_be_keywords_and_opencompass_own_keys_are_its_own(nano: Backbone) -> None:
    opencompass = {"abbr": "x", "type": "y", "run_cfg": {"num_gpus": 0}, "batch_size": 4}
    model = DiffusionModel(nano, "llada", steps=4, stop_at_eos=True, gen_length=8, **opencompass)
    assert model.options == {"steps": 4, "stop_at_eos": True} and model.gen_length == 8
    sampled = DiffusionModel(
        nano, "llada", generation_kwargs={"temperature": 0.7, "do_sample": True}
    )
    greedy = DiffusionModel(nano, "llada", temperature=0.7, generation_kwargs={"do_sample": False})
    assert (sampled.temperature, greedy.temperature) == (0.7, 0.0)


def test_the_length_is_opencompass_where_none_is_given(nano: Backbone) -> None:
    question = "How many?"
    model = DiffusionModel(nano, "llada", block_length=8)
    assert model.lengths(20) == (24, 8)  # rounded up to blocks; the text is cut at 20 tokens
    out = model.respond(
        encode_chat(nano, question), model._seed(encode_chat(nano, question)), max_out_len=20
    )
    (text,) = model.generate([question], max_out_len=20)
    whole = nano.text_tokenizer().decode(out.tokens[: min(20, content_length(nano, out.tokens))])
    assert len(out.tokens) == 24 and text == whole
    with pytest.raises(ValueError, match="is not known"):
        model.generate([question])


def test_prompts_of_one_call_are_decoded_at_once(
    nano: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = ["Copy [ cat, dog, owl ]", "Copy [ owl ]", "Copy [ cat ]"]
    model = DiffusionModel(nano, "fef", steps=1, gen_length=16)
    sizes: list[int] = []
    packed = nano.forward.packed
    monkeypatch.setattr(
        nano.forward, "packed", lambda calls: sizes.append(len(calls)) or packed(calls)
    )
    together = model.generate(questions)
    assert max(sizes) == 3
    assert together == [model.generate([question])[0] for question in questions]


DECODER = """
import dataclasses

from model_wrappers import register


@dataclasses.dataclass
class Options:
    token: int = 70


def fill(request, options: Options):
    request.x_1L[0, request.start :] = options.token


@register("fill-registered")
def registered(request, token=70):
    fill(request, Options(token))


llada = fill
"""
PRESET = """
from harness.methods.presets import Preset
from harness.plugins import register_preset

register_preset("fill-preset", Preset("Fill", "fill-registered", {"token": 72}, lengths={"gen_length": 4}))
register_preset("halved", Preset("Halved", "llada", tokens_per_step=2))
"""


@pytest.mark.parametrize("name", ["fill", "fill-registered", "llada"])
def test_a_decoder_of_ones_own_is_named_by_its_file(
    name: str, nano: Backbone, tmp_path: Path, registries: None
) -> None:
    (tmp_path / "mine.py").write_text(DECODER)
    model = DiffusionModel(
        nano, f"{tmp_path}/mine.py:{name}", token=71, gen_length=4, batch_padding=True, top_p=1
    )
    (text,) = model.generate(["How many?"], max_out_len=32, min_out_len=1)
    assert text == nano.text_tokenizer().decode([71] * 4)


def test_a_preset_of_ones_own_comes_with_its_options_and_lengths(
    nano: Backbone, tmp_path: Path, registries: None
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(DECODER + PRESET)
    model = DiffusionModel(nano, f"{path}:fill-preset")
    assert model.generate(["How many?"]) == [nano.text_tokenizer().decode([72] * 4)]
    changed = DiffusionModel(nano, f"{path}:fill-preset", token=73, gen_length=8)
    assert (changed.options, changed.gen_length) == ({"token": 73}, 8)
    with pytest.raises(ValueError, match=r"halved has tokens_per_step, .* give method='llada'"):
        DiffusionModel(nano, f"{path}:halved")
    with pytest.raises(ValueError, match=r"mine\.py has no method 'missing'"):
        DiffusionModel(nano, f"{path}:missing")


@pytest.mark.parametrize(
    ("name", "options"), [("fill-registered", {}), ("fill-preset", {"token": 72})]
)
def test_what_an_installed_package_registers_is_found_by_its_name(
    name: str,
    options: dict[str, int],
    nano: Backbone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    registries: None,
) -> None:
    (tmp_path / "my_package.py").write_text(DECODER + PRESET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    entry = EntryPoint("mine", "my_package", "fef_dllm_harness")
    monkeypatch.setattr("model_wrappers.decoders.entry_points", lambda group: [entry])
    assert DiffusionModel(nano, name, gen_length=4).options == options


def test_a_prompt_asked_again_gives_another_sample_and_the_same_two_in_another_model(
    nano: Backbone,
) -> None:
    twice = [
        DiffusionModel(nano, "llada", gen_length=16, temperature=1.0).generate(
            ["How many?"] * 2, max_out_len=16
        )
        for _ in range(2)
    ]
    assert twice[0] == twice[1] and twice[0][0] != twice[0][1]


def test_a_text_ends_before_a_stop_word(nano: Backbone) -> None:
    (whole,) = DiffusionModel(nano, "llada", gen_length=16).generate(["Copy [ cat, dog ]"])
    middle = whole[len(whole) // 2 :]
    assert middle
    (cut,) = DiffusionModel(nano, "llada", gen_length=16, stop_words=[middle]).generate(
        ["Copy [ cat, dog ]"]
    )
    (also,) = DiffusionModel(nano, "llada", gen_length=16).generate(
        ["Copy [ cat, dog ]"], stopping_criteria=[middle]
    )
    assert cut == also == whole[: whole.find(middle)]


def test_a_prompt_that_is_too_long_is_refused_or_loses_its_middle(nano: Backbone) -> None:
    question, whole_P = "Copy [ cat, dog, owl ]", encode_chat(nano, "Copy [ cat, dog, owl ]")
    with pytest.raises(ValueError, match="exceed the limit of 20 tokens"):
        DiffusionModel(nano, "llada", gen_length=8, max_seq_len=20).generate([question])
    model = DiffusionModel(nano, "llada", gen_length=8, max_seq_len=20, mode="mid")
    fitted_P = model.fitted(whole_P, 8)
    assert fitted_P.tolist() == [*whole_P[:6].tolist(), *whole_P[-6:].tolist()]


def test_the_device_is_said_where_no_gpu_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    model = DiffusionModel("nano", "llada", gen_length=8)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    assert model.backbone.device.type == where
    assert (
        where == "cuda"
        or "nano decodes on the CPU, as no GPU is visible" in capsys.readouterr().err
    )


def test_likelihoods_are_those_of_answers_after_what_is_only_read(nano: Backbone) -> None:
    model = DiffusionModel(nano, "llada", draws=16)
    text, answer = "Tom has 3 apples.", " He has 3 apples."
    (found,) = model.get_loglikelihood([text + answer], [answer])
    tokenizer = nano.text_tokenizer()
    whole = torch.tensor(tokenizer(text + answer).input_ids)
    read = len(tokenizer(text).input_ids)
    assert found == model.likelihood(whole[:read], whole[read:]).value
    (ppl,) = model.get_ppl([text + answer], mask_length=[read])
    assert ppl == pytest.approx(-found / (len(whole) - read))
    assert model.get_ppl_from_template([text])[0] > 0
    with pytest.raises(ValueError, match="does not end with its continuation"):
        model.get_loglikelihood([text], ["owl"])


class Choices(BaseDataset):
    """Two questions of two choices."""

    @staticmethod
    def load(**_: Any) -> DatasetDict:
        rows = Dataset.from_list(
            [{"question": f"Copy [ {word} ]", "answer": "A"} for word in ("cat", "owl")]
        )
        return DatasetDict({"train": rows, "test": rows})


def test_a_data_set_in_ppl_form_is_answered_by_the_likelier_choice(
    nano: Backbone, tmp_path: Path
) -> None:
    dataset = Choices(reader_cfg={"input_columns": ["question"], "output_column": "answer"})
    model = DiffusionModel(nano, "llada", draws=16)
    template = PromptTemplate({"A": "{question} A cat.", "B": "{question} zzz zzz zzz zzz"})
    inferencer = PPLInferencer(model, output_json_filepath=str(tmp_path))
    chosen = inferencer.inference(ZeroRetriever(dataset), prompt_template=template)
    expected = [
        min(
            "AB",
            key=lambda label: model.get_ppl([template.template[label].format(question=question)])[
                0
            ],
        )
        for question in ("Copy [ cat ]", "Copy [ owl ]")
    ]
    assert chosen == expected
    costs = [
        json.loads(line) for line in (tmp_path / "predictions.costs.jsonl").read_text().splitlines()
    ]
    assert [(line["label"], line["item"]) for line in costs] == [
        ("A", 0),
        ("A", 1),
        ("B", 0),
        ("B", 1),
    ]
    assert all(
        line["rows"] == 16 and line["forwards"] == 1 and line["seconds"] > 0 for line in costs
    )


def test_what_opencompass_asks_leaves_its_costs_beside_the_predictions(
    nano: Backbone, tmp_path: Path
) -> None:
    dataset = Choices(reader_cfg={"input_columns": ["question"], "output_column": "answer"})
    model = DiffusionModel(nano, "fef", steps=1, gen_length=16)
    for batch in (1, 2):
        inferencer = GenInferencer(
            model, max_out_len=16, batch_size=batch, output_json_filepath=str(tmp_path)
        )
        name = f"{batch}.json"
        texts = inferencer.inference(
            ZeroRetriever(dataset),
            prompt_template=PromptTemplate("{question}"),
            output_json_filename=name,
        )
        written = json.loads((tmp_path / name).read_text())
        costs = [
            json.loads(line)
            for line in (tmp_path / f"{batch}.costs.jsonl").read_text().splitlines()
        ]
        assert [line["item"] for line in costs] == [0, 1] and len(texts) == len(written) == 2
        for line, question in zip(costs, ("Copy [ cat ]", "Copy [ owl ]"), strict=True):
            out = model.respond(encode_chat(nano, question), seed=0)
            assert (
                line["tokens_hash"] == hash_of(out.tokens)
                and line["forwards"] == out.trace.forwards
            )
            assert (
                line["windows"] == [vars(window) for window in out.trace.windows]
                and line["seconds"] > 0
            )
            assert line.get("batch", 1) == batch
