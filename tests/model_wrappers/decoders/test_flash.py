"""Flash-dLLM: on one layer, where keys and values depend on no other token, its two calls give what
whole forwards give; what its views see. Its tokens on nano: tests/official."""

import pytest
import torch
from fakes import request_for, tiny_llada
from families import tiny

from model_wrappers import Backbone, decode
from model_wrappers.decoders.flash import Canvas, Drafts, FlashOptions, two_views

WINDOW = 6
LENGTH = 20


def best(backbone: Backbone, ids: list[int], at: int) -> tuple[float, int]:
    """The likeliest token at a position, and its probability, by a whole forward."""
    probs_V = torch.softmax(backbone.logits(torch.tensor([ids]))[0, at].double(), -1)
    confidence, token = probs_V.max(-1)
    return float(confidence), int(token)


def probability(backbone: Backbone, ids: list[int], at: int, token: int) -> float:
    return float(torch.softmax(backbone.logits(torch.tensor([ids]))[0, at].double(), -1)[token])


def by_whole_forwards(
    backbone: Backbone, prompt: list[int], threshold: float, gamma: float
) -> tuple[list[int], list[tuple[int, int]]]:
    """The response by one forward for every probability; drafts and accepted drafts by window."""
    ids = prompt + [backbone.mask_id] * LENGTH
    waiting = list(range(len(prompt), len(ids)))
    windows = []
    while waiting:
        drafts = {at: best(backbone, ids, at) for at in waiting[:WINDOW]}
        ranked = sorted(drafts, key=lambda at: -drafts[at][0])
        sure = [at for at in ranked if drafts[at][0] >= threshold] or ranked[:1]
        for at in sure:
            ids[at] = drafts[at][1]
        verified = ranked[len(sure) :][: WINDOW // 2]
        seen = list(ids)
        product = 1.0
        accepted = 0
        for at in verified:
            product *= probability(backbone, seen, at, drafts[at][1])
            if product < gamma:
                break
            seen[at] = drafts[at][1]
            accepted += 1
        ids = seen if accepted else ids
        if verified:
            windows.append((len(verified), accepted))
        done = [*sure, *verified[:accepted]]
        waiting = [*(at for at in ranked if at not in done), *waiting[WINDOW:]]
    return ids[len(prompt) :], windows


@pytest.mark.parametrize("family", ["llada", "Dream"])
@pytest.mark.parametrize("tracked", [None, WINDOW])
@pytest.mark.parametrize(("threshold", "gamma"), [(0.9, 0.1), (0.3, 0.05), (0.9, 0.9)])
def test_on_one_layer_tokens_and_windows_are_those_of_whole_forwards(
    prompt: torch.Tensor, family: str, threshold: float, gamma: float, tracked: int | None
) -> None:
    backbone = tiny(family, 3, num_hidden_layers=1)
    tokens, windows = by_whole_forwards(backbone, prompt.tolist(), threshold, gamma)
    out = decode(
        backbone,
        prompt,
        "flash",
        gen_length=LENGTH,
        window=WINDOW,
        threshold=threshold,
        gamma=gamma,
        tracked=tracked,
        masked=WINDOW,
        stop_at_eos=False,
    )
    assert out.tokens.tolist() == tokens
    assert [(window.proposed, window.accepted) for window in out.trace.windows] == windows
    assert gamma == 0.9 or sum(accepted for _, accepted in windows)


def test_a_token_sees_earlier_drafts_and_the_masks_of_others() -> None:
    _, visible_QX = two_views(0, torch.tensor([0]), torch.tensor([2, 1]), lead=0)
    tracked, first_draft, second_draft, first_mask, second_mask = visible_QX.tolist()
    assert tracked == [True, False, False, True, True]
    assert first_draft == [True, True, False, False, True]
    assert second_draft == [True, True, True, False, False]
    assert first_mask == [True, False, False, True, True]
    assert second_mask == [True, True, False, False, True]


@pytest.mark.parametrize("lead", [0, 1])
def test_a_token_sees_every_position_once(lead: int) -> None:
    tracked_T = torch.tensor([1, 4])
    position_S = torch.tensor([8, 6, 7])
    position_Q, visible_QX = two_views(10, tracked_T, position_S, lead)
    assert len(position_Q) == len(visible_QX) == 2 + 3 + 3 * (1 + lead)
    position_X = torch.cat([torch.arange(10), position_Q])
    for sees_X in visible_QX:
        assert sorted(position_X[sees_X].tolist()) == list(range(10))


def test_nothing_is_decoded_after_the_first_eos(prompt: torch.Tensor) -> None:
    options = {"gen_length": 32, "window": 4, "threshold": 0.5, "masked": 8}
    whole = decode(tiny_llada(1), prompt, "flash", **options)
    eos_id = int(whole.tokens[5])
    ended = decode(tiny_llada(1, eos_id=eos_id), prompt, "flash", **options)
    assert (ended.tokens[8:] == eos_id).all()
    assert ended.trace.forwards < whole.trace.forwards


def test_all_up_to_the_last_eos_of_a_step_is_decoded() -> None:
    request = request_for(tiny_llada(1, eos_id=5), [3, 4, *[39] * 8], start=2)
    canvas = Canvas(request, FlashOptions(window=4))
    canvas.order_M[2:6] = torch.tensor([2, 5, 3, 4])
    eos = torch.tensor([5, 5])
    canvas.commit(Drafts(torch.tensor([2, 5]), eos, torch.ones(2)), "unmasked")
    assert canvas.is_open()
    rest = Drafts(torch.tensor([3, 4]), torch.tensor([6, 7]), torch.ones(2))
    canvas.commit(rest, "unmasked")
    assert not canvas.is_open()
    assert canvas.is_after_end(torch.arange(10)).tolist() == [False] * 6 + [True] * 4


def test_a_tile_puts_eos_after_the_response(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(1)
    options = {"gen_length": 8, "window": 8, "threshold": 0.0, "verify": False}
    assert decode(backbone, prompt, "flash", **options).trace.token_forwards == len(prompt) + 8
    padded = decode(backbone, prompt, "flash", tile=32, **options)
    assert padded.trace.token_forwards == 32


def test_layers_that_show_no_attention_are_refused(prompt: torch.Tensor) -> None:
    backbone = tiny_llada(1)
    backbone.model.model.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="this model's own code shows no attention"):
        decode(backbone, prompt, "flash", gen_length=8)
