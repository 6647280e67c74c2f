"""Models as people change them after loading: the numbers are the changed model's, and the trace
says so."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from families import random_model, tiny
from peft import LoraConfig, get_peft_model
from torch import nn

from model_wrappers import Backbone, decode
from model_wrappers.backbones.plain import PlainForward
from model_wrappers.batches import at_once, in_batch
from model_wrappers.request import Request

IDS_1L = torch.tensor([[3, 4, 7, 1, 5, 2]])


def doubled(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def hook_on_a_projection(backbone: Backbone) -> None:
    backbone.model.model.layers[0].mlp.down_proj.register_forward_hook(doubled)


def hook_before_a_layer(backbone: Backbone) -> None:
    backbone.model.model.layers[1].register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))


def another_attention(backbone: Backbone) -> None:
    attention = backbone.model.model.layers[1].self_attn
    attention.forward = lambda hidden_states, **options: (0.1 * hidden_states, None)


class Pass(nn.Module):
    """An attention of one's own."""

    def forward(self, hidden_states: torch.Tensor, **options: Any) -> tuple[torch.Tensor, None]:
        return 0.5 * hidden_states, None


def an_attention_module(backbone: Backbone) -> None:
    backbone.model.model.layers[1].self_attn = Pass()


def a_skipped_layer(backbone: Backbone) -> None:
    backbone.model.model.layers[0].forward = lambda hidden_states, **options: hidden_states


def another_class(backbone: Backbone) -> None:
    class Half(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) / 2

    backbone.model.model.layers[0].self_attn.v_proj.__class__ = Half


def lora_layers(backbone: Backbone) -> None:
    torch.manual_seed(0)
    get_peft_model(
        backbone.model, LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False)
    )


def lora_model(backbone: Backbone) -> None:
    torch.manual_seed(0)
    config = LoraConfig(target_modules=["v_proj"], r=2, init_lora_weights=False)
    backbone.model = get_peft_model(backbone.model, config)


def int8(backbone: Backbone) -> None:
    backbone.model = torch.ao.quantization.quantize_dynamic(
        backbone.model, {nn.Linear}, dtype=torch.qint8
    )


def another_forward(backbone: Backbone) -> None:
    forward = backbone.model.forward

    def scaled(input_ids: torch.Tensor, **options: Any) -> Any:
        output = forward(input_ids, **options)
        output.logits = -output.logits
        return output

    backbone.model.forward = scaled


def hook_on_the_model(backbone: Backbone) -> None:
    def negated(module: nn.Module, args: Any, output: Any) -> Any:
        output.logits = -output.logits
        return output

    backbone.model.register_forward_hook(negated)


def another_model(backbone: Backbone) -> None:
    backbone.model = random_model("llada", 9).eval()


