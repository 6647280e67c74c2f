"""DiffusionGemma beside transformers' own `generate`: the same canvases, in the same number of
passes."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fakes import tiny_llada, trace_of
from families import VOCABULARY, checkpoint, tiny
from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSamplerConfig

from harness.records.files import replay
from model_wrappers import METHODS, Backbone, decode, load_backbone
from model_wrappers.backbones.blocks import Blocks
from model_wrappers.sampling import Sampler
from model_wrappers.trace import EventLog

PROMPT = torch.tensor([3, 5, 7, 9, 11, 30])
EOS, LENGTH = 1, 24
CASES: list[dict[str, Any]] = [
    {},
    {"steps": 6, "entropy_bound": 5.0, "confidence": 2.0},
    {
        "steps": 12,
        "entropy_bound": 9.0,
        "confidence": 0.5,
        "t_min": 0.1,
        "t_max": 0.2,
        "stability": 2,
    },
    {"steps": 9, "entropy_bound": 2.0, "confidence": 3.5, "t_min": 1.0, "t_max": 3.0},
]


class Scripted(Sampler):
    """The likeliest token, and noise that is a count: what both samplers draw."""

    def __init__(self) -> None:
        self.noises = 0

    def tokens(self, probs_NV: torch.Tensor, needed_1: torch.Tensor | None = None) -> torch.Tensor:
        return probs_NV.argmax(-1)

    def noise(self, count: int, vocab_size: int) -> torch.Tensor:
        self.noises += 1
        return (torch.arange(count) * 7 + self.noises * 3) % vocab_size


@pytest.fixture(scope="module")
def model() -> Backbone:
    return tiny("diffusion_gemma")


def theirs(model: Backbone, **options: Any) -> tuple[list[int], int]:
    """The official response, up to and with EOS, and the decoder's passes."""
    scripted, passes = Scripted(), []
    model.model.model.decoder.register_forward_hook(lambda *_: passes.append(1))

    def randint(low: int, high: int, size: tuple[int, int], **_: Any) -> torch.Tensor:
        return scripted.noise(size[1], high)[None]

    given = {
        "max_denoising_steps": options.get("steps", 48),
        "sampler_config": EntropyBoundSamplerConfig(
            entropy_bound=options.get("entropy_bound", 0.1)
        ),
        "t_min": options.get("t_min", 0.4),
        "t_max": options.get("t_max", 0.8),
        "stability_threshold": options.get("stability", 1),
        "confidence_threshold": options.get("confidence", 0.005),
    }
    likeliest = mock.patch(
        "torch.multinomial", lambda probs, num_samples: probs.argmax(-1, keepdim=True)
    )
    with mock.patch("torch.randint", randint), likeliest:
        out = model.model.generate(
            PROMPT[None], max_new_tokens=LENGTH, pad_token_id=EOS, eos_token_id=EOS, **given
        )
    return out.sequences[0, len(PROMPT) :].tolist(), len(passes)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
)
@pytest.mark.parametrize("options", CASES, ids=str)
def test_tokens_and_passes_are_those_of_generate(options: dict[str, Any], seed: int) -> None:
    model = tiny("diffusion_gemma", seed)
    expected, passes = theirs(model, **options)
    ours = decode(model, PROMPT, "renoise", gen_length=LENGTH, sampler=Scripted(), **options)
    assert ours.tokens.tolist() == expected + [EOS] * (LENGTH - len(expected))
    assert ours.trace.forwards == passes + len(expected) // 8  # the encoder's


def test_a_seed_gives_its_tokens_and_the_response_is_watched(model: Backbone) -> None:
    log = EventLog()
    first = decode(model, PROMPT, "renoise", gen_length=LENGTH, seed=3, steps=4, observer=log)
    assert (
        first.tokens.tolist()
        == decode(model, PROMPT, "renoise", gen_length=LENGTH, seed=3, steps=4).tokens.tolist()
    )
    assert (
        first.tokens.tolist()
        != decode(model, PROMPT, "renoise", gen_length=LENGTH, seed=4, steps=4).tokens.tolist()
    )
    assert replay(trace_of(log, first, model.mask_id)).tolist() == first.tokens.tolist()


def test_a_checkpoint_loads_and_has_no_mask(tmp_path: Path) -> None:
    loaded = load_backbone(checkpoint("diffusion_gemma", tmp_path / "tiny"))
    assert (loaded.mask_id, loaded.eos_id, loaded.eot_id) == (VOCABULARY, EOS, None)
    assert loaded.blocks == Blocks(8, "response", masks=False)
    expected, _ = theirs(loaded)
    ours = decode(loaded, PROMPT, "renoise", gen_length=LENGTH, sampler=Scripted())
    assert ours.tokens.tolist()[: len(expected)] == expected


@pytest.mark.parametrize(
    "method", [name for name, each in METHODS.items() if not each.canvases and not each.causal]
)
def test_what_reads_masks_is_refused(model: Backbone, method: str) -> None:
    with pytest.raises(ValueError, match=f"{method} reads masks, and this model has none"):
        decode(model, PROMPT, method, gen_length=LENGTH)


def test_what_needs_none_is_refused_with_masks() -> None:
    with pytest.raises(ValueError, match="renoise decodes models that denoise random tokens"):
        decode(tiny_llada(0), PROMPT, "renoise", gen_length=8)
    with pytest.raises(ValueError, match=r"t_max=0.2 must be above t_min=0.4"):
        decode(tiny("diffusion_gemma"), PROMPT, "renoise", gen_length=8, t_max=0.2)
