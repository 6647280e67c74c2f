"""DiffusionGemma, as transformers has it: a decoder denoises canvases of random tokens behind a causal encoder.

The encoder keeps keys and values of the prompt and of finished canvases, causally; the decoder, of the same weights,
sees those and the whole canvas. There is no mask: a canvas begins as random tokens, and the logits of the last step,
as expected embeddings, condition the next one. So what reads masks does not decode it; `renoise` does. No remote code
is ever run. Shapes: K tokens before the canvas, C of the canvas, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache

from model_wrappers.backbones.model import Backbone, Family


@dataclass
class Encoded:
    """What the encoder keeps of the first `count` tokens."""

    cache: Any
    count: int = 0


class CanvasBackbone(Backbone):
    """A model that denoises canvases. Its mask_id is behind its vocabulary: a position that holds no token yet."""

    @torch.inference_mode()
    def denoise(
        self,
        ids_1K: torch.Tensor,
        canvas_1C: torch.Tensor,
        previous_1CV: torch.Tensor | None = None,
        encoded: Encoded | None = None,
    ) -> tuple[torch.Tensor, Encoded]:
        """Logits (1, C, V), fp32, of a canvas behind the tokens ids_1K, and what is kept of these.

        previous_1CV: the logits of the last step on this canvas, as the sampler changed them (None: its first step).
        encoded: what an earlier call kept of the first of these tokens; it is changed in place.
        """
        if encoded is None:
            encoded = Encoded(DynamicCache(config=self.model.config.get_text_config(decoder=True)))
        count, device = ids_1K.shape[1], ids_1K.device
        new: dict[str, Any] = {}
        if count > encoded.count:
            new["input_ids"] = ids_1K[:, encoded.count :]
            new["position_ids"] = torch.arange(encoded.count, count, device=device)[None]
            self.calls += 1
        self.calls += 1
        if previous_1CV is not None:
            previous_1CV = previous_1CV.to(self.dtype)
        logits_1CV = self.model(
            **new,
            past_key_values=encoded.cache,
            decoder_input_ids=canvas_1C,
            self_conditioning_logits=previous_1CV,
            decoder_position_ids=torch.arange(count, count + canvas_1C.shape[1], device=device)[None],
        ).logits
        encoded.count = count
        return logits_1CV, encoded


FAMILY = Family(
    model_type="diffusion_gemma",
    model=DiffusionGemmaForBlockDiffusion,
    attention={"sdpa": "sdpa"},
    end_of_turn="<turn|>",
    mask=None,
    published_ids={"<turn|>": 106},
    extends=False,
    backbone=CanvasBackbone,
)
