"""The floating-point operations (FLOP) of a model's calls, as torch's FlopCounterMode counts them:
those of matrix products and of attention, two for a multiplication with its addition."""

from typing import NamedTuple


class Shapes(NamedTuple):
    """What of a dense model its FLOP depend on.

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
        shapes: of the model; None where they are not known.
        tokens: of all rows.
        keys: of a token, those that a mask hides included.
        read: positions where logits are read, of all rows.

    Returns:
        None without shapes.
    """
    if shapes is None:
        return None
    linear = 2 * shapes.weights * tokens
    head = 2 * shapes.head * read
    # Queries times keys, and what comes of it times values.
    attention = 4 * shapes.attention * tokens * keys
    return linear + head + attention


def added(first: int | None, second: int | None) -> int | None:
    """The sum of two counts; None if one of them is not known."""
    if first is None or second is None:
        return None
    return first + second
