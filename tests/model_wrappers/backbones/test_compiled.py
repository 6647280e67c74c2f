"""A model through torch.compile: the same logits but for rounding, and its graphs counted.

A dense family and one of experts have their graphs compiled for this machine, which takes half a minute each; of the
others the graphs are captured and run as they are, and that is what depends on the family.
"""

from __future__ import annotations

import shutil
from functools import partial

import pytest
import torch
from families import NAMES, tiny

from model_wrappers import Backbone, decode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU"),
]
COMPILED = ("llada", "llada_moe")


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_tokens_are_those_of_the_plain_model(
    name: str, prompt: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name not in COMPILED:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    plain = tiny(name, 3)
    compiled = Backbone(plain.family, plain.model, None, "compiled", compiled=True)
    assert (plain.graphs, plain.compiled) == (0, False)
    before = compiled.graphs
    ids_BL = torch.randint(0, 38, (2, 12), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(compiled.logits(ids_BL), plain.logits(ids_BL), atol=1e-4, rtol=1e-4)
    assert compiled.graphs > before
    expected = decode(plain, prompt, gen_length=4, steps=1, verify="two-stream").tokens
    assert torch.equal(decode(compiled, prompt, gen_length=4, steps=1, verify="two-stream").tokens, expected)
