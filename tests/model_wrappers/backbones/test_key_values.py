"""Buffers of keys and values: they hold what was appended, grow, forget, and leave out what is not to be kept."""

from __future__ import annotations

import pytest
import torch

from model_wrappers.backbones.key_values import ROOM, KeyValues, Write


def numbers(first: int, count: int) -> torch.Tensor:
    """Keys (1, 2, count, 3) that are all different."""
    return (first + torch.arange(count * 6.0).view(count, 2, 3)).transpose(0, 1)[None]


def put(cache: KeyValues, new: torch.Tensor, write: Write = "append", slots: list[int] | None = None) -> torch.Tensor:
    """One call of one layer whose values are its keys' negatives; the keys that it gets back."""
    cache.begin(new.shape[2], write, None if slots is None else torch.tensor(slots))
    keys, values = cache.update(new, -new, 0)
    assert torch.equal(values, -keys)
    cache.end()
    return keys.clone()


def kept(cache: KeyValues) -> torch.Tensor:
    ((keys, values),) = cache.layers()
    assert torch.equal(values, -keys)
    return keys


@pytest.mark.parametrize("sizes", [(3, 2), (1, 1, 1), (10, ROOM, 200, 1000)])
def test_what_is_appended_stays_in_order_however_often_buffers_grow(sizes: tuple[int, ...]) -> None:
    cache, pieces = KeyValues(), list[torch.Tensor]()
    for number, size in enumerate(sizes):
        pieces.append(numbers(10_000 * number, size))
        assert torch.equal(put(cache, pieces[-1]), torch.cat(pieces, 2))
        assert torch.equal(kept(cache), torch.cat(pieces, 2)) and cache.get_seq_length() == sum(sizes[: number + 1])


def test_a_buffer_with_room_is_the_same_one() -> None:
    cache = KeyValues()
    put(cache, numbers(0, 5))
    place = kept(cache).data_ptr()
    put(cache, numbers(100, ROOM))
    assert kept(cache).data_ptr() == place
    put(cache, numbers(200, 1))
    assert kept(cache).data_ptr() != place


def test_what_is_forgotten_is_written_over() -> None:
    cache = KeyValues()
    put(cache, numbers(0, 5))
    cache.forget(3)
    put(cache, numbers(100, 2))
    assert torch.equal(kept(cache), torch.cat([numbers(0, 2), numbers(100, 2)], 2))
    cache.forget(4)
    assert cache.get_seq_length() == 0


@pytest.mark.parametrize("count", [-1, 6])
def test_more_than_there_is_cannot_be_forgotten(count: int) -> None:
    cache = KeyValues()
    put(cache, numbers(0, 5))
    with pytest.raises(ValueError, match=f"{count} of 5 tokens"):
        cache.forget(count)


@pytest.mark.parametrize("count", [2, 500])
def test_what_is_not_to_be_kept_is_seen_by_its_own_call_alone(count: int) -> None:
    cache = KeyValues()
    put(cache, numbers(0, 5))
    assert torch.equal(put(cache, numbers(100, count), "none"), torch.cat([numbers(0, 5), numbers(100, count)], 2))
    assert torch.equal(kept(cache), numbers(0, 5))


def test_what_replaces_takes_its_slots_and_no_more() -> None:
    cache = KeyValues()
    put(cache, numbers(0, 5))
    expected = numbers(0, 5).index_copy(2, torch.tensor([4, 1]), numbers(100, 2))
    assert torch.equal(put(cache, numbers(100, 2), "replace", [4, 1]), expected)
    assert torch.equal(kept(cache), expected)


def test_keys_are_kept_in_the_dtype_of_the_values() -> None:
    cache = KeyValues()
    cache.begin(2)
    keys, _ = cache.update(numbers(0, 2), numbers(0, 2).bfloat16(), 0)
    assert keys.dtype == torch.bfloat16
