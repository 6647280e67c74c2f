"""What a transformers model needs to be a backbone: the vocabulary head runs only at positions
whose logits are read.

Shapes: B batch, L length, N tokens, D hidden size, V vocabulary, n positions whose logits are read.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from model_wrappers.backbones.protocol import KeyValues


class HeadAtPositions(torch.nn.Module):
    """A mixin for transformers models with a vocabulary head, which runs only at given positions.

    Raises:
        ValueError: the config has layers with sliding windows, which masks here do not have.
    """

    model: Any
    lm_head: Any
    # Of transformers' models, whose types are not analysed (pyproject.toml).
    config: Any
    set_attn_implementation: Any

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
        """Run the model's own layers one after the other.

        Args:
            ids_BN: the tokens.
            position_BN: their positions in the sequence.
            visible_B1NK: bool, which tokens each token attends to (None: all).
            cache: keys and values, to which the layers add (None: no cache).
            positions: where logits are read, as in `read_positions` (None: everywhere).

        Returns:
            Logits (B, n, V), or (B, N, V) if positions is None.
        """
        # Not the model's forward: what transformers does around the layers at every call takes a
        # seventh of the time of small pieces.
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
        """The logits (B, n, V) of normed hidden states, in the dtype that decoders get."""
        return self.lm_head(hidden_BnD)

    def forward(self, *args: Any, positions: Tensor | None = None, **kwargs: Any) -> Any:
        """The model's own forward, but with the vocabulary head only at `positions`, if these are
        given (see read_positions)."""
        if positions is None:
            return super().forward(*args, **kwargs)
        output = self.model(*args, **kwargs)
        logits = self.lm_head(read_positions(output.last_hidden_state, positions))
        return CausalLMOutputWithPast(logits=logits, past_key_values=output.past_key_values)


class ExpertsAtPositions(HeadAtPositions):
    """HeadAtPositions for a mixture of experts of transformers."""

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        # transformers looks for its decorator in the file that defines the class, which is a file
        # of this project; the experts do have the decorator.
        return True


def read_positions(values_BLD: Tensor, positions: Tensor | None) -> Tensor:
    """The values (B, L, D) at positions.

    Args:
        values_BLD: the values of all tokens.
        positions: LongTensor (n,), the same in every row, or (B, n), each row's (None: all).

    Returns:
        (B, n, D), or (B, L, D).
    """
    if positions is None:
        return values_BLD
    positions = positions.to(values_BLD.device)
    if positions.dim() == 1:
        return values_BLD[:, positions]
    return torch.take_along_dim(values_BLD, positions[..., None], dim=1)
