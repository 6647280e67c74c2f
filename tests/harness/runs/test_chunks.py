"""Chunks: every item through all methods on one worker, small ones at the end, what a dead worker
held comes back."""

from harness.runs.pool import DEATHS, Chunk, Queue

METHODS = ["llada", "fef-2"]
Done = set[tuple[str, str, int]]


def queue_of(
    items: dict[str, int], size: int = 2, workers: int = 1, done: Done | None = None
) -> tuple[Queue, Done]:
    """A queue, and the responses that are recorded."""
    recorded: Done = set() if done is None else done
    numbers = {suite: range(count) for suite, count in items.items()}
    return Queue(numbers, METHODS, lambda *key: key in recorded, size, workers), recorded


def record(recorded: Done, chunk: Chunk, count: int | None = None) -> None:
    """The first responses of a chunk are recorded."""
    recorded |= {(method, chunk.suite, item) for method, item in chunk.responses[:count]}


def all_of(queue: Queue, worker: str = "") -> list[Chunk]:
    return list(iter(lambda: queue.take(worker), None))


def test_methods_alternate_from_chunk_to_chunk_of_a_suite() -> None:
    queue, _ = queue_of({"gsm8k": 5, "math": 2})
    forth, back = METHODS, METHODS[::-1]
    assert [(chunk.suite, list(chunk.pending)) for chunk in all_of(queue)] == [
        *(("gsm8k", forth), ("gsm8k", back), ("gsm8k", forth)),
        ("math", forth),
    ]


def test_each_worker_alternates_by_itself() -> None:
    queue, _ = queue_of({"gsm8k": 40}, workers=2)
    taken: list[tuple[str, Chunk]] = []
    for worker in ("a", "b", "a", "a", "b"):
        chunk = queue.take(worker)
        assert chunk is not None
        taken.append((worker, chunk))
    for worker in ("a", "b"):
        orders = [next(iter(chunk.pending)) for by, chunk in taken if by == worker]
        assert orders == [METHODS[number % 2] for number in range(len(orders))]


def test_an_item_has_all_its_methods_in_one_chunk() -> None:
    queue, _ = queue_of({"gsm8k": 7, "math": 3}, size=3, workers=2)
    seen: set[tuple[str, int]] = set()
    for chunk in all_of(queue):
        items = {item for _, item in chunk.responses}
        assert sorted(chunk.responses) == sorted(
            (method, item) for method in METHODS for item in items
        )
        assert not seen & {(chunk.suite, item) for item in items}
        seen |= {(chunk.suite, item) for item in items}
    assert len(seen) == 10


def test_with_several_workers_the_last_chunks_are_small() -> None:
    sizes = [
        len(chunk.responses) // 2 for chunk in all_of(queue_of({"gsm8k": 40}, size=5, workers=4)[0])
    ]
    assert sizes[0] == 5 and sizes[-4:] == [1, 1, 1, 1] and sizes == sorted(sizes, reverse=True)


def test_what_is_recorded_is_not_handed_out() -> None:
    done = {("llada", "gsm8k", 0), ("fef-2", "gsm8k", 0), ("llada", "gsm8k", 1)}
    (chunk,) = all_of(queue_of({"gsm8k": 2}, done=done)[0])
    assert chunk.pending == {"fef-2": [1]}


def test_what_a_dead_worker_did_not_finish_comes_back_the_item_in_flight_last() -> None:
    queue, recorded = queue_of({"gsm8k": 4})
    chunk = queue.take("a")
    assert chunk is not None
    record(recorded, chunk, count=1)
    queue.give_back(chunk, "killed")
    rest = all_of(queue, "b")
    assert rest[0].pending == {"fef-2": [0, 1]}
    assert rest[-1].pending == {"llada": [1]}
    assert len(rest) == 3


def test_a_response_that_ends_every_worker_is_left_out_and_all_else_is_decoded() -> None:
    queue, recorded = queue_of({"gsm8k": 6}, size=3, workers=2)
    deaths = 0
    while (chunk := queue.take("a")) is not None:
        responses = chunk.responses
        if ("fef-2", 2) in responses:
            record(recorded, chunk, count=responses.index(("fef-2", 2)))
            queue.give_back(chunk, "out of memory")
            deaths += 1
        else:
            record(recorded, chunk)
    assert deaths == DEATHS
    assert queue.left_out == {
        ("fef-2", "gsm8k", 2): "3 workers died with its item, the last so: out of memory"
    }
    assert recorded == {(m, "gsm8k", item) for m in METHODS for item in range(6)} - {
        ("fef-2", "gsm8k", 2)
    }


def test_another_response_of_an_item_that_ended_workers_is_left_out_after_one_more() -> None:
    queue, recorded = queue_of({"gsm8k": 1})
    deaths = 0
    while (chunk := queue.take()) is not None:
        queue.give_back(chunk, "killed")
        deaths += 1
    assert deaths == DEATHS + 1 and not recorded
    assert set(queue.left_out) == {("llada", "gsm8k", 0), ("fef-2", "gsm8k", 0)}
