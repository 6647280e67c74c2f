"""A model of no known family, by the code that comes with it: logits of whole sequences, and nothing else.

That code runs on this machine with all rights of the user; it is loaded only where the user says so. What it computes
is taken as it is: `model(ids)` must give `.logits` (B, L, V) of bidirectional attention.

Not supported: `extend` (two-stream verification, wino, caches), causal attention (dcd), CUDA graphs, training.
Shapes: B batch, L length, V vocabulary, n positions whose logits are read.
"""

import sys
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from model_wrappers.backbones.heads import read_positions
from model_wrappers.backbones.model import Backbone, Family, ReadsAt
from model_wrappers.backbones.weights import load_weights

AUTO_CLASSES = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel")
LENGTH_FIELDS = ("max_position_embeddings", "max_sequence_length", "n_positions")


class RemoteBackbone(Backbone):
    """Logits of a model whose layers are unknown.

    Mask and EOS are what its config names, else its tokenizer; a turn ends at the tokenizer's EOS, if that is another.
    """

    extend: Any = None

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """As `Backbone.logits`; the vocabulary head runs everywhere.

        Raises ValueError for causal=True, and for a model that gives no logits of this shape.
        """
        if causal:
            raise ValueError(f"{self.name} is run by code of its own, which is not asked for causal attention")
        self.calls += 1
        with torch.inference_mode():
            logits_BLV = getattr(self.model(ids_BL), "logits", None)
        wanted = (*ids_BL.shape, self.vocab_size)
        if logits_BLV is None or logits_BLV.shape != wanted:
            given = "no logits" if logits_BLV is None else f"logits of shape {tuple(logits_BLV.shape)}"
            raise ValueError(f"the code of {self.name} gives {given}, not those of shape {wanted}")
        read = self._read_in_whole(positions, ids_BL.shape[1], ids_BL.device)
        return logits_BLV if read is None else read_positions(logits_BLV, read)


def load_remote(source: str, config: dict[str, Any], name: str, reads_at: ReadsAt, **options: Any) -> RemoteBackbone:
    """The model of a folder or hub id, by the automatic class that its config.json names, on the CPU.

    options: of transformers' `from_pretrained`. Raises ValueError for weights that are not as they must be.
    """
    named = [each for each in AUTO_CLASSES if each in (config.get("auto_map") or {})]
    kind: Any = getattr(transformers, (named or AUTO_CLASSES)[0])
    model = load_weights(kind, source, trust_remote_code=True, **options)
    tokenizer = _tokenizer(source)
    for field in ("mask_token_id", "eos_token_id"):
        if type(getattr(model.config, field, None)) is not int:
            setattr(model.config, field, getattr(tokenizer, field, None))
    lengths = [getattr(model.config, field) for field in LENGTH_FIELDS if hasattr(model.config, field)]
    model.config.max_position_embeddings = lengths[0] if lengths else sys.maxsize  # no limit that is known
    end = "" if tokenizer is None or tokenizer.eos_token is None else str(tokenizer.eos_token)
    family = Family(str(config.get("model_type")), type(model), {}, end_of_turn=end, reads_at=reads_at)
    return RemoteBackbone(family, model, tokenizer, name)


def _tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer, by its own code where it has some; None where there is none."""
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    except (OSError, ValueError, TypeError, KeyError):
        return None
