"""Keys and values of a sequence, in buffers that are made once and grow when they must: no call copies what it keeps.

Shapes: N tokens of a call, K that are kept, D head size, H heads.
"""

from typing import Any, Literal

import torch

# What becomes of the keys and values of new tokens: put behind the kept ones, in the place of some, or not kept.
Write = Literal["append", "replace", "none"]
Buffers = tuple[list[torch.Tensor], list[torch.Tensor]]  # keys and values by layer, (1, H, capacity, D) each
ROOM = 64  # tokens that a new buffer has room for beyond those it is made for, at least; or a quarter of them


class KeyValues:
    """What transformers' attention layers take for a cache.

    A call says first how it writes (`begin`); then every layer hands over its new keys and values (`update`) and gets
    all that there are; in the end they count (`end`).
    """

    def __init__(self) -> None:
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._kept = self._filled = 0
        self._write: Write = "append"
        self._slot_N: torch.Tensor | None = None

    @property
    def buffers(self) -> Buffers:
        """Where keys and values lie, by layer; empty lists before the first call."""
        return self._keys, self._values

    @property
    def filled(self) -> int:
        """How many tokens a query of the call that has begun may see: the kept ones and, if they are new, its own."""
        return self._filled

    def adopt(self, buffers: Buffers) -> None:
        """Use other buffers from now on, with what is kept and else zeros in them."""
        for own, others in zip((self._keys, self._values), buffers, strict=True):
            for layer, other in enumerate(others):
                other.zero_()
                if own:
                    other[:, :, : self._kept] = own[layer][:, :, : self._kept]
        self._keys, self._values = (list(each) for each in buffers)

    def slots(self, count: int, device: torch.device) -> torch.Tensor:
        """Where the call that has begun puts its tokens, and behind all that is kept any others up to `count`, (N,)."""
        behind_N = torch.arange(self._kept, self._kept + count, device=device)
        if self._slot_N is None or self._write != "replace":
            return behind_N
        return torch.cat([self._slot_N, behind_N[: count - len(self._slot_N)]])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens are kept, in every layer."""
        return self._kept

    def layers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The kept keys and values of every layer, (1, H, K, D) each."""
        pairs = zip(self._keys, self._values, strict=True)
        return [(keys[:, :, : self._kept], values[:, :, : self._kept]) for keys, values in pairs]

    def forget(self, count: int) -> None:
        """Keep the last `count` tokens no longer. Raises ValueError for more than there are."""
        if not 0 <= count <= self._kept:
            raise ValueError(f"{count} of {self._kept} tokens cannot be forgotten")
        self._kept -= count

    def begin(self, count: int, write: Write = "append", slot_N: torch.Tensor | None = None) -> None:
        """A call with `count` tokens. write, slot_N: as `Backbone.extend` takes them."""
        self._write, self._slot_N = write, slot_N
        self._filled = self._kept + (0 if write == "replace" else count)

    def update(
        self, key_1HND: torch.Tensor, value_1HND: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take the new keys and values of a layer; all of it, with them: (1, H, K + N, D), or K if they replace.

        Keys leave the rotation as fp32; kept in the values' dtype, which is the one attention casts them to.
        """
        key_1HND = key_1HND.to(value_1HND.dtype)
        if layer_idx == len(self._keys):
            self._keys.append(self._buffer(key_1HND))
            self._values.append(self._buffer(value_1HND))
        for buffers, new_1HND in ((self._keys, key_1HND), (self._values, value_1HND)):
            if buffers[layer_idx].shape[2] < self._filled:
                larger = self._buffer(new_1HND)
                larger[:, :, : self._kept] = buffers[layer_idx][:, :, : self._kept]
                buffers[layer_idx] = larger
            if self._write == "replace":
                assert self._slot_N is not None, "begin() says where"
                buffers[layer_idx].index_copy_(2, self._slot_N, new_1HND)
            else:
                buffers[layer_idx].narrow(2, self._kept, self._filled - self._kept).copy_(new_1HND)
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        return keys.narrow(2, 0, self._filled), values.narrow(2, 0, self._filled)

    def end(self) -> None:
        """The call is over: what it appended is kept."""
        if self._write == "append":
            self._kept = self._filled

    def _buffer(self, like_1HND: torch.Tensor) -> torch.Tensor:
        room = max(ROOM, self._filled // 4)
        return like_1HND.new_zeros(*like_1HND.shape[:2], self._filled + room, like_1HND.shape[3])
