"""model_wrappers.decode: what it takes, what it refuses, and what it gives back."""

import time
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from fakes import ON_LOGITS, WHOLE, RandomConditionals, Recorder, tiny_llada
from families import tiny

from harness.audit.oracle import RowBackbone
from model_wrappers import METHODS, Backbone, decode, load_backbone
from model_wrappers.batches import at_once, in_batch
from model_wrappers.costs import costs_of
from model_wrappers.options import Options
from model_wrappers.request import Request

every_method = pytest.mark.parametrize("method", WHOLE)
on_logits = pytest.mark.parametrize("method", ON_LOGITS)
DRAWING = [name for name in WHOLE if not METHODS[name].greedy_only]


@pytest.mark.parametrize(
    ("options", "valid"),
    [
        ({"method": "autoregressive"}, "llada.*fef"),
        ({"method": "llada", "window": 4}, "steps.*remasking"),
        ({"method": "fef", "remasking": "random"}, "steps.*window.*speculative"),
        ({"draft": "nano"}, "draft.*backbone"),
        ({"draft": tiny_llada(vocab_size=30)}, "draft.*mask_id"),
        ({"gen_length": 0}, "at least 1"),
        ({"block_length": 3}, "divide gen_length=8"),
        ({"temperature": -0.1}, "not negative"),
        ({"method": "ssd", "temperature": 0.5}, "temperature 0, not 0.5"),
        # Ranges of single options; how values are converted and named: test_register.py.
        ({"window": 0}, "window=0.*at least 1"),
        ({"steps": 0}, r"steps=0.*in \[1, 1000\]"),
        ({"remask_fraction": 1.5}, r"\[0, 1\]"),
        ({"method": "llada", "steps": 3, "block_length": 4}, "multiple of the 2 blocks"),
        ({"method": "llada", "steps": 16}, "at most the response length 8"),
        # Options of FeF-DLLM that do not go together.
        ({"speculative": False, "skip_root_row": True}, "speculative=True"),
        ({"anchor": 4}, "anchor=4 needs verify='two-stream'"),
        ({"reuse_drafts": True, "verify": "two-stream"}, "reuse_drafts needs verify='full'"),
        ({"refresh_below": 0.7}, "refresh_below=0.7 needs verify='two-stream', not 'full'"),
        ({"order": "confidence"}, "order='confidence' needs verify='two-stream', not 'full'"),
        ({"method": "llada", "cfg_scale": 1.0, "cache": "dual"}, "cache"),
    ],
)
def test_what_is_no_request_is_refused_with_what_is_valid(
    tiny: Backbone, prompt: torch.Tensor, options: dict[str, Any], valid: str
) -> None:
    with pytest.raises(ValueError, match=valid):
        decode(tiny, prompt, **{"gen_length": 8} | options)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (torch.zeros(0, dtype=torch.long), "empty prompt"),
        (torch.ones(57, dtype=torch.long), "limit of 64"),
        (torch.tensor([1, 40]), "vocabulary of 40"),
        (torch.tensor([1.0, 2.0]), "must be 2 integers in one row"),
        (torch.ones(2, 3, dtype=torch.long), "must be 6 integers in one row"),
    ],
)
def test_bad_prompts_are_refused(tiny: Backbone, ids: torch.Tensor, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(tiny, ids, gen_length=8)


@every_method
def test_the_prompts_shape_and_a_block_of_all_change_nothing_and_the_model_may_be_filled(
    tiny: Backbone, prompt: torch.Tensor, method: str
) -> None:
    run = partial(decode, tiny, method=method, gen_length=8)
    first, *others = (
        run(prompt).tokens,
        run(prompt[None]).tokens,
        run(prompt, block_length=8).tokens,
    )
    assert (
        first.shape == (8,)
        and first.dtype == torch.int64
        and all(torch.equal(first, other) for other in others)
    )
    assert run(torch.ones(56, dtype=torch.long)).tokens.shape == (8,)


@on_logits
def test_the_model_sees_the_prompt_and_then_masks(
    tiny: Backbone, prompt: torch.Tensor, method: str
) -> None:
    recorder, given = Recorder(tiny), prompt.clone()
    decode(recorder, given, method=method, gen_length=8)
    assert recorder.inputs[0][0].tolist() == [*prompt.tolist(), *[tiny.mask_id] * 8]
    assert torch.equal(given, prompt)


@pytest.mark.parametrize("method", DRAWING)
def test_a_seed_gives_the_same_tokens_and_another_others(
    tiny: Backbone, prompt: torch.Tensor, method: str
) -> None:
    first, again, other = (
        decode(tiny, prompt, method=method, gen_length=16, temperature=1.0, seed=seed).tokens
        for seed in (7, 7, 8)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@on_logits
def test_a_backbone_with_only_the_required_attributes_decodes(method: str) -> None:
    backbone: RowBackbone = RandomConditionals(real=5)
    assert not any(hasattr(backbone, name) for name in ("max_length", "device", "eot_id"))
    out = decode(backbone, torch.tensor([1, 2]), method=method, gen_length=6)
    assert out.tokens.shape == (6,) and out.trace.forwards > 0 and out.trace.seconds > 0


@pytest.mark.parametrize(
    ("options", "lacks"),
    [
        ({"method": "threshold", "cache": "prefix"}, "cached attention"),
        ({"method": "threshold", "cache": "dual"}, "cached attention"),
        ({"verify": "two-stream"}, "cached attention"),
        ({"method": "wino"}, "wino needs a backbone with an attention mask"),
    ],
)
def test_what_logits_alone_cannot_give_is_refused(options: dict[str, Any], lacks: str) -> None:
    with pytest.raises(ValueError, match=lacks):
        decode(RandomConditionals(), torch.tensor([0]), gen_length=4, **options)


def half_given(backbone: Backbone) -> torch.Tensor:
    """A response of 8 with masks at places 0, 1, 4 and 7."""
    given = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8])
    given[[0, 1, 4, 7]] = backbone.mask_id
    return given


