"""Chat templates as published ones are: they think, or write the date, unless they are told not to."""

from typing import Any

import pytest

from model_wrappers import Backbone
from model_wrappers.chat import encode_messages, encode_question, render

ASK = [{"role": "user", "content": "How many?"}]
# The switch of Qwen3's template, and the two ways in which Llama 3's come by a date.
THINKING = (
    "{{ messages[0].content }}:"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
SWITCH = "{{ messages[0].content }}:{% if thinking is not defined or thinking %}<think>{% endif %}"
DATED = (
    "{% if date_string is defined %}{{ date_string }}{% else %}{{ strftime_now('%d %b %Y') }}{% endif %} "
    "{{ messages[0].content }}"
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


def test_a_date_that_cannot_be_fixed_is_refused(nano: Backbone) -> None:
    with pytest.raises(ValueError, match="writes a date that changes"):
        render(nano.text_tokenizer(), ASK, chat_template="{{ strftime_now(style) }} {{ messages[0].content }}")


def test_an_argument_that_the_template_does_not_read_is_refused(nano: Backbone) -> None:
    tokenizer = nano.text_tokenizer()
    written = "{% generation %}{{ tone }} {{ messages[0].content }}{% endgeneration %}"
    assert render(tokenizer, ASK, chat_template=written, tone="kind").startswith("kind")
    assert render(tokenizer, ASK, enable_thinking=False) == render(tokenizer, ASK)
    with pytest.raises(ValueError, match="does not read enable_thinkin"):
        render(tokenizer, ASK, enable_thinkin=True)
    with pytest.raises(ValueError, match="the chat template fails"):
        render(tokenizer, ASK, chat_template="{% if %}")


def test_the_shipped_template_knows_neither(nano: Backbone) -> None:
    tokenizer = nano.text_tokenizer()
    plain = tokenizer.apply_chat_template(ASK, add_generation_prompt=True, tokenize=False)
    assert encode_question(tokenizer, "How many?") == encode_messages(tokenizer, ASK)
    assert render(tokenizer, ASK) == plain


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"chat_template": 5}, "chat_template must be text, not 5"),
        ({"chat_template": "{{ messages[0].content.index('zzz') }}"}, "chat template of .* fails: substring not found"),
        ({"messages": []}, "chat template of .* fails"),
        *(({name: 5}, f"does not read {name}") for name in ("max_length", "padding", "tokenize", "tools")),
        ({"enable_thinking": True}, "does not read enable_thinking"),
    ],
)
def test_arguments_that_no_template_takes_are_refused(nano: Backbone, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        encode_messages(nano.text_tokenizer(), [{"role": "user", "content": "How many?"}], **arguments)
