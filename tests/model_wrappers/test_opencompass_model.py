"""The OpenCompass adapter: chat turns in, text out, one response at a time."""

from typing import Any

import pytest
from fakes import tiny_llada

from model_wrappers import Backbone, Decoded
from model_wrappers import decode as api_decode
from model_wrappers.chat import response_text
from model_wrappers.opencompass_model import DiffusionModel, encode_chat


def test_a_conversation_becomes_the_chat_template(nano: Backbone) -> None:
    said = (("HUMAN", "Copy [ cat ]"), ("BOT", "[ cat ]"), ("HUMAN", "Copy [ dog ]"))
    turns = [{"role": role, "prompt": text} for role, text in said]
    assert nano.text_tokenizer().decode(encode_chat(nano, turns)) == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nCopy [ cat ]<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[ cat ]<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nCopy [ dog ]<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_responses_are_texts_of_what_is_decoded(nano: Backbone) -> None:
    model = DiffusionModel(nano, "fef", {"steps": 1}, gen_length=16)
    questions = ["Copy [ cat, dog, owl ]", "Copy [ owl ]"]
    out = model.respond(encode_chat(nano, questions[1]), seed=0)
    texts = model.generate_from_template(questions, max_out_len=999)
    assert len(texts) == 2 and texts[1] == response_text(nano, out.tokens) and len(out.tokens) == 16


def test_a_response_that_took_a_compilation_is_decoded_again(nano: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Decoded] = []
    graphs = iter([3, 4, 4, 4])  # before and after each response: the first one compiled a graph
    monkeypatch.setattr(Backbone, "graphs", property(lambda self: next(graphs)))

    def decode(*arguments: Any, **options: Any) -> Decoded:
        decoded.append(api_decode(*arguments, **options))
        return decoded[-1]

    monkeypatch.setattr("model_wrappers.opencompass_model.decode", decode)
    model = DiffusionModel(nano, "fef", {"steps": 1}, gen_length=8)
    reported = [model.respond(encode_chat(nano, text), seed=0) for text in ("Copy [ cat ]", "Copy [ owl ]")]
    assert len(decoded) == 3 and reported[0] is decoded[1] and reported[1] is decoded[2]


def test_bad_options_are_refused_when_the_model_is_built(nano: Backbone) -> None:
    with pytest.raises(ValueError, match="windw"):
        DiffusionModel(nano, "fef", {"windw": 4})
    with pytest.raises(ValueError, match="divide"):
        DiffusionModel(nano, "llada", gen_length=10, block_length=4)


def test_a_model_without_a_tokenizer_takes_no_text() -> None:
    with pytest.raises(ValueError, match="tokenizer"):
        DiffusionModel(tiny_llada(), gen_length=8).generate(["hello"])