@every_method
def test_a_given_response_is_completed_and_the_rest_stays(
    tiny: Backbone, prompt: torch.Tensor, method: str
) -> None:
    given = half_given(tiny)
    out = decode(tiny, prompt, method, gen_length=8, block_length=4, given=given)
    kept = given != tiny.mask_id
    assert torch.equal(out.tokens[kept], given[kept]) and not (out.tokens == tiny.mask_id).any()


@pytest.mark.parametrize("block_length", [2, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_ssd_completes_a_response_as_llada_does(
    prompt: torch.Tensor, seed: int, block_length: int
) -> None:
    backbone = tiny_llada(seed)
    options: dict[str, Any] = {
        "gen_length": 8,
        "block_length": block_length,
        "given": half_given(backbone),
    }
    expected = decode(backbone, prompt, "llada", **options)
    assert torch.equal(
        decode(backbone, prompt, "ssd", draft_length=3, **options).tokens, expected.tokens
    )


def test_fef_predicts_and_remasks_the_masks_alone(tiny: Backbone, prompt: torch.Tensor) -> None:
    out = decode(
        tiny, prompt, "fef", gen_length=8, given=half_given(tiny), steps=2, speculative=False
    )
    assert out.trace.forwards == 4 + 2


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        (torch.ones(7, dtype=torch.long), "must be 8 integers in one row"),
        (torch.ones(8, dtype=torch.long), "no mask"),
        (torch.ones(8), "integers"),
    ],
)
def test_a_bad_given_response_is_refused(
    tiny: Backbone, prompt: torch.Tensor, given: torch.Tensor, valid: str
) -> None:
    with pytest.raises(ValueError, match=valid):
        decode(tiny, prompt, gen_length=8, given=given)