CHANGES = [
    *(
        hook_on_a_projection,
        hook_before_a_layer,
        another_attention,
        a_skipped_layer,
        another_class,
        lora_layers,
    ),
    *(an_attention_module, lora_model, int8, another_forward, hook_on_the_model, another_model),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_model_decodes_as_it_computes_and_the_trace_says_so(
    change: Callable[[Backbone], None],
) -> None:
    backbone = tiny("llada")
    before_1LV = backbone.logits(IDS_1L)
    assert decode(backbone, [3, 4], "llada", gen_length=4).trace.changed_forwards == 0
    change(backbone)
    with torch.inference_mode():
        expected_1LV = backbone.model(input_ids=IDS_1L).logits
    assert not torch.allclose(expected_1LV, before_1LV)
    torch.testing.assert_close(backbone.logits(IDS_1L), expected_1LV)
    for method in (
        {"method": "llada"},
        {"method": "threshold", "cache": "dual"},
        {"method": "wino"},
    ):
        trace = decode(backbone, [3, 4], gen_length=4, **method).trace  # type: ignore[arg-type]
        assert trace.changed_forwards == trace.forwards > 0


@pytest.mark.parametrize(
    "change", [change for change in CHANGES if change is not int8], ids=lambda each: each.__name__
)
def test_pieces_of_a_changed_model_are_as_the_whole(change: Callable[[Backbone], None]) -> None:
    backbone = tiny("llada")
    change(backbone)
    position_L = torch.arange(6)
    whole_LV = backbone.logits(IDS_1L, causal=True)[0]
    visible_LL = torch.ones(6, 6, dtype=torch.bool).tril()
    _, cache = backbone.extend(
        IDS_1L[:, :4], position_L[:4], position_L[:4], visible_NK=visible_LL[:4, :4]
    )
    rest_1NV, _ = backbone.extend(
        IDS_1L[:, 4:], position_L[4:], position_L[:2], cache, visible_LL[4:]
    )
    torch.testing.assert_close(rest_1NV[0], whole_LV[4:], atol=1e-4, rtol=1e-4)


def test_fewer_layers_and_other_parameters_run_as_fast_as_before() -> None:
    backbone = tiny("llada")
    backbone.logits(IDS_1L)
    backbone.model.model.layers = backbone.model.model.layers[1:]
    up = backbone.model.model.layers[0].mlp.up_proj
    up.weight = nn.Parameter(2 * up.weight.detach())
    with torch.inference_mode():
        torch.testing.assert_close(backbone.logits(IDS_1L), backbone.model(input_ids=IDS_1L).logits)
    trace = decode(backbone, [3, 4], "wino", gen_length=4).trace
    assert trace.changed_forwards == 0 and isinstance(backbone.forward.current(), PlainForward)


def test_an_epsilon_that_is_set_after_loading_is_the_one_that_computes() -> None:
    backbone = tiny("llada")
    before_1LV = backbone.logits(IDS_1L)
    backbone.model.model.layers[0].input_layernorm.variance_epsilon = 0.5
    with torch.inference_mode():
        expected_1LV = backbone.model(input_ids=IDS_1L).logits
    assert not torch.allclose(expected_1LV, before_1LV)
    torch.testing.assert_close(backbone.logits(IDS_1L), expected_1LV)


def test_what_was_changed_back_runs_as_before_and_hidden_states_change_nothing() -> None:
    backbone = tiny("llada")
    handle = backbone.model.model.layers[0].register_forward_hook(lambda *given: None)
    backbone.logits(IDS_1L)
    assert backbone.is_changed
    handle.remove()
    # for which transformers has hooks in all layers from here on
    backbone.model(IDS_1L, output_hidden_states=True)
    backbone.logits(IDS_1L)
    assert not backbone.is_changed


@pytest.mark.slow
def test_a_compiled_model_is_called() -> None:
    backbone = tiny("llada")
    wanted = decode(backbone, [3, 4], "llada", gen_length=4).tokens
    backbone.model = torch.compile(backbone.model, backend="eager")
    out = decode(backbone, [3, 4], "llada", gen_length=4)
    assert torch.equal(out.tokens, wanted) and out.trace.changed_forwards == out.trace.forwards == 4


@pytest.mark.slow
def test_a_decoder_may_compile_the_model() -> None:
    backbone = tiny("llada")

    def decoder(request: Request) -> None:
        logits_1LV = torch.compile(backbone.model, backend="eager")(request.x_1L).logits
        request.x_1L[0, request.start :] = logits_1LV[0, request.start :, :38].argmax(-1)

    assert decode(backbone, [3, 4], decoder, gen_length=4).trace.forwards == 1


def test_a_model_that_is_changed_between_responses_of_a_batch_gives_its_own_numbers() -> None:
    backbone = tiny("llada")
    another_attention(backbone)
    wanted = decode(backbone, [3, 4], "llada", gen_length=4)
    jobs = [lambda: decode(in_batch(backbone), [3, 4], "llada", gen_length=4)] * 2
    for out in at_once(jobs, 2):
        assert torch.equal(out.tokens, wanted.tokens) and out.trace.changed_forwards == 4
