"""Chat templates as published ones are: they think, or write the date, unless they are told not
to."""

import copy
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from model_wrappers import Backbone, load_backbone
from model_wrappers.chat import (
    encode_messages,
    encode_plain,
    encode_template,
    render,
    response_text,
    text_ids,
)
from model_wrappers.options import note

ASK = [{"role": "user", "content": "How many?"}]
# The switch of Qwen3's template, and the two ways in which Llama 3's come by a date.
THINKING = (
    "{{ messages[0].content }}:{% if enable_thinking is defined and enable_thinking is false"
    " %}<think>\n\n</think>\n\n{% endif %}"
)
SWITCH = "{{ messages[0].content }}:{% if thinking is not defined or thinking %}<think>{% endif %}"
DATED = (
    "{% if date_string is defined %}{{ date_string }}{% else %}{{ strftime_now('%d %b %Y') }}{%"
    " endif %} {{ messages[0].content }}"
)


@pytest.mark.parametrize(
    ("template", "given", "text"),
    [
        (THINKING, {}, "How many?:<think>\n\n</think>\n\n"),
        (THINKING, {"enable_thinking": True}, "How many?:"),
        (SWITCH, {}, "How many?:"),
        (SWITCH, {"thinking": True}, "How many?:<think>"),
        (DATED, {}, "26 Jul 2024 How many?"),
        (DATED, {"date_string": "1 Jan 2020"}, "1 Jan 2020 How many?"),
    ],
)
def test_a_template_does_not_think_or_look_at_the_clock_unless_told(
    template: str, given: dict[str, Any], text: str, nano: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nano.text_tokenizer(), "chat_template", template)
    assert render(nano.text_tokenizer(), ASK, **given) == text


def test_what_a_template_does_not_read_or_say_is_noted(
    nano: Backbone, capsys: pytest.CaptureFixture[str]
) -> None:
    note.cache_clear()
    tokenizer = nano.text_tokenizer()
    assert render(tokenizer, ASK, enable_thinking=True, tone="kind") == render(tokenizer, ASK)
    printed = capsys.readouterr().err
    assert "does not read tone" in printed and "does not read enable_thinking" in printed
    stripped = "{% for m in messages %}{{ m.content.split('</think>')[-1].lower() }}|{% endfor %}"
    few_shot = [
        {"role": "assistant", "content": "<think>so</think>5"},
        {"role": "user", "content": "and now?"},
    ]
    assert render(tokenizer, few_shot, chat_template=stripped) == "5|and now?|"
    assert capsys.readouterr().err == ""
    assert render(tokenizer, ASK, chat_template=stripped) == "how many?|"
    assert "leaves out or changes the last message" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"chat_template": "{{ messages[0].content.index('zzz') }}"},
            "chat template of .* fails: substring not found",
        ),
        ({"chat_template": "{% if %}"}, "the chat template of .* fails"),
    ],
)
def test_a_template_that_fails_is_refused(
    nano: Backbone, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        encode_messages(
            nano.text_tokenizer(), [{"role": "user", "content": "How many?"}], **arguments
        )


@pytest.mark.parametrize("text", ["How many?", "a<|end|>", ""])
def test_what_a_tokenizer_appends_is_left_out_and_what_it_puts_first_stays(
    text: str, nano: Backbone
) -> None:
    """As T5's tokenizer, and some of LLaMA's, append EOS: after it a base model answers nothing."""
    tokenizer = copy.deepcopy(nano.text_tokenizer())
    bare = tokenizer(text, add_special_tokens=False).input_ids
    begin = tokenizer.convert_ids_to_tokens(5)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A {tokenizer.eos_token}",
        special_tokens=[(begin, 5), (tokenizer.eos_token, nano.eos_id)],
    )
    assert tokenizer(text).input_ids == [5, *bare, nano.eos_id]
    if text:
        assert text_ids(tokenizer, text) == [5, *bare]
        messages = [{"role": "user", "content": text}]
        assert encode_plain(tokenizer, messages)[-1] != nano.eos_id


def test_a_template_becomes_ids_with_a_mask_for_three_underscores(nano: Backbone) -> None:
    tokenizer = nano.text_tokenizer()
    ids = encode_template(nano, "It is ___, or ______.", 16)
    assert ids.shape == (16,) and int((ids == nano.mask_id).sum()) == 3
    filled = ids.clone()
    filled[ids == nano.mask_id] = torch.tensor(
        tokenizer(" 5 6 7", add_special_tokens=False).input_ids
    )
    assert response_text(nano, filled) == "It is 5, or 6 7."
    assert ids[-1] == nano.eos_id


@pytest.mark.parametrize(
    ("template", "says"), [("no hole", "must have a hole"), ("___ " * 9, "at most 8 .* has 10")]
)
def test_a_template_that_cannot_be_completed_is_refused(
    template: str, says: str, nano: Backbone
) -> None:
    with pytest.raises(ValueError, match=says):
        encode_template(nano, template, 8)


def test_a_model_without_a_mask_completes_nothing() -> None:
    with pytest.raises(ValueError, match="has no mask, so it completes no given response"):
        encode_template(load_backbone("nano-ar"), "It is ___.", 8)
