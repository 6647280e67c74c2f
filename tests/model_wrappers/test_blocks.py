"""Block models: what is kept is exact, nothing behind the block runs, and every decoder decodes as
without keeping."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import trace_of
from families import VOCABULARY, tiny
from window_sums import window_sums

from harness.audit.oracle import total_variation
from harness.records.files import replay
from model_wrappers import METHODS, Backbone, decode
from model_wrappers.backbones.blocks import BlockLedger, Blocks, Grid, Kept
from model_wrappers.sampling import token_probs
from model_wrappers.trace import Decoded, EventLog

MASK, EOS = VOCABULARY - 1, VOCABULARY - 2
# in blocks of 4: one whole block, and three tokens of the next
PROMPT = torch.tensor([3, 1, 4, 1, 5, 9, 2])
ORIGINS = ("sequence", "response")


@pytest.fixture(
    params=[("sdar", "sequence"), ("sdar", "response"), ("Fast_dLLM_Qwen", "sequence")],
    ids="-".join,
)
def model(request: pytest.FixtureRequest) -> Backbone:
    """A tiny model that attends in blocks of 4, and says neither EOS nor the mask."""
    name, origin = request.param
    backbone = tiny(name)
    backbone.blocks = Blocks(4, origin)
    backbone.model.lm_head.register_forward_hook(
        lambda *at: at[2].index_fill(-1, torch.tensor([EOS, MASK]), -9.0)
    )
    return backbone


def whole(backbone: Backbone, ids_L: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Logits (L, V) of one pass over the whole sequence, with the mask of its blocks."""
    position_L = torch.arange(len(ids_L))
    number_L = grid.number(position_L)
    seen_LL = number_L <= number_L[:, None]
    return backbone.extend(ids_L[None], position_L, position_L, visible_NK=seen_LL)[0][0]


@pytest.mark.parametrize(
    ("origin", "start", "edges"),
    [
        ("sequence", 7, [0, 4, 8, 12]),
        ("response", 7, [0, 3, 7, 11, 15]),
        ("response", 8, [0, 4, 8, 12]),
        ("response", 70, [0, *range(2, 79, 4)]),
    ],
)
def test_a_grid_begins_with_the_sequence_or_the_response_with_a_block(
    origin: Any, start: int, edges: list[int]
) -> None:
    grid = Grid.of(Blocks(4, origin), start)
    for begin, end in itertools.pairwise(edges):
        assert {(grid.begin(at), grid.end(at)) for at in range(begin, end)} == {(begin, end)}
    numbers = grid.number(torch.arange(edges[-1])).tolist()
    assert [numbers.index(number) for number in dict.fromkeys(numbers)] == edges[:-1]


def test_kept_blocks_give_the_logits_of_a_pass_over_everything(model: Backbone) -> None:
    assert model.blocks is not None
    grid = Grid.of(model.blocks, len(PROMPT))
    draws = torch.Generator().manual_seed(0)
    ids_L = torch.cat([PROMPT, torch.full((grid.end(18) - len(PROMPT),), MASK)])
    ledger = BlockLedger(model, grid, Kept())
    begin = len(PROMPT)
    while begin < len(ids_L):
        end = grid.end(begin)
        while (masked := begin + (ids_L[begin:end] == MASK).nonzero()[:, 0]).numel():
            before = ledger.tokens
            logits_NV = ledger.logits(ids_L[None], positions=masked)[0]
            torch.testing.assert_close(
                logits_NV, whole(model, ids_L, grid)[masked], rtol=1e-4, atol=1e-4
            )
            # the block, and once the finished one before it
            assert ledger.tokens - before <= 2 * 4 or before == 0
            ids_L[masked[0]] = int(torch.randint(0, EOS, (1,), generator=draws))
        begin = end


def test_a_changed_token_of_a_finished_block_is_seen(model: Backbone) -> None:
    grid = Grid(4, 0)
    ids_L = torch.arange(12) + 2
    ledger, read = BlockLedger(model, grid, Kept()), torch.tensor([8, 11])
    ledger.logits(ids_L[None], positions=read)
    for changed in (9, 5, 0):
        ids_L[changed] += 1
        logits_NV = ledger.logits(ids_L[None], positions=read)[0]
        torch.testing.assert_close(logits_NV, whole(model, ids_L, grid)[read], rtol=1e-4, atol=1e-4)


