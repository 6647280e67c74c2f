"""Our Flash-dLLM against what the official code wrote on nano (goldens/flash.json, see
make_flash.py): the same tokens in as many steps."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from official_cases import nano_sha256, prompts

from model_wrappers import Backbone, decode

GOLDEN = json.loads((Path(__file__).parent / "goldens" / "flash.json").read_text(encoding="utf-8"))


def options_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Ours for the official arguments, which count in windows what we count in tokens."""
    window = settings["block_length"]
    tracked = settings["track_num"] * window
    return {
        "window": window,
        "threshold": GOLDEN["threshold"],
        "gamma": settings["gamma"],
        "tracked": None if tracked < 0 else tracked,
        "masked": settings["mask_num"] * window,
        "verify": settings["verify"],
        "tile": 128,
    }


def up_to_eos(tokens: torch.Tensor, eos_id: int) -> list[int]:
    """Tokens with EOS in the place of all after the first EOS."""
    listed: list[int] = tokens.tolist()
    if eos_id not in listed:
        return listed
    first = listed.index(eos_id)
    return listed[:first] + [eos_id] * (len(listed) - first)


def check(nano: Backbone, case: dict[str, Any], responses: list[dict[str, Any]]) -> None:
    assert GOLDEN["weights_sha256"] == nano_sha256(), "nano's weights are others than then"
    assert responses
    for official in responses:
        prompt_P = prompts(nano, official["suite"])[official["problem"]]
        length = len(official["tokens"])
        out = decode(nano, prompt_P, "flash", gen_length=length, **options_of(case["settings"]))
        assert up_to_eos(out.tokens, nano.eos_id) == official["tokens"]
        # A step drafts in one call, and verifies in another one if there is something to verify.
        assert out.trace.forwards - len(out.trace.windows) == official["steps"]


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_tokens_and_steps_of_one_problem_a_suite_are_the_official_ones(
    nano: Backbone, name: str
) -> None:
    case = GOLDEN["cases"][name]
    check(nano, case, [response for response in case["responses"] if response["problem"] == 0])


@pytest.mark.long
@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_all_tokens_and_steps_are_the_official_ones(nano: Backbone, name: str) -> None:
    case = GOLDEN["cases"][name]
    check(nano, case, case["responses"])
