"""Floating-point operations (FLOP) of a model's calls, as torch's FlopCounterMode counts them:
those of matrix products and of attention, two for a multiplication and its addition."""

from typing import NamedTuple


class Shapes(NamedTuple):
    """The sizes of a dense model that its FLOP depend on.

    Attributes:
        weights: numbers in the matrices of all layers, without the vocabulary head.
        attention: heads * head size, summed over the layers.
        head: numbers in the matrix of the vocabulary head.
    """

    weights: int
    attention: int
    head: int


def flop_of(shapes: Shapes | None, tokens: int, keys: int, read: int) -> int | None:
    """The FLOP of one call.

    Args:
        shapes: the model's shapes (None: not known).
        tokens: number of tokens of all rows.
        keys: number of keys of each token, including those that a mask hides.
        read: number of positions of all rows whose logits are read.

    Returns:
        The FLOP; None without shapes.
    """
    if shapes is None:
        return None
    linear = 2 * shapes.weights * tokens
    head = 2 * shapes.head * read
    # Two matrix products: queries times keys, and weights times values.
    attention = 4 * shapes.attention * tokens * keys
    return linear + head + attention


def added(first: int | None, second: int | None) -> int | None:
    """The sum of two counts; None if one of them is not known."""
    if first is None or second is None:
        return None
    return first + second