def test_rows_that_differ_in_their_block_share_what_is_kept_and_one_call(model: Backbone) -> None:
    grid = Grid(4, 0)
    rows_BL = (torch.arange(12) + 2).repeat(3, 1)
    rows_BL[1, 9], rows_BL[2, 9:11] = 30, torch.tensor([30, 31])
    read_Bn = torch.tensor([[8, 9], [9, 10], [10, 11]])
    ledger = BlockLedger(model, grid, Kept())
    for again in range(2):
        logits_BnV = ledger.logits(rows_BL, positions=read_Bn)
        for row_L, read, logits_nV in zip(rows_BL, read_Bn, logits_BnV, strict=True):
            torch.testing.assert_close(
                logits_nV, whole(model, row_L, grid)[read], rtol=1e-4, atol=1e-4
            )
        assert (ledger.calls, ledger.rows) == (1 + again, 3 * (1 + again))
    assert (ledger.tokens, ledger.cached) == (8 + 12 + 12, 8)


WAYS: dict[str, dict[str, Any]] = {
    "llada": {"method": "llada"},
    "two a step": {"method": "llada", "steps": 8},
    "guided": {"method": "llada", "cfg_scale": 0.5},
    "threshold": {"method": "threshold", "tau": 0.3},
    "factor": {"method": "factor"},
    "entropy": {"method": "entropy", "gamma": 1.0},
    "block": {"method": "block", "threshold": 0.3, "steps": 3},
    "sub-blocks": {"method": "block", "threshold": 0.3, "sub_block": 2},
    "edits": {"method": "block", "threshold": 0.3, "editing_threshold": 0.2},
    "s2d2": {"method": "s2d2"},
    "s2d2 routed": {
        "method": "s2d2",
        "threshold": 0.3,
        "min_span": 2,
        "min_expected": 0.5,
        "steps": 3,
    },
    "linear speculation": {"method": "s2d2", "acceptance": "match"},
    "klass": {"method": "klass", "conf_threshold": 0.2, "kl_threshold": 0.5},
    "pc_sampler": {"method": "pc_sampler"},
    "freedave": {"method": "freedave"},
    "fef": {"method": "fef"},
    "fef fast": {
        "method": "fef",
        "skip_root_row": True,
        "reuse_drafts": True,
        "adaptive_window": True,
    },
    "two streams": {"method": "fef", "verify": "two-stream", "anchor": 3, "skip_root_row": True},
    "two streams fresh": {"method": "fef", "verify": "two-stream", "refresh_below": 0.3},
}


def ways(model: Backbone) -> dict[str, dict[str, Any]]:
    """Those that a model decodes: with shifted logits no pass is one of queries alone."""
    shifted = model.reads_at != 0
    return {
        way: how
        for way, how in WAYS.items()
        if not (shifted and {"s2d2", "two-stream"} & {*how.values()})
    }


