"""`decode`: from one prompt and one method to one response with its trace."""

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model_wrappers.backbones.blocks import BlockLedger, Blocks, ledgers
from model_wrappers.backbones.flop import added
from model_wrappers.backbones.protocol import BackboneLike, counted_by
from model_wrappers.clock import Clock, DrawTimer, Spent
from model_wrappers.decoders import Decoder, Method, WithOptions, decoder_named, split_options
from model_wrappers.options import Options, convert_options, python_number
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.sampling import Sampler
from model_wrappers.trace import Decoded, FullObserver, Observer, Trace


def decode(
    backbone: BackboneLike,
    prompt_ids: Tensor | list[int],
    method: Method | WithOptions = "fef",
    *,
    gen_length: int = 64,
    block_length: int | None = None,
    temperature: float = 0.0,
    seed: int = 0,
    sampler: Sampler | None = None,
    given: Tensor | None = None,
    observer: Observer | None = None,
    **method_options: Any,
) -> Decoded:
    """Decode a response to one prompt.

    Args:
        backbone: the model.
        prompt_ids: LongTensor (P,) or (1, P), or a list of ids.
        method: a name in METHODS, a Decoder, or a function of (request, options); or a pair of one
            of these and some of its options, (method, {option: value}).
        gen_length: tokens of the response.
        block_length: tokens of a block (None: gen_length, which is the full sequence, or for a
            block model its own length). Another length changes the blocks of a block model.
        temperature: 0 is greedy.
        seed: seed of all randomness.
        sampler: replaces the seeded sampler.
        given: LongTensor (gen_length,), a response to complete, whose masks are predicted (default:
            all masks).
        observer: sees every commit and re-mask, and more if it is a trace.FullObserver.
        method_options: the method's options.

    Returns:
        Tokens (gen_length,) and their trace.

    Raises:
        ValueError: a method or option is unknown, or a value is bad (the message says what is
            valid); logits are not finite; or the decoder leaves masks, or changes given tokens.
    """
    method, bound_options = split_options(method)
    decoder = decoder_named(method)
    options = check_options(decoder, bound_options | method_options)
    temperature = python_number(temperature)
    check_temperature(decoder, temperature)
    request = _request(
        backbone,
        prompt_ids,
        decoder,
        options,
        python_number(gen_length),
        python_number(block_length),
        given,
        temperature=temperature,
        sampler=Sampler(python_number(seed)) if sampler is None else sampler,
        observer=observer,
    )
    target = request.backbone
    draft = request.draft
    # Decoders fill the sequence in place; afterwards it is compared with this copy.
    before_L = request.x_1L[0].clone()
    if isinstance(observer, FullObserver):
        observer.began(lambda: target.calls + draft.calls)
        if given is not None:
            request.show_committed(sorted(request.given), None, "filled")
    request.sampler.timer = DrawTimer(target.device) if temperature > 0 else None
    clock = Clock(target.device)
    try:
        with torch.inference_mode(), counted_by((target, draft)):
            decoder(request, options)
            # A block model stops after the block that has EOS: the rest is still masked.
            if request.grid is not None:
                fill_after_eos(request)
    except (RuntimeError, ValueError):
        # Logits that are not finite are the cause of what a decoder fails with: name them instead.
        target.check_logits(draft)
        raise
    spent = clock.stop()
    target.check_logits(draft)
    if not decoder.may_leave_masks:
        fill_after_eos(request)
    # The last changes may have been made in place.
    request.observe()
    end = request.start + request.length
    after_L = request.x_1L[0, :end]
    _check_response(decoder, before_L[:end], after_L, request.start, backbone)
    return Decoded(after_L[request.start :].clone(), _trace(request, clock.start_time, spent))


