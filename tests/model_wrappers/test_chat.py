"""Chat templates as published ones are: they think, or write the date, unless they are told not
to."""

from typing import Any

import pytest

from model_wrappers import Backbone
from model_wrappers.chat import encode_messages, render
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
    assert "leaves out or changes what the user says last" in capsys.readouterr().err


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
