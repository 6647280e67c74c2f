"""The vocabulary head where logits are read, and nowhere else: what a transformers model needs to
be a backbone.

Shapes: B batch, L length, N tokens, D hidden size, V vocabulary, n positions whose logits are read.
"""

from typing import Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from model_wrappers.backbones.protocol import KeyValues


class HeadAtPositions(torch.nn.Module):
    """For a transformers model with a vocabulary head: both ways to run it take the positions that
    the head runs at."""

    model: Any
    lm_head: Any

    def infer(
        self,
        ids_BN: torch.Tensor,
        position_BN: torch.Tensor,
        visible_B1NK: torch.Tensor | None,
        cache: KeyValues | None,
        positions: torch.Tensor | None,
    ) -> torch.Tensor:
        """Logits in both directions, (B, n, V), or (B, N, V) where positions is None (see
        read_positions).

        The model's own layers one after the other, without what transformers does around them at
        every call: on small pieces that takes a seventh of the time. visible_B1NK: bool, what each
        token attends to; None is everything.
        """
        hidden_BND = self.model.embed_tokens(ids_BN)
        rotary = self.model.rotary_emb(hidden_BND, position_BN)
        for layer in self.model.layers:
            hidden_BND = layer(
                hidden_BND,
                attention_mask=visible_B1NK,
                position_ids=position_BN,
                past_key_values=cache,
                use_cache=cache is not None,
                position_embeddings=rotary,
                is_causal=False,
            )
        hidden_BND = self.model.norm(hidden_BND)
        return self.lm_head(
            hidden_BND if positions is None else read_positions(hidden_BND, positions)
        )

    def forward(self, *args: Any, positions: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """The model's own, with the vocabulary head at `positions` alone if they are given (see
        read_positions)."""
        if positions is None:
            return super().forward(*args, **kwargs)
        output = self.model(*args, **kwargs)
        logits = self.lm_head(read_positions(output.last_hidden_state, positions))
        return CausalLMOutputWithPast(logits=logits, past_key_values=output.past_key_values)


class CausalAtPositions(HeadAtPositions):
    """For an autoregressive model. Raises ValueError for a config with sliding windows."""

    def __init__(self, config: Any) -> None:
        if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise ValueError(
                "its config has layers of sliding windows, which this code does not compute"
            )
        super().__init__(config)


class ExpertsAtPositions(HeadAtPositions):
    """For a mixture of experts of transformers', with a class in another file than its experts."""

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        # transformers looks for its decorator in the file of the class; the experts have it.
        return True


def read_positions(values_BLD: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The values (B, L, D) at `positions`, the same (n,) in every row or each row's own (B, n): (B,
    n, D)."""
    if positions.dim() == 1:
        return values_BLD[:, positions]
    return torch.take_along_dim(values_BLD, positions[..., None], dim=1)