def _request(
    backbone: BackboneLike,
    prompt_ids: Tensor | list[int],
    decoder: Decoder,
    options: Options,
    gen_length: int,
    block_length: int | None,
    given: Tensor | None,
    **settings: Any,
) -> Request:
    """The request for a response, with its models in new ledgers.

    Arguments and ValueErrors are those of `decode`; settings are other fields of the Request.
    """
    blocks: Blocks | None = getattr(backbone, "blocks", None)
    check_blocks(decoder, blocks)
    if blocks is not None and not blocks.causal:
        blocks = replace(blocks, length=block_length or blocks.length)
        block_length = blocks.length
    block_length = gen_length if block_length is None else block_length
    check_lengths(gen_length, block_length)
    prompt_1P = _prompt(prompt_ids, backbone, gen_length)
    start = prompt_1P.shape[1]
    draft_model = getattr(options, "draft", None)
    if draft_model is None:
        draft_model = backbone
    _check_draft(draft_model, backbone)
    target, draft = ledgers(backbone, draft_model, start, blocks)
    if decoder.needs_extend and not target.can_extend:
        raise ValueError(
            f"{decoder.name} needs a backbone with an attention mask (a method `extend`)"
        )
    x_1L = torch.cat([prompt_1P, _response(given, backbone, gen_length)], 1)
    end = x_1L.shape[1]
    grid = target.grid if isinstance(target, BlockLedger) else None
    if grid is not None:  # the model's last block may reach beyond the response
        x_1L = F.pad(x_1L, (0, grid.end(end - 1) - end), value=backbone.mask_id)
    fixed = frozenset((x_1L[0] != target.mask_id).nonzero()[:, 0].tolist())
    return Request(
        target,
        draft,
        x_1L,
        start,
        block_length,
        given=fixed,
        grid=grid,
        end=end,
        **settings,
    )


def _check_draft(draft_model: BackboneLike, backbone: BackboneLike) -> None:
    """Raise ValueError for a draft model that cannot draft for the target."""
    # Drafts are ids of the target's vocabulary, and both models must read its masks.
    for name in ("mask_id", "vocab_size"):
        value = getattr(backbone, name)
        if not hasattr(draft_model, "logits") or getattr(draft_model, name, None) != value:
            raise ValueError(f"draft must be a backbone with the target's {name}, {value}")


def _trace(request: Request, start_time: float, spent: Spent) -> Trace:
    """The costs of a finished response. start_time: time.perf_counter when decoding began."""
    target = request.backbone
    draft = request.draft
    finished = [(end - request.start, at - start_time) for end, at in request.finished]
    block_times = [(end, seconds) for end, seconds in finished if end < request.length]
    changed = target.changed + draft.changed
    timer = request.sampler.timer
    # The last block is finished when the decoder returns.
    has_times = block_times or len(request.block_ends) == 1
    return Trace(
        forwards=target.calls + draft.calls,
        rows=target.rows + draft.rows,
        token_forwards=target.tokens + draft.tokens,
        cached_tokens=target.cached + draft.cached,
        draft_forwards=draft.calls,
        draft_rows=draft.rows,
        draft_token_forwards=draft.tokens,
        changed_forwards=changed,
        flop=None if changed else added(target.flop, draft.flop),
        draw_seconds=None if timer is None else timer.total(),
        block_seconds=[*block_times, (request.length, spent.seconds)] if has_times else [],
        windows=request.windows,
        **vars(spent),
    )


def check_options(decoder: Decoder, options: dict[str, Any]) -> Options:
    """Make a decoder's options from keyword arguments or JSON values.

    Raises:
        ValueError: an option is unknown or has a bad value; the message says what is valid.
    """
    return convert_options(decoder.options, options, decoder.name)


def check_temperature(decoder: Decoder, temperature: float) -> None:
    """Check that a decoder is defined at a temperature.

    Raises:
        ValueError: it is not defined there, or the temperature is negative, infinite or no number.
    """
    if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature!r} must be a number, finite and not negative")
    if decoder.greedy_only and temperature > 0:
        raise ValueError(f"{decoder.name} is defined at temperature 0, not {temperature}")


def check_blocks(decoder: Decoder, blocks: Blocks | None) -> None:
    """Check that a decoder can decode a model with this attention.

    Args:
        decoder: the decoder.
        blocks: the blocks that the model attends in (None: it attends to the whole sequence).

    Raises:
        ValueError: the decoder is for other models.
    """
    problem = _unfit_attention(decoder, blocks)
    if blocks is not None and blocks.causal:
        if not decoder.causal:
            problem = "decodes diffusion models, and this one is autoregressive: use ar"
    elif decoder.causal:
        problem = "decodes autoregressive models, and this is a diffusion model"
    elif blocks is not None and not blocks.masks:
        if not decoder.canvases:
            problem = "reads masks, and this model has none, it denoises random tokens: use renoise"
    elif decoder.canvases:
        problem = "decodes models that denoise random tokens, and this one has a mask"
    if problem is not None:
        raise ValueError(f"{decoder.name} {problem}")


