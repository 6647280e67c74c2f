"""Every decoder, family and cache on a rehearsed GPU: the tokens of the CPU, no tensor of another
device, and at most two waits and two uploads a call of the model."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from families import tiny
from rehearsal import RehearsedGPU

from model_wrappers import METHODS, Backbone, decode, load_backbone
from model_wrappers.api import check_blocks, check_temperature
from model_wrappers.backbones import plain
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.decoders import decoder_named

LENGTH = 8
PROMPT_P = torch.tensor([3, 5, 7])
# What a response costs beyond its calls: its logits are checked in the end, of both models, and
# uniforms come in blocks.
LAST_WAITS = 2
UNIFORMS = 1
WAYS: dict[str, list[dict[str, Any]]] = {
    "llada": [{}, {"cfg_scale": 1.0}, {"remasking": "random"}],
    "dcd": [{}, {"sequential": True}],
    "flash": [{"window": 4, "threshold": 0.3, "gamma": 0.1, "tracked": 4, "masked": 8, "tile": 8}],
    "s2d2": [{}, {"acceptance": "match"}, {"min_expected": 1.5}],
    "block": [{}, {"editing_threshold": 0.1}],
    "fef": [
        {},
        {"speculative": False},
        {"reuse_drafts": True},
        {"skip_root_row": True, "reuse_drafts": True, "adaptive_window": True},
        {"kernel": "uniform"},
        {"verify": "two-stream"},
        {"verify": "two-stream", "anchor": 4, "refresh_below": 0.5},
        {"verify": "two-stream", "order": "confidence", "adaptive_window": True},
    ],
}


def ways() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every decoder with options that change what it reads, and with every cache."""
    for method, decoder in METHODS.items():
        for options in WAYS.get(method, [{}]):
            yield method, options
        if decoder.takes("cache"):
            yield method, {"cache": "prefix"}
            yield method, {"cache": "dual"}


def settings_of(backbone: Backbone, method: str, temperature: float) -> dict[str, Any] | None:
    """What `decode` takes; None where the decoder cannot decode the model so."""
    decoder = decoder_named(method)
    try:
        check_blocks(decoder, backbone.blocks)
        check_temperature(decoder, temperature)
    except ValueError:
        return None
    settings: dict[str, Any] = {"gen_length": LENGTH, "temperature": temperature}
    if decoder.semi_autoregressive and backbone.blocks is None:
        settings["block_length"] = LENGTH // 2
    return settings


def check(family: str, method: str, options: dict[str, Any], temperature: float) -> None:
    # Flash-dLLM ranks tokens by the attention of the third layer and on.
    changes = {"num_hidden_layers": 3} if method == "flash" else {}
    backbone = tiny(family, seed=4, **changes)
    settings = settings_of(backbone, method, temperature)
    if settings is None:
        return
    try:
        expected = decode(backbone, PROMPT_P, method, **settings, **options)
    except ValueError:  # options that this family cannot serve
        return
    gpu = RehearsedGPU()
    # Weights of the rehearsal are of a class of its own; plain layers, which alone show their
    # queries, take them as they are.
    takes_all = patch.object(plain, "_is_untouched", lambda module: method == "flash")
    with gpu, takes_all:
        gpu.place(backbone)
        gpu.clear()
        out = decode(backbone, PROMPT_P, method, **settings, **options)
    assert torch.equal(out.tokens, expected.tokens)
    calls = out.trace.forwards
    assert calls == expected.trace.forwards
    assert gpu.waits.total() <= 2 * calls + LAST_WAITS, gpu.waits.most_common()
    assert gpu.uploads.total() <= 2 * calls + UNIFORMS, gpu.uploads.most_common()


def cases() -> Iterator[Any]:
    """Every way at both temperatures; without options and greedy for most decoders, the others are
    left to the night."""
    for method, options in ways():
        for temperature in (0.0, 1.0):
            often = options in ({}, {"verify": "two-stream"}) or method == "flash"
            often &= temperature == 0 or method in ("llada", "ar")
            marks = [] if often else [pytest.mark.slow]
            yield pytest.param(method, options, temperature, marks=marks)


@pytest.mark.parametrize(("method", "options", "temperature"), cases(), ids=str)
def test_llada_on_a_gpu(method: str, options: dict[str, Any], temperature: float) -> None:
    check("llada", method, options, temperature)


@pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["block", "s2d2", "fef", "freedave"])
def test_a_block_model_on_a_gpu(method: str, temperature: float) -> None:
    check("sdar", method, {}, temperature)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("method", "options"), ways(), ids=str)
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "llada"])
def test_every_family_on_a_gpu(
    family: str, method: str, options: dict[str, Any], temperature: float
) -> None:
    check(family, method, options, temperature)


def test_the_rehearsal_sees_a_wait_and_a_tensor_of_the_cpu() -> None:
    gpu = RehearsedGPU()
    with gpu:
        on_gpu = gpu.put(torch.arange(4.0))
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            on_gpu + torch.arange(4.0)
        assert bool((on_gpu > 2).any())
        assert on_gpu.device.type == "cuda" and on_gpu.cpu().device.type == "cpu"


@pytest.mark.parametrize("where", [{"device": "cuda"}, {"device_map": "auto"}], ids=str)
def test_a_model_on_a_gpu_does_without_cudnns_attention(where: dict[str, str]) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    # An unknown model: the device is seen to before its files are looked for.
    with RehearsedGPU(), pytest.raises(ValueError, match="no-such-model"):
        load_backbone("no-such-model", **where)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