def respond(model: Backbone, **how: Any) -> Decoded:
    return decode(model, PROMPT, gen_length=16, **how)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_changes_no_token_and_no_call(
    way: str, model: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way not in ways(model):
        with pytest.raises(
            ValueError, match=r"s2d2 verifies with masks|verify='two-stream' needs the token"
        ):
            respond(model, **WAYS[way])
        return
    kept = respond(model, **WAYS[way])

    def forget(self: BlockLedger, ids_K: torch.Tensor) -> int:
        self._kept.cache = None
        return 0

    monkeypatch.setattr(BlockLedger, "_trim", forget)
    anew = respond(model, **WAYS[way])
    assert kept.tokens.tolist() == anew.tokens.tolist() and MASK not in kept.tokens
    # Where the token before predicts, a block's first token needs no pass of its own.
    assert kept.trace.forwards == anew.trace.forwards or (
        model.reads_at and kept.trace.forwards < anew.trace.forwards
    )
    if way != "guided":  # whose second row has another prompt
        assert kept.trace.token_forwards < anew.trace.token_forwards


def test_no_call_runs_what_stands_behind_the_block(
    model: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, reached = model.extend, list[int]()

    def watched(ids_1N: torch.Tensor, position_N: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        reached.append(grid.end(int(position_N.max())))
        return extend(ids_1N, position_N, *args, **kwargs)

    monkeypatch.setattr(model, "extend", watched)
    assert model.blocks is not None
    grid = Grid.of(model.blocks, len(PROMPT))
    for how in ways(model).values():
        reached.clear()
        respond(model, **how)
        assert reached == sorted(reached)
        assert set(reached) == set(range(grid.end(len(PROMPT)), grid.end(len(PROMPT) + 15) + 1, 4))


def chain_law(
    model: Backbone,
    prompt: list[int],
    length: int,
    target: Callable[[Backbone, torch.Tensor, Grid, int], torch.Tensor],
) -> dict[tuple[int, ...], float]:
    """The law of filling position after position from a target's logits; after a block that holds
    EOS all is EOS."""
    assert model.blocks is not None
    grid = Grid.of(model.blocks, len(prompt))
    laws = {(): 1.0}
    for at in range(len(prompt), len(prompt) + length):
        following: dict[tuple[int, ...], float] = {}
        for tokens, share in laws.items():
            if model.eos_id in tokens[: grid.begin(at) - len(prompt)]:  # a finished block holds it
                following[*tokens, model.eos_id] = share
                continue
            logits_1V = target(model, torch.tensor([*prompt, *tokens]), grid, at)
            for token, prob in enumerate(
                token_probs(logits_1V, 1.0, exclude=model.mask_id)[0].tolist()
            ):
                if prob:
                    following[*tokens, token] = share * prob
        laws = following
    return laws


def before_masks(model: Backbone, ids_L: torch.Tensor, grid: Grid, at: int) -> torch.Tensor:
    """Logits (1, V) of the paper's target: earlier blocks, the clean prefix of the block, masks."""
    masks = torch.full((grid.end(at) - at,), model.mask_id)
    return whole(model, torch.cat([ids_L, masks]), grid)[[at]]


VARIANTS: list[Any] = [
    {"speculative": False},
    *({"window": window, "draft": False} for window in (1, 2)),
    *(pytest.param({"window": window, "draft": True}, marks=pytest.mark.slow) for window in (1, 2)),
    {"window": 2, "skip_root_row": True, "reuse_drafts": True, "adaptive_window": True},
]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_fefs_law_on_blocks_is_the_chain_of_the_papers_targets(
    origin: Any, variant: dict[str, Any]
) -> None:
    models = [tiny("sdar", seed, vocab_size=3, mask_token_id=2, eos_token_id=1) for seed in (0, 1)]
    for each in models:
        each.blocks = Blocks(2, origin)
        each.model.double()
    small, prompt = models[0], [0, 1, 0]
    options = variant | ({"draft": models[1]} if variant.get("draft") else {"draft": None})

    def law(**how: Any) -> Any:
        run = partial(
            decode,
            small,
            torch.tensor(prompt),
            "fef",
            gen_length=4,
            temperature=1.0,
            steps=1,
            **how,
        )
        return enumerate_law(lambda sampler: run(sampler=sampler).tokens)

    assert total_variation(law(**options), chain_law(small, prompt, 4, before_masks)) < 1e-12
    two_streams = {name: value for name, value in options.items() if name != "reuse_drafts"}
    assert (
        total_variation(
            law(verify="two-stream", **two_streams), law(verify="two-stream", speculative=False)
        )
        < 1e-12
    )


def one_by_one(model: Backbone, ids_L: torch.Tensor, grid: Grid, at: int) -> torch.Tensor:
    """Logits (1, V) of a mask at a position that sees the finished blocks, and of its own the
    tokens before it."""
    position_L = torch.arange(at + 1)
    begin = grid.begin(at)
    number_L = grid.number(position_L)
    seen_LL = torch.where(
        position_L[:, None] < begin,
        number_L <= number_L[:, None],
        position_L <= position_L[:, None],
    )
    ids_1L = torch.cat([ids_L[:at], torch.tensor([model.mask_id])])[None]
    return model.extend(ids_1L, position_L, position_L[[at]], visible_NK=seen_LL)[0][0]


@pytest.mark.parametrize("acceptance", ["ratio", "block"])
@pytest.mark.parametrize("origin", ORIGINS)
def test_s2d2s_law_is_the_models_own_at_block_length_1(origin: Any, acceptance: str) -> None:
    small, prompt = tiny("sdar", 0, vocab_size=3, mask_token_id=2, eos_token_id=1), [0, 1, 0]
    small.blocks = Blocks(2, origin)
    small.model.double()
    small.model.lm_head.register_forward_hook(
        lambda *at: at[2].index_fill(-1, torch.tensor([2]), -torch.inf)
    )

    def run(sampler: Any) -> torch.Tensor:
        return decode(
            small,
            torch.tensor(prompt),
            "s2d2",
            gen_length=4,
            temperature=1.0,
            sampler=sampler,
            acceptance=acceptance,
        ).tokens

    # A block that holds EOS is filled with it: the law of what stands before it is compared.
    def ended(law: Any) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for tokens, share in law.items():
            cut = tokens.index(1) + 1 if 1 in tokens else len(tokens)
            found[tokens[:cut]] = found.get(tokens[:cut], 0.0) + share
        return found

    assert (
        total_variation(ended(enumerate_law(run)), ended(chain_law(small, prompt, 4, one_by_one)))
        < 1e-12
    )


def test_linear_speculation_gives_the_tokens_of_one_at_a_time(model: Backbone) -> None:
    if model.reads_at:
        pytest.skip("s2d2 refuses it")
    assert model.blocks is not None
    grid, ids_L = Grid.of(model.blocks, len(PROMPT)), PROMPT
    for at in range(len(PROMPT), len(PROMPT) + 16):
        ids_L = torch.cat([ids_L, one_by_one(model, ids_L, grid, at).argmax(-1)])
    out = respond(model, **WAYS["linear speculation"])
    assert out.tokens.tolist() == ids_L[len(PROMPT) :].tolist()
    # and nothing behind the response
    assert sum(window.committed for window in out.trace.windows) == 16


def test_a_trace_replays_to_the_tokens_and_windows_of_the_response(model: Backbone) -> None:
    speculative = (
        "fef",
        "fef fast",
        "two streams",
        "freedave",
        "s2d2",
        "s2d2 routed",
        "linear speculation",
    )
    for way in (each for each in speculative if each in ways(model)):
        log = EventLog()
        out = respond(model, **WAYS[way], observer=log)
        trace = trace_of(log, out, model.mask_id)
        assert replay(trace).tolist() == out.tokens.tolist()
        for name, counted in window_sums(trace).items():
            assert counted.tolist() == [getattr(window, name) for window in out.trace.windows]


def test_verification_that_does_not_pay_is_left_out(model: Backbone) -> None:
    if model.reads_at:
        pytest.skip("s2d2 refuses it")
    never = respond(model, method="s2d2", threshold=0.3, min_span=5)  # longer than a block
    assert never.tokens.tolist() == respond(model, method="block", threshold=0.3).tokens.tolist()
    assert not never.trace.windows
    assert not respond(
        model, method="s2d2", min_expected=4.0
    ).trace.windows  # none is expected with certainty


def test_a_verification_ends_where_the_masks_have_a_gap() -> None:
    small = tiny("sdar")
    small.blocks = Blocks(8, "response")
    given = torch.tensor([MASK, MASK, 3, MASK, MASK, 3, 3, MASK])
    out = decode(small, PROMPT, "s2d2", gen_length=8, given=given)
    assert out.trace.windows[0].proposed == 2


def test_other_blocks_than_the_models_own_are_those_that_it_attends_in(model: Backbone) -> None:
    found = respond(model, method="threshold", tau=0.3, block_length=8).tokens.tolist()
    assert found != respond(model, method="threshold", tau=0.3).tokens.tolist()
    assert model.blocks is not None
    model.blocks = Blocks(8, model.blocks.origin)
    assert respond(model, method="threshold", tau=0.3).tokens.tolist() == found


def test_generation_ends_with_the_block_that_holds_eos(model: Backbone) -> None:
    model.eos_id = int(respond(model, method="llada").tokens[5])
    assert model.blocks is not None
    end = Grid.of(model.blocks, len(PROMPT)).end(len(PROMPT) + 5) - len(PROMPT)
    for how in ways(model).values():
        out = respond(model, **how)
        first = out.tokens.tolist().index(model.eos_id) if model.eos_id in out.tokens else 16
        ended = Grid.of(model.blocks, len(PROMPT)).end(len(PROMPT) + first) - len(PROMPT)
        assert out.tokens[ended:].tolist() == [model.eos_id] * len(out.tokens[ended:])
    assert respond(model, method="llada").trace.forwards <= end


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"method": "threshold", "cache": "dual"}, "a block model keeps finished blocks by itself"),
        (
            {"method": "fef", "draft": tiny("a2d-qwen3")},
            "the draft model must attend as the target does",
        ),
        *(
            ({"method": name}, f"{name} attends to the whole sequence")
            for name in METHODS
            if METHODS[name].whole_sequence
        ),
        ({"method": "block", "steps": 5}, "steps=5 must be at most the block length, 4"),
        ({"method": "block", "sub_block": 5}, "sub_block=5 must be at most the block length, 4"),
    ],
)
def test_what_a_block_model_cannot_do_is_refused(
    how: dict[str, Any], says: str, model: Backbone
) -> None:
    with pytest.raises(ValueError, match=says):
        respond(model, **how)
    with pytest.raises(ValueError, match="attends in blocks of 4, and has no logits without them"):
        model.logits(PROMPT[None])
    with pytest.raises(
        ValueError,
        match="s2d2 decodes models that attend in blocks; this one attends to the whole",
    ):
        decode(tiny("a2d-qwen3"), PROMPT, "s2d2", gen_length=8)
    with pytest.raises(ValueError, match="block_length=4 must divide gen_length=10"):
        decode(model, PROMPT, "llada", gen_length=10)
