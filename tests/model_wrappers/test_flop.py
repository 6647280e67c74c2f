"""What a response costs in FLOP is what torch's own counter sees, whichever way the model is
called."""

from functools import partial
from typing import Any

import pytest
import torch
from fakes import WHOLE, RandomConditionals, tiny_llada
from families import tiny as tiny_of
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model_wrappers import METHODS, Backbone, Decoded, decode, load_backbone
from model_wrappers.batches import at_once, in_batch
from model_wrappers.costs import costs_of
from model_wrappers.decoders import Method
from model_wrappers.options import Options
from model_wrappers.request import Request
from model_wrappers.trace import Trace

GEN_LENGTH = 16
OPTIONS: dict[str, dict[str, Any]] = {"pc_sampler": {"baseline": "nano"}}
# Decoders whose calls are those of another one are left to the night.
OFTEN = ("llada", "wino", "flash", "fef", "block")
WAYS: list[Any] = [
    *(
        pytest.param(
            method, OPTIONS.get(method, {}), marks=[] if method in OFTEN else [pytest.mark.slow]
        )
        for method in WHOLE
    ),
    ("llada", {"cfg_scale": 0.5}),
    ("llada", {"cache": "prefix", "block_length": 8}),
    ("threshold", {"cache": "dual", "block_length": 8}),
    ("fef", {"window": 4}),
    ("fef", {"window": 4, "reuse_drafts": True, "skip_root_row": True}),
    ("fef", {"window": 4, "verify": "two-stream", "anchor": 8}),
    ("fef", {"window": 4, "temperature": 1.0}),
]
METHOD_OF = {
    "Dream": "llada",
    "a2d-qwen3": "fef",
    "sdar": "llada",
    "llama": "ar",
    "Fast_dLLM_Qwen": "llada",
}
OF_BLOCKS = [name for name, each in METHODS.items() if not (each.canvases or each.causal)]


def counted(backbone: Backbone, method: Method, **options: Any) -> tuple[int, Trace]:
    """What torch counts while a response is decoded, and its trace."""
    prompt_P = torch.arange(3, 17)
    # On a CPU the counter does not know the fused attention, but what it is made of.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        out = decode(backbone, prompt_P, method, gen_length=GEN_LENGTH, **options)
    return counter.get_total_flops(), out.trace


@pytest.mark.parametrize(("method", "options"), WAYS)
def test_flop_are_what_torch_counts(nano: Backbone, method: str, options: dict[str, Any]) -> None:
    flop, trace = counted(nano, method, **options)
    assert trace.flop == flop > 0


@pytest.fixture(scope="module")
def of_blocks() -> Backbone:
    return load_backbone("nano-block")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow])
        for name in OF_BLOCKS
        if not METHODS[name].whole_sequence
    ],
)
def test_flop_of_a_block_model_leave_out_what_is_kept(of_blocks: Backbone, method: str) -> None:
    flop, trace = counted(of_blocks, method, **OPTIONS.get(method, {}))
    assert trace.flop == flop > 0


@pytest.mark.parametrize("family", METHOD_OF)
def test_biases_shared_keys_and_shifted_logits_change_nothing(family: str) -> None:
    backbone = tiny_of(family)
    decode(backbone, [3, 4], METHOD_OF[family], gen_length=4)  # which makes a table of angles
    flop, trace = counted(backbone, METHOD_OF[family])
    assert trace.flop == flop > 0


def test_a_draft_model_is_counted_by_its_own_shapes(tiny: Backbone) -> None:
    small = tiny_llada(1)
    small.model.model.layers = small.model.model.layers[:1]
    decode(small, [3, 4], gen_length=4)  # which sees that there is one layer less
    flop, trace = counted(tiny, "fef", draft=small, window=4)
    assert trace.flop == flop > 0


def test_flop_in_a_batch_are_those_of_the_response_alone(tiny: Backbone) -> None:
    def job(backbone: Backbone, length: int) -> int | None:
        return decode(backbone, [3, 4, 5], "llada", gen_length=length).trace.flop

    jobs = [partial(job, in_batch(tiny), length) for length in (4, 8)]
    assert sorted(at_once(jobs, 2)) == [job(tiny, 4), job(tiny, 8)]


def test_a_call_of_a_backbone_past_its_ledger_is_counted(tiny: Backbone) -> None:
    def twice(request: Request, options: Options) -> None:
        ids_1L = request.x_1L
        tiny.logits(ids_1L, positions=torch.tensor([1, 2]))
        position_L = torch.arange(ids_1L.shape[1])
        _, cache = tiny.extend(ids_1L, position_L, position_L[:3])
        tiny.extend(ids_1L[:, :2], position_L[:2], position_L[:1], cache, write="replace")
        tiny.extend(ids_1L[:, :2], position_L[:2], position_L[:1], cache, write="none")
        request.commit(request.masked(), 1, None, "unmasked")

    flop, trace = counted(tiny, twice)
    assert trace.flop == flop > 0 and trace.forwards == 4


def test_flop_of_a_mixture_of_experts_are_not_known() -> None:
    _, trace = counted(tiny_of("sdar_moe"), "llada")
    assert trace.flop is None


def test_flop_of_made_up_logits_are_not_known() -> None:
    assert decode(RandomConditionals(), [1, 2], "llada", gen_length=4).trace.flop is None


def test_flop_of_a_changed_model_are_not_known() -> None:
    backbone = tiny_llada()
    backbone.model.register_forward_hook(lambda *_: None)
    _, trace = counted(backbone, "llada")
    assert trace.flop is None and trace.changed_forwards
    assert "flop" not in costs_of(backbone, torch.tensor([1]), Decoded(torch.tensor([1]), trace))


def test_flop_of_a_call_of_the_model_itself_are_not_known(tiny: Backbone) -> None:
    def hidden(request: Request, options: Options) -> None:
        request.backbone.model.model(request.x_1L)
        request.commit(request.masked(), 1, None, "unmasked")

    assert decode(tiny, [1, 2], hidden, gen_length=4).trace.flop is None
