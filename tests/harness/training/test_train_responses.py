"""Training responses for DDOSP's profile: how they become ids."""

from __future__ import annotations

import pytest

from harness.errors import UserError
from harness.training.responses import encode, generated_exchanges
from model_wrappers import load_backbone


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