def test_numbers_of_numpy_and_torch_and_whole_floats_are_taken(
    tiny: Backbone, prompt: torch.Tensor
) -> None:
    lengths = {"gen_length": np.int64(8), "block_length": torch.tensor(4.0)}
    others = {"temperature": np.float32(0.5), "seed": np.int64(3), "steps": 4.0}
    out = decode(tiny, prompt, "llada", **lengths, **others)  # type: ignore[arg-type]
    plain = decode(
        tiny, prompt, "llada", gen_length=8, block_length=4, temperature=0.5, seed=3, steps=4
    )
    assert torch.equal(out.tokens, plain.tokens)
    decode(tiny, prompt, "threshold", gen_length=8, tau=np.linspace(0.5, 0.9, 3)[1])
    with pytest.raises(ValueError, match=r"steps=4\.5"):
        decode(tiny, prompt, "llada", gen_length=8, steps=np.float64(4.5))


# Calls that no ledger makes
def llada(request: Request) -> None:
    METHODS["llada"].function(request, METHODS["llada"].options(steps=8))


@pytest.mark.parametrize("way", ["logits", "extend", "hidden states", "model"])
def test_a_call_of_the_model_itself_is_counted(
    way: str, tiny: Backbone, prompt: torch.Tensor
) -> None:
    def decoder(request: Request) -> None:
        llada(request)
        x_1L, position_L = request.x_1L, torch.arange(request.x_1L.shape[1])
        calls = {
            "logits": lambda: tiny.logits(x_1L),
            "extend": lambda: tiny.extend(x_1L, position_L, position_L),
            "hidden states": lambda: tiny.model.model(x_1L, output_hidden_states=True),
            "model": lambda: tiny.model(input_ids=x_1L),
        }
        calls[way]()

    trace = decode(tiny, prompt, decoder, gen_length=8).trace
    assert (trace.forwards, trace.rows, trace.token_forwards, trace.draft_forwards) == (
        9,
        9,
        9 * 13,
        0,
    )


def test_a_request_gives_the_model_and_the_tokenizer(tiny: Backbone, prompt: torch.Tensor) -> None:
    def decoder(request: Request) -> None:
        assert request.backbone.model.config is tiny.model.config
        assert request.backbone.tokenizer is tiny.tokenizer
        hook = request.backbone.model.model.layers[0].register_forward_hook(
            lambda *given: hooked.append(1)
        )
        hidden_1LE = request.backbone.model.model(request.x_1L).last_hidden_state
        hook.remove()
        assert torch.equal(
            request.backbone.model.lm_head(hidden_1LE), request.backbone.model(request.x_1L).logits
        )
        llada(request)

    hooked: list[int] = []
    trace = decode(tiny, prompt, decoder, gen_length=8).trace
    assert (trace.forwards, trace.draft_forwards, trace.changed_forwards) == (
        8 + 2,
        0,
        0,
    ) and hooked == [1]


def test_a_draft_of_ones_own_is_counted_as_one(tiny: Backbone, prompt: torch.Tensor) -> None:
    other = tiny_llada(5)

    def decoder(request: Request) -> None:
        load_backbone("nano")  # its check is no draft
        other.logits(request.x_1L.repeat(2, 1))
        other.model(request.x_1L)
        decode(other, prompt, "llada", gen_length=4)
        decode(tiny, prompt, "llada", gen_length=2)
        llada(request)

    trace = decode(tiny, prompt, decoder, gen_length=8).trace
    assert (trace.forwards, trace.draft_forwards, trace.draft_rows) == (8 + 2 + 6, 6, 7)
    # and outside of a response nothing counts
    assert other.logits(prompt[None]).shape == (
        1,
        5,
        40,
    )


def test_responses_of_a_batch_count_what_each_calls(tiny: Backbone, prompt: torch.Tensor) -> None:
    def decoder(request: Request, again: int = 0) -> None:
        for _ in range(again):
            tiny.logits(request.x_1L)
        llada(request)

    def job(again: int) -> tuple[int, int]:
        return again, decode(
            in_batch(tiny), prompt, decoder, gen_length=8, again=again
        ).trace.forwards

    assert dict(at_once([partial(job, again) for again in (0, 3, 5)], 3)) == {0: 8, 3: 11, 5: 13}