def _unfit_attention(decoder: Decoder, blocks: Blocks | None) -> str | None:
    """Why a decoder does not fit a mask model's attention, as an error message; None if it fits."""
    if blocks is None:
        if decoder.blocks_only:
            return "decodes models that attend in blocks; this one attends to the whole sequence"
    elif decoder.whole_sequence and not blocks.causal:
        return f"attends to the whole sequence, and the model in blocks of {blocks.length}"
    return None


def check_lengths(gen_length: int, block_length: int) -> None:
    """Check that a response divides into blocks.

    Raises:
        ValueError: a length is no positive integer, or the block length does not divide the
            response's.
    """
    # Not isinstance: True is an int too.
    if not all(type(length) is int and length >= 1 for length in (gen_length, block_length)):
        raise ValueError(
            f"gen_length={gen_length!r} and block_length={block_length!r} must be integers of at"
            " least 1"
        )
    if gen_length % block_length:
        raise ValueError(
            f"block_length={block_length} must divide gen_length={gen_length}; {gen_length} is the"
            " full sequence"
        )


def _check_response(
    decoder: Decoder,
    before_L: Tensor,
    after_L: Tensor,
    start: int,
    backbone: BackboneLike,
) -> None:
    """Check that a decoder filled the response's masks and changed nothing else. Raises ValueError,
    which names the broken rule."""
    # Masks in the prompt may be filled too, as the official sampler does.
    is_changed_L = (before_L != after_L) & (before_L != backbone.mask_id)
    changed = is_changed_L.nonzero()[:, 0].tolist()
    outside = after_L[(after_L < 0) | (after_L >= backbone.vocab_size)].tolist()
    masks = int((after_L[start:] == backbone.mask_id).sum())
    problem = None
    if changed:
        problem = (
            f"changed position {changed[0]} of the sequence: it may fill masks alone, from position"
            f" {start} on"
        )
    elif outside:
        problem = (
            f"put id {outside[0]} into the response: the vocabulary is 0 to"
            f" {backbone.vocab_size - 1}"
        )
    elif masks and not decoder.may_leave_masks:
        problem = (
            f"left {masks} of {len(after_L) - start} positions masked: it must fill all of them,"
            " or be registered with may_leave_masks=True"
        )
    if problem is not None:
        raise ValueError(f"decoder {decoder.name} {problem}")


def _prompt(prompt_ids: Tensor | list[int], backbone: BackboneLike, gen_length: int) -> Tensor:
    """The prompt as (1, P) on the CPU."""
    try:
        ids = torch.as_tensor(prompt_ids)
    except (TypeError, ValueError, RuntimeError) as error:  # text, or what a tokenizer returns
        raise ValueError(
            "prompt_ids must be ids of shape (P,) or (1, P); model_wrappers.chat encodes text"
        ) from error
    if not ids.numel():
        raise ValueError("empty prompt: prompt_ids has no tokens")
    ids_1P = _ids("prompt_ids", ids, ids.numel(), backbone)
    limit = getattr(backbone, "max_length", None)
    length = ids_1P.shape[1]
    if limit is not None and length + gen_length > limit:
        raise ValueError(
            f"prompt of {length} tokens and gen_length={gen_length} exceed the model's limit of"
            f" {limit} tokens"
        )
    return ids_1P


def _response(given: Tensor | None, backbone: BackboneLike, gen_length: int) -> Tensor:
    """The response before decoding: the given one, or masks, as (1, gen_length) on the CPU."""
    if given is None:
        return torch.full((1, gen_length), backbone.mask_id)
    ids_1G = _ids("given", torch.as_tensor(given), gen_length, backbone)
    if not bool((ids_1G == backbone.mask_id).any()):
        raise ValueError(f"given holds no mask (id {backbone.mask_id}): nothing is left to predict")
    return ids_1G


def _ids(name: str, ids: Tensor, length: int, backbone: BackboneLike) -> Tensor:
    """Token ids (length,) or (1, length) of the vocabulary, as (1, length) on the CPU."""
    is_shaped = ids.shape in ((length,), (1, length))
    if ids.dtype not in (torch.int64, torch.int32) or not is_shaped:
        raise ValueError(
            f"{name} must be {length} integers in one row, not {ids.dtype} {tuple(ids.shape)}"
        )
    if bool(((ids < 0) | (ids >= backbone.vocab_size)).any()):
        raise ValueError(f"{name} lie outside the vocabulary of {backbone.vocab_size} tokens")
    return ids.reshape(1, -1).long().cpu()
