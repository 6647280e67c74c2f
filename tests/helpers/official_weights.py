"""Random weights that depend on names, shapes and a seed alone, so that two implementations can
have the same."""

import hashlib

import torch
from torch.nn import functional as F

Shapes = dict[str, list[int]]


def random_weights(shapes: Shapes, seed: int) -> dict[str, torch.Tensor]:
    """Tensors by name, fp32: normal with a standard deviation of 0.3, scales of norms around 1."""
    return {name: _random(name, shape, seed) for name, shape in sorted(shapes.items())}


def random_ids(shape: tuple[int, int], vocab_size: int, seed: int) -> torch.Tensor:
    """Ids, LongTensor of a shape."""
    return torch.randint(0, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def kernels() -> str:
    """A hash of what torch gives here in the operations of these models: elsewhere sums are rounded
    in another order.

    Where it is the same on two machines, the same computation gives the same logits on both, bit
    for bit.
    """
    made = hashlib.sha256()
    for dtype in (torch.float32, torch.bfloat16):
        for rows, width, out in (
            (48, 32, 64),
            (48, 64, 32),
            (48, 32, 16),
            (11, 32, 16),
            (3, 16, 32),
        ):
            both = (("x", [rows, width]), ("w", [out, width]))
            x, weight = (_random(name, shape, 0).to(dtype) for name, shape in both)
            scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True))
            for result in (
                F.linear(x, weight),
                F.silu(x),
                x.float().softmax(-1),
                scale,
                x.float().cos(),
            ):
                made.update(result.float().numpy().tobytes())
        for heads, key_heads, size in ((4, 4, 8), (4, 2, 8), (4, 2, 16)):
            shapes = ([2, heads, 24, size], [2, key_heads, 24, size], [2, key_heads, 24, size])
            q, k, v = (
                _random(str(number), shape, 0).to(dtype) for number, shape in enumerate(shapes)
            )
            k, v = (x.repeat_interleave(heads // key_heads, 1) for x in (k, v))
            made.update(F.scaled_dot_product_attention(q, k, v).float().numpy().tobytes())
    return made.hexdigest()


def _random(name: str, shape: list[int], seed: int) -> torch.Tensor:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    is_scale = len(shape) == 1 and not name.endswith("bias")
    return 0.3 * torch.randn(shape, generator=generator) + is_scale
