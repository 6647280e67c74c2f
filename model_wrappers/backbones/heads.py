"""The vocabulary head where logits are read, and nowhere else: what a transformers model needs to
be a backbone.

Shapes: B batch, L length, N tokens, D hidden size, V vocabulary, n positions whose logits are read.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from model_wrappers.backbones.protocol import KeyValues


class HeadAtPositions(torch.nn.Module):
    """For a transformers model with a vocabulary head: both ways to run it take the positions that
    the head runs at.

    Raises:
        ValueError: a config with sliding windows, which the layers' masks here do not have.
    """

    model: Any
    lm_head: Any

    def __init__(self, config: Any) -> None:
        if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise ValueError(
                "its config has layers of sliding windows, which this code does not compute"
            )
        super().__init__(config)

    def infer(
        self,
        ids_BN: Tensor,
        position_BN: Tensor,
        visible_B1NK: Tensor | None,
        cache: KeyValues | None,
        positions: Tensor | None,
    ) -> Tensor:
        """The model's own layers one after the other, without what transformers does around them at
        every call: on small pieces that takes a seventh of the time.

        Args:
            ids_BN: the tokens.
            position_BN: their positions in the sequence.
            visible_B1NK: bool, what each token attends to; None is everything.
            cache: takes and gives keys and values; None without one.
            positions: where logits are read (see `read_positions`); None is everywhere.

        Returns:
            Logits (B, n, V), or (B, N, V) where positions is None.
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
        hidden_BnD = read_positions(self.model.norm(hidden_BND), positions)
        # The head of a model on several devices may be on another one than its embedding.
        return self.logits_of(hidden_BnD).to(ids_BN.device)

    def logits_of(self, hidden_BnD: Tensor) -> Tensor:
        """The logits (B, n, V) of normed hidden states, in the dtype that decoders are given."""
        return self.lm_head(hidden_BnD)

    def forward(self, *args: Any, positions: Tensor | None = None, **kwargs: Any) -> Any:
        """The model's own, with the vocabulary head at `positions` alone if they are given (see
        read_positions)."""
        if positions is None:
            return super().forward(*args, **kwargs)
        output = self.model(*args, **kwargs)
        logits = self.lm_head(read_positions(output.last_hidden_state, positions))
        return CausalLMOutputWithPast(logits=logits, past_key_values=output.past_key_values)


class ExpertsAtPositions(HeadAtPositions):
    """For a mixture of experts of transformers', with a class in another file than its experts."""

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        # transformers looks for its decorator in the file of the class; the experts have it.
        return True


def read_positions(values_BLD: Tensor, positions: Tensor | None) -> Tensor:
    """The values (B, L, D) at positions.

    Args:
        values_BLD: of all tokens.
        positions: LongTensor (n,), the same in every row, or (B, n), each row's; None is all.

    Returns:
        (B, n, D), or (B, L, D).
    """
    if positions is None:
        return values_BLD
    positions = positions.to(values_BLD.device)
    if positions.dim() == 1:
        return values_BLD[:, positions]
    return torch.take_along_dim(values_BLD, positions[..., None], dim=1)
