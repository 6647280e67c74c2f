"""What decoders need of a model, and the ledger: the one place where cost is counted.

Shapes: B batch, L length, V vocabulary, n positions whose logits are read, N tokens put after K cached ones.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch

from model_wrappers.backbones.key_values import KeyValues, Write


class BackboneLike(Protocol):
    """What decoders need of a model.

    Optional: `max_length`, `device`, `eot_id`, `extend` (see model.Backbone), and `reads_at`, 0 where it is missing: -1
    says that the logits of a position come from the token before it, which matters to `extend` alone.
    """

    mask_id: int
    eos_id: int
    vocab_size: int

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """Logits (B, L, V); with positions (n,) those positions of every row, with (B, n) each row's own: (B, n, V)."""


class Ledger:
    """A backbone that counts: the one place where cost is counted, and where what a model gives is watched.

    Since it was made: calls, rows and tokens that went through the model, and cached, how many keys and values of
    tokens were read from a cache instead.
    """

    def __init__(self, backbone: BackboneLike) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = backbone.mask_id, backbone.eos_id, backbone.vocab_size
        self.eot_id: int | None = getattr(backbone, "eot_id", None)
        self.device = torch.device(getattr(backbone, "device", "cpu"))
        self.max_length: int | None = getattr(backbone, "max_length", None)
        self.reads_at: int = getattr(backbone, "reads_at", 0)
        self.can_extend = callable(getattr(backbone, "extend", None))
        self.calls = self.rows = self.tokens = self.cached = 0
        self._total: torch.Tensor | None = None
        self._before: int | None = getattr(backbone, "calls", None)

    def ends_out_of_confidence(self, temperature: float) -> list[int]:
        """The ids that `confidence_eos_eot_inf` leaves out of the softmax that gives confidences.

        EOS and EoT, as far as the model has one. Above temperature 0 the official sampler leaves out EoT alone: there
        its logits with noise, of which it takes out EOS, are not those that give confidences.
        """
        ends = [self.eot_id] if temperature > 0 else [self.eos_id, self.eot_id]
        return [end for end in ends if end is not None]

    def is_model_of(self, other: Ledger) -> bool:
        """Whether both count the same backbone."""
        return self._backbone is other._backbone

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """The backbone's logits, entered in the ledger."""
        self.calls += 1
        self.rows += ids_BL.shape[0]
        self.tokens += ids_BL.numel()
        return self._watched(self._backbone.logits(ids_BL, positions=positions, causal=causal))

    def extend(
        self,
        ids_1N: torch.Tensor,
        position_N: torch.Tensor,
        positions: torch.Tensor,
        cache: KeyValues | None = None,
        visible_NK: torch.Tensor | None = None,
        write: Write = "append",
        slot_N: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, KeyValues]:
        """The backbone's `extend`, entered in the ledger: one row, N tokens, and the cached ones that are not new."""
        self.calls += 1
        self.rows += 1
        self.tokens += ids_1N.numel()
        if cache is not None:
            self.cached += cache.get_seq_length() - (ids_1N.numel() if write == "replace" else 0)
        backbone: Any = self._backbone
        # A backbone that only appends need not know of the rest.
        how = {} if write == "append" else {"write": write, "slot_N": slot_N}
        logits, cache = backbone.extend(ids_1N, position_N, positions, cache=cache, visible_NK=visible_NK, **how)
        return self._watched(logits), cache

    def context(
        self, ids_1L: torch.Tensor, read_n: torch.Tensor, cache: KeyValues | None = None
    ) -> tuple[torch.Tensor, KeyValues]:
        """Logits (1, n, V) at read_n, LongTensor (n,), and keys and values of all that these positions attend to.

        cache: an earlier one of the decoder's, in whose room they may be put.
        """
        if cache is not None:
            cache.forget(cache.get_seq_length())
        return self.extend(ids_1L, torch.arange(ids_1L.shape[1], device=ids_1L.device), read_n, cache)

    def denoise(
        self, ids_1K: torch.Tensor, canvas_1C: torch.Tensor, previous_1CV: torch.Tensor | None, encoded: Any
    ) -> tuple[torch.Tensor, Any]:
        """A canvas model's `denoise`, entered in the ledger; what it encodes first is a call of its own."""
        known = 0 if encoded is None else encoded.count
        parts = [canvas_1C.numel(), *([ids_1K.numel() - known] if ids_1K.numel() > known else [])]
        self.calls += len(parts)
        self.rows += len(parts)
        self.tokens += sum(parts)
        self.cached += ids_1K.numel() + (known if len(parts) > 1 else 0)
        backbone: Any = self._backbone
        logits_1CV, encoded = backbone.denoise(ids_1K, canvas_1C, previous_1CV, encoded)
        return self._watched(logits_1CV), encoded

    def check_counted(self, other: Ledger) -> None:
        """Raise ValueError if the backbone was called since this was made, and neither this nor the other counted it.

        Not where that cannot be told: a backbone without `calls` does not say, and one of the other that has none may
        pass its calls on to this one.
        """
        if self._before is None or other._before is None:
            return
        counted = self.calls + (other.calls if other.is_model_of(self) else 0)
        called = self._backbone.calls - self._before  # type: ignore[attr-defined]
        if called != counted:
            raise ValueError(
                f"the model was called {called} times and {counted} of them are counted: a decoder calls it through "
                "request.backbone and request.draft alone, and leaves their counts as they are"
            )

    def check_logits(self, other: Ledger) -> None:
        """Raise ValueError if any logits of this or the other were NaN or +inf; -inf is a probability of 0."""
        totals = [float(ledger._total) for ledger in (self, other) if ledger._total is not None]
        if any(math.isnan(total) or total == math.inf for total in totals):
            raise ValueError(
                "the model's logits are not finite: its weights are damaged, or its dtype overflows (try float32)"
            )

    def _watched(self, logits: torch.Tensor) -> torch.Tensor:
        # A running sum is NaN or +inf if any logit was. It stays on the device: nothing waits for it while decoding.
        total = logits.sum(dtype=None if logits.dtype == torch.float64 else torch.float32)
        self._total = total if self._total is None else self._total + total
        return logits
