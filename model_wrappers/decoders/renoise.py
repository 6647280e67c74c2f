"""Entropy-bounded re-noising of canvases: DiffusionGemma's own sampler (transformers,
`generation_diffusion_gemma.py`).

A canvas begins as random tokens. A step draws a token at every position, keeps those of least
entropy within a bound on their summed entropy (after EB-Sampler, arXiv 2505.24857), and replaces
the others by random tokens. The canvas ends when the likeliest tokens stay the same and the mean
entropy is small; its tokens are these likeliest ones. Shapes: C positions of the canvas, V
vocabulary.
"""

import torch
from torch import Tensor

from model_wrappers.options import AboveZero, Options, Positive
from model_wrappers.request import Request
from model_wrappers.sampling import probs_at
from model_wrappers.transfers import to_host


class RenoiseOptions(Options, frozen=True, kw_only=True):
    """Options of the decoder `renoise`.

    Attributes:
        steps: the most steps of a canvas.
        entropy_bound: bound, in nats, on the summed entropy of the tokens that a step keeps,
            without the largest.
        t_min: temperature that the steps approach, linearly.
        t_max: temperature of the first step.
        stability: number of earlier steps whose likeliest tokens a canvas must repeat to end.
        confidence: the mean entropy, in nats, below which a canvas may end.
        stop_at_eos: whether decoding ends with the first canvas that has an EOS or EoT.
    """

    steps: Positive = 48
    entropy_bound: AboveZero = 0.1
    t_min: AboveZero = 0.4
    t_max: AboveZero = 0.8
    stability: Positive = 1
    confidence: AboveZero = 0.005
    stop_at_eos: bool = True

    def check(self) -> None:
        if self.t_max <= self.t_min:
            raise ValueError(f"t_max={self.t_max} must be above t_min={self.t_min}")


def decode_renoise(request: Request, options: RenoiseOptions) -> None:
    """Fill the response. It is random at the request's temperature 0 too: the temperatures are
    `t_max` to `t_min`."""
    x_1L = request.x_1L
    backbone = request.backbone
    sampler = request.sampler
    ends = torch.tensor(backbone.ends)
    encoded = None
    for block in request.blocks():
        begin = block.start
        end = block.stop
        count = len(block)
        at_C = torch.arange(begin, end)
        request.remask(at_C.tolist(), sampler.noise(count, backbone.vocab_size))
        # The model is conditioned on its logits of the step before (self-conditioning).
        previous_1CV = None
        earlier = list[Tensor]()
        for left in range(options.steps, 0, -1):
            logits_1CV, encoded = backbone.denoise(
                x_1L[:, :begin], x_1L[:, begin:end], previous_1CV, encoded
            )
            previous_1CV = logits_1CV / (
                options.t_min + (options.t_max - options.t_min) * (left / options.steps)
            )
            probs_CV = torch.softmax(previous_1CV[0], -1, dtype=torch.float32)
            drawn_C = sampler.tokens(probs_CV)
            likeliest_C = previous_1CV[0].argmax(-1)
            drawn_C, drawn_prob_C, likeliest_C, likeliest_prob_C, entropy_C = to_host(
                drawn_C,
                probs_at(probs_CV, drawn_C),
                likeliest_C,
                probs_at(probs_CV, likeliest_C),
                torch.distributions.Categorical(logits=previous_1CV[0]).entropy(),
            )
            fits_C = within(entropy_C, options.entropy_bound)
            request.commit(at_C[fits_C], drawn_C[fits_C], drawn_prob_C[fits_C], "unmasked")
            # Noise is drawn for all positions, as in the official sampler, so that its draws agree.
            noise_C = sampler.noise(count, backbone.vocab_size)
            request.remask(at_C[~fits_C].tolist(), noise_C[~fits_C])
            stable = len(earlier) == options.stability and all(
                bool((earlier_C == likeliest_C).all()) for earlier_C in earlier
            )
            earlier = [*earlier, likeliest_C][-options.stability :]
            if stable and bool(entropy_C.mean() < options.confidence):
                break
        request.commit(at_C, likeliest_C, likeliest_prob_C, "unmasked")
        if options.stop_at_eos and bool((is_end_C := torch.isin(likeliest_C, ends)).any()):
            # argmax gives the first of equal values, so the first end of the canvas.
            after_end_C = at_C[int(is_end_C.int().argmax()) + 1 :]
            request.commit(after_end_C, backbone.eos_id, None, "filled")
            rest = torch.arange(end, x_1L.shape[1])
            return request.commit(rest, backbone.eos_id, None, "filled")
        request.finish(block)


def within(entropy_C: Tensor, bound: float) -> Tensor:
    """Which positions a step keeps, bool (C,): each for which the sum of all lower entropies is at
    most `bound`."""
    sorted_C, order_C = entropy_C.sort()
    fits_C = sorted_C.cumsum(0) - sorted_C <= bound
    return torch.zeros_like(fits_C).scatter(0, order_C, fits_C)
