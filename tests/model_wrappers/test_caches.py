"""Caches: what they push and read, what their logits are, and that they change no decoder where
they cannot."""

import pytest
import torch
from fakes import logits_under, tiny_llada

from model_wrappers import Backbone, decode
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.caches import make_cache

ROW = [3, 14, 39, 39, 9, 39, 39, 26, 39, 39]  # 39 is the tiny models' mask
START, END = 4, 8
CACHED = ("prefix", "dual")


def hidden_keys_logits(
    backbone: Backbone, first: list[int], now: list[int], piece: range, read: list[int]
) -> torch.Tensor:
    """Logits of a piece of `now` on the keys and values of `first`, those of the piece hidden:
    without a cache."""
    length = len(first)
    visible = torch.zeros(length + len(piece), length + len(piece), dtype=torch.bool)
    visible[:length, :length] = True
    visible[length:] = True
    visible[length:, list(piece)] = False
    if piece.stop < length:
        visible[length:, piece.stop : length] = True
    logits_LV = logits_under(
        backbone, [*first, *(now[at] for at in piece)], [*range(length), *piece], visible
    )
    return logits_LV[[length + at - piece.start for at in read]]


@pytest.mark.parametrize(
    ("name", "piece"), [("prefix", range(START, len(ROW))), ("dual", range(START, END))]
)
def test_a_later_step_reads_the_keys_and_values_of_the_first(
    tiny: Backbone, name: str, piece: range
) -> None:
    ledger = Ledger(tiny)
    cache = make_cache(name, ledger, len(ROW))
    cache.begin_block(START, END)
    cache.logits(torch.tensor([ROW]), torch.tensor([2, 5]))
    now = [*ROW[:5], 11, *ROW[6:]]
    got_NV = cache.logits(torch.tensor([now]), torch.tensor([6, 7]))
    torch.testing.assert_close(
        got_NV, hidden_keys_logits(tiny, ROW, now, piece, [6, 7]), atol=1e-5, rtol=1e-4
    )
    assert ledger.tokens == len(ROW) + len(piece) and ledger.cached == len(ROW) - len(piece)


@pytest.mark.parametrize("name", CACHED)
def test_later_steps_do_not_depend_on_how_many_there_were(tiny: Backbone, name: str) -> None:
    now = torch.tensor([[*ROW[:5], 11, *ROW[6:]]])
    logits = []
    for between in (0, 3):
        cache = make_cache(name, Ledger(tiny), len(ROW))
        cache.begin_block(START, END)
        cache.logits(torch.tensor([ROW]), torch.tensor([5]))
        for token in range(between):
            cache.logits(torch.tensor([[*ROW[:5], token, *ROW[6:]]]), torch.tensor([6]))
        logits.append(cache.logits(now, torch.tensor([6, 7])))
    assert torch.equal(*logits)


@pytest.mark.parametrize("name", ["none", *CACHED])
def test_the_first_step_of_a_block_is_a_plain_forward(tiny: Backbone, name: str) -> None:
    cache = make_cache(name, Ledger(tiny), len(ROW))
    cache.begin_block(START, END)
    ids, read = torch.tensor([ROW]), torch.tensor([2, 5, 6])
    torch.testing.assert_close(cache.logits(ids, read), tiny.logits(ids, positions=read)[0])


@pytest.mark.parametrize(
    ("cache", "later"), [("prefix", lambda left: left), ("dual", lambda left: 4)]
)
def test_tokens_of_a_step_are_those_of_the_paper(
    prompt: torch.Tensor, cache: str, later: object
) -> None:
    """The whole sequence at a block's first step; then the block and all after it, or the block
    alone."""
    assert callable(later)
    trace = decode(tiny_llada(), prompt, "llada", gen_length=16, block_length=4, cache=cache).trace
    length = len(prompt) + 16
    assert trace.token_forwards == sum(length + 3 * later(left) for left in (16, 12, 8, 4))
    assert trace.token_forwards + trace.cached_tokens == trace.forwards * length
