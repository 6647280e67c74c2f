"""Every decoder on every family: none of them knows which it decodes with."""

from functools import partial
from typing import Any

import pytest
import torch
from fakes import WHOLE
from families import NAMES, tiny

from model_wrappers import METHODS, Backbone, decode

LENGTH = 16
CACHES = [method for method, decoder in METHODS.items() if decoder.takes("cache")]


class NeverMasks(Backbone):
    """A backbone that never predicts a mask: where LLaDA's choice leaves one, that is no failure of
    a decoder."""

    def logits(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super().logits(*args, **kwargs).index_fill(-1, torch.tensor([self.mask_id]), -30.0)

    def extend(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
        logits, cache = super().extend(*args, **kwargs)
        return logits.index_fill(-1, torch.tensor([self.mask_id]), -30.0), cache


@pytest.fixture(scope="module", params=NAMES)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    made = tiny(request.param, seed=4)
    return NeverMasks(made.family, made.model, None, made.name)


@pytest.mark.parametrize("block_length", [LENGTH, 4])
@pytest.mark.parametrize("method", WHOLE)
def test_every_decoder_fills_a_response(
    backbone: Backbone, method: str, block_length: int, prompt: torch.Tensor
) -> None:
    out = decode(backbone, prompt, method, gen_length=LENGTH, block_length=block_length)
    assert out.tokens.shape == (LENGTH,)
    assert backbone.mask_id not in out.tokens


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("method", CACHES)
def test_every_decoder_fills_it_with_a_cache(
    backbone: Backbone, method: str, cache: str, prompt: torch.Tensor
) -> None:
    out = decode(backbone, prompt, method, gen_length=LENGTH, block_length=4, cache=cache)
    assert backbone.mask_id not in out.tokens
    assert out.trace.cached_tokens > 0


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_step_on_a_cache_that_nothing_has_outdated_has_the_logits_of_the_whole(
    backbone: Backbone, cache: str, prompt: torch.Tensor
) -> None:
    """One token a block: every step is the first of its block, and a cache changes nothing."""
    run = partial(decode, backbone, prompt, "llada", gen_length=8, block_length=1)
    assert torch.equal(run(cache=cache).tokens, run().tokens)
