"""Training responses for DDOSP's profile: the formats of a file, its bad lines, and how they become ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.suites import BOXED
from harness.train_responses import Exchange, encode, generated_exchanges, read_exchanges
from model_wrappers import load_backbone

GOOD = {"prompt": "Say hello.", "response": "hello"}


def lines_file(folder: Path, *rows: object) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_prompts_and_responses_are_taken_as_they_are(tmp_path: Path) -> None:
    path = lines_file(tmp_path, GOOD, GOOD, "{never read")
    assert read_exchanges(path, "mbpp", 2) == [Exchange("Say hello.", "hello")] * 2


def test_gsm8ks_own_lines_get_the_suites_prompt_and_lose_their_annotations(tmp_path: Path) -> None:
    path = lines_file(tmp_path, {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 24"})
    assert read_exchanges(path, "gsm8k", 1) == [Exchange("How many?" + BOXED, "48/2 = 24 clips.\n#### 24")]


def test_maths_own_lines_get_the_suites_prompt(tmp_path: Path) -> None:
    path = lines_file(tmp_path, {"problem": "Find $x$.", "solution": r"\boxed{1}", "level": "Level 1"})
    assert read_exchanges(path, "math", 1) == [Exchange("Find $x$." + BOXED, r"\boxed{1}")]


@pytest.mark.parametrize(
    "bad",
    [
        "{broken",
        "",
        "[]",
        "null",
        {"prompt": "only"},
        {"prompt": "x", "response": " "},
        {"prompt": "x", "response": 3},
        {"question": "x"},
        {"problem": "x", "solution": "of another suite"},
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, bad: object) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl, line 2: ") as caught:
        read_exchanges(lines_file(tmp_path, GOOD, bad, GOOD), "gsm8k", 3)
    assert "\n" not in str(caught.value)


def test_what_a_line_must_hold_is_named(tmp_path: Path) -> None:
    path = lines_file(tmp_path, {})
    with pytest.raises(UserError, match='"prompt" and "response" or "question" and "answer"'):
        read_exchanges(path, "gsm8k", 1)


def test_a_file_with_too_few_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 1 lines, fewer than --examples 2"):
        read_exchanges(lines_file(tmp_path, GOOD), "gsm8k", 2)
    with pytest.raises(UserError, match="cannot be read"):
        read_exchanges(tmp_path, "gsm8k", 1)


def test_responses_end_with_eot_and_are_padded_with_eos_or_cut() -> None:
    nano = load_backbone("nano")
    (exchange,) = generated_exchanges("lists", 1)
    ((prompt, response),) = encode(nano, [exchange], 32)
    text = response[: response.index(nano.eot_id)]
    assert nano.text_tokenizer().decode(text) == exchange.response
    assert set(response[len(text) + 1 :]) == {nano.eos_id} and len(response) == 32
    assert encode(nano, [exchange], 4) == [(prompt, response[:4])]
    with pytest.raises(UserError, match=r"training response 1: .* exceed the limit of nano, 4096 tokens"):
        encode(nano, [exchange], 4096)
