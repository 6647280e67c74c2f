"""A run with workers has the tokens of one without, on every item, and says who decoded what."""

import json
from pathlib import Path
from typing import Any

import pytest
from registered import forgotten

import harness
from harness.records.files import each_frame, replay
from harness.records.store import TIMED, read_lines, read_run
from model_wrappers.options import Options, Positive
from model_wrappers.request import Request

pytestmark = pytest.mark.slow


LEFT_TO_RIGHT = """
from model_wrappers import register
from model_wrappers.options import Options
from model_wrappers.sampling import sample, softmax_at, without


@register("mine")
def mine(request, options: Options):
    for position in range(request.start, request.x_1L.shape[1]):
        position_1 = (request.x_1L[0] == request.mask_id).nonzero()[:1, 0]
        logits_1V = request.backbone.logits(request.x_1L, positions=position_1)[0]
        logits_1V = without(logits_1V, [request.mask_id])
        token_1 = sample(logits_1V, request.temperature, request.sampler)
        request.commit(position_1, token_1, softmax_at(logits_1V, token_1), "unmasked")
"""


class Fill(Options):
    """A token."""

    token: Positive = 5


def fill(request: Request, options: Fill) -> None:
    """Fill the response with one token."""
    request.backbone.logits(request.x_1L)
    request.commit(list(range(request.start, request.x_1L.shape[1])), options.token, None, "filled")


KEYS = ["method", "suite", "item"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same run in one process and with two workers, a decoder of a plugin and a function among
    its methods."""
    folder = tmp_path_factory.mktemp("workers")
    with forgotten(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "mine.py").write_text(LEFT_TO_RIGHT)
        # a file that is found from this folder alone
        methods = [
            "llada",
            "fef(steps=2)",
            "mine.py:mine",
            fill,
        ]
        options = {"gen_length": 12, "threads": 1, "trace": True}
        harness.evaluate(methods, "gsm8k,lists", limit=5, out="one", **options)
        harness.evaluate(methods, "gsm8k,lists", limit=5, out="two", workers=2, **options)
    return folder / "one", folder / "two"


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a record in one order, less what depends on the machine."""

    def place(row: dict[str, Any]) -> list[str]:
        return [str(row.get(key)) for key in (*KEYS, "step", "round")]

    rows = [
        {key: value for key, value in row.items() if key not in TIMED}
        for row in read_lines(folder / name)
    ]
    return sorted(rows, key=place)


@pytest.mark.parametrize("name", ["items.jsonl", "windows.jsonl"])
def test_records_are_those_of_one_process(runs: tuple[Path, Path], name: str) -> None:
    one, two = (rows_of(folder, name) for folder in runs)
    assert len(one) > 0 and one == two


def test_traces_replay_to_the_same_tokens(runs: tuple[Path, Path]) -> None:
    one, two = (
        {trace.key: replay(trace).tolist() for _, trace in each_frame(folder)} for folder in runs
    )
    assert len(one) == 40 and one == two


def test_every_token_has_its_text_once(runs: tuple[Path, Path]) -> None:
    pieces = [
        token
        for _, trace in each_frame(runs[1])
        for token in ((trace.tokenizer, each) for each in trace.pieces)
    ]
    assert len(pieces) == len(set(pieces)) > 10


def test_every_item_names_its_worker_which_run_json_describes(runs: tuple[Path, Path]) -> None:
    workers = read_run(runs[1]).meta.sessions[0]["workers"]
    items = read_run(runs[1]).items
    assert len(workers) == 2 and set(items["worker"]) == set(workers)
    assert not {core for worker in workers.values() for core in worker["cores"][1:]}
    assert len({tuple(worker["cores"]) for worker in workers.values()}) == 2
    for worker in workers.values():
        assert (
            worker["host"]
            and worker["name"]
            and worker["device"] == "cpu"
            and worker["threads"] == 1
        )
        assert worker["start"]["at"] <= worker["end"]["at"]


def test_an_item_passes_through_all_methods_on_one_worker(runs: tuple[Path, Path]) -> None:
    by_item = read_run(runs[1]).items.groupby(["suite", "item"])["worker"].nunique()
    assert len(by_item) == 10 and (by_item == 1).all()


def test_a_run_without_workers_names_none_and_has_the_same_configuration(
    runs: tuple[Path, Path],
) -> None:
    assert (
        "worker" not in read_run(runs[0]).items
        and "workers" not in read_run(runs[0]).meta.sessions[0]
    )
    one, two = (json.loads((folder / "run.json").read_text()) for folder in runs)
    assert one["config_hash"] == two["config_hash"] and one["weights"] == two["weights"]
    assert one["environment"] == two["environment"] and one["code"] == two["code"]