def test_a_decoder_needs_no_model(tiny: Backbone, prompt: torch.Tensor) -> None:
    def retrieve(request: Request) -> None:
        request.x_1L[0, request.start :] = 7

    out = decode(tiny, prompt, retrieve, gen_length=4)
    assert out.tokens.tolist() == [7] * 4 and out.trace.forwards == 0


def test_what_is_masked_after_eos_becomes_eos(tiny: Backbone, prompt: torch.Tensor) -> None:
    def stops(request: Request) -> None:
        request.x_1L[0, request.start : request.start + 2] = torch.tensor(
            [7, request.backbone.eos_id]
        )

    assert decode(tiny, prompt, stops, gen_length=4).tokens.tolist() == [7, *[tiny.eos_id] * 3]


# Seconds until each block stood
PROMPT = torch.tensor([5, 9, 2])


def slowly(request: Request, options: Options) -> None:
    request.backbone.logits(request.x_1L)
    for block in request.blocks():
        time.sleep(0.02)
        request.commit(block, 7, None, "filled")
        request.finish(block)


def test_each_block_has_the_time_at_which_it_stood() -> None:
    trace = decode(tiny("llada"), PROMPT, slowly, gen_length=12, block_length=4).trace
    ends, seconds = zip(*trace.block_seconds, strict=True)
    assert ends == (4, 8, 12) and seconds[2] == trace.seconds
    assert all(
        later - earlier >= 0.02 for earlier, later in zip((0.0, *seconds), seconds, strict=False)
    )


@pytest.mark.parametrize("method", ["llada", "threshold", "fef", "freedave"])
def test_all_that_go_from_block_to_block_have_them(method: str) -> None:
    trace = decode(tiny("llada"), PROMPT, method, gen_length=12, block_length=4).trace
    assert [end for end, _ in trace.block_seconds] == [4, 8, 12]


def test_a_decoder_that_does_not_take_them_one_by_one_has_none_but_of_a_single_block() -> None:
    assert (
        decode(tiny("llada"), PROMPT, "ssd", gen_length=12, block_length=4).trace.block_seconds
        == []
    )
    trace = decode(tiny("llada"), PROMPT, "ssd", gen_length=12).trace
    assert trace.block_seconds == [(12, trace.seconds)]


def test_a_record_has_the_block_of_the_last_content() -> None:
    backbone = tiny("sdar")
    outs = (
        decode(backbone, PROMPT, "llada", gen_length=20, temperature=1.0, seed=seed)
        for seed in range(99)
    )
    out = next(
        out
        for out in outs
        if backbone.eos_id in out.tokens[6:12] and backbone.eos_id not in out.tokens[:6]
    )
    item = costs_of(backbone, PROMPT, out)
    assert (
        item["first_block_seconds"]
        == out.trace.block_seconds[0][1]
        < item["content_seconds"]
        <= item["seconds"]
    )
    ends = [end for end, at in out.trace.block_seconds if at <= item["content_seconds"]]
    assert ends[-1] >= item["content_tokens"] > ends[-2]


@pytest.mark.parametrize("prompt_ids", ["text", ["text"], {"input_ids": [1]}])
def test_text_is_no_prompt_and_a_list_of_ids_is(tiny: Backbone, prompt_ids: Any) -> None:
    with pytest.raises(
        ValueError, match=r"prompt_ids must be ids of shape .* model_wrappers.chat encodes text"
    ):
        decode(tiny, prompt_ids, method="llada", gen_length=4)
    assert len(decode(tiny, [3, 14], method="llada", gen_length=4).tokens) == 4


def test_a_huge_temperature_draws_evenly_and_a_huge_scale_is_refused(tiny: Backbone) -> None:
    out = decode(tiny, [1, 2], "llada", gen_length=4, temperature=1e20)
    assert tiny.mask_id not in out.tokens
    with pytest.raises(ValueError, match=r"cfg_scale=1e\+40 for llada must be a finite number in"):
        decode(tiny, [1, 2], "llada", gen_length=4, cfg_scale=1e40)
