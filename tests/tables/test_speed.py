"""Accuracy of one run and speed of another: what the folder `speed` of a run must have in common
with it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rendering import render
from run_records import NANO_SHA256, item, save

from harness.errors import UserError
from harness.measures.against import against
from harness.measures.parallelism import token_ledger
from harness.measures.seconds import read_measured
from harness.measures.table import measure
from harness.records.store import Run


def items_with(count: int, seconds: dict[str, float], tokens: str = "t") -> list[dict[str, Any]]:
    return [
        item(
            method,
            "gsm8k",
            n,
            seconds=spent,
            prompt_hash=f"p{n}",
            tokens_hash=f"{tokens}{n}",
            correct=n % 2 == 0,
        )
        for method, spent in seconds.items()
        for n in range(count)
    ]


def untimed(folder: Path, **changes: Any) -> Run:
    config = save(folder, [], suites={"gsm8k": "GSM8K"}).config
    config = msgspec.to_builtins(config) | {"timed": False} | changes
    return save(folder, items_with(10, {"llada": 9.0, "dcd": 9.0}), config=config)


def test_accuracy_is_of_all_problems_and_speed_of_the_timed_ones(tmp_path: Path) -> None:
    untimed(tmp_path)
    save(tmp_path / "speed", items_with(4, {"llada": 3.0, "dcd": 1.5}), suites={"gsm8k": "GSM8K"})
    run = read_measured(tmp_path)
    row = measure(run).set_index("method").loc["dcd"]
    assert (row["items"], row["scored"], row["speedup"], row["seconds_per_item"]) == (
        10,
        10,
        2.0,
        1.5,
    )
    (beside,) = against(run, "llada").to_dict("records")
    assert (beside["items"], beside["speed"]) == (10, 2.0)
    table = render(run)["main.md"]
    assert "- timed problems: the first 4\n" in table
    assert "- timed responses with these tokens: 8 of 8\n" in table


def test_latencies_are_those_of_the_timed_run(tmp_path: Path) -> None:
    until = {"first_block_seconds": 1.0, "content_seconds": 2.0}
    slow = {"first_block_seconds": 4.0, "content_seconds": 8.0}
    config = msgspec.to_builtins(untimed(tmp_path).config)
    save(
        tmp_path, [row | slow for row in items_with(10, {"llada": 9.0, "dcd": 9.0})], config=config
    )
    timed = [row | until for row in items_with(4, {"llada": 3.0, "dcd": 3.0})]
    save(tmp_path / "speed", timed, suites={"gsm8k": "GSM8K"})
    items = read_measured(tmp_path).items
    assert (
        items["content_seconds"].dropna().unique().tolist() == [2.0]
        and items["first_block_seconds"].max() == 1.0
    )


def test_tokens_per_second_are_of_the_problems_that_were_timed(tmp_path: Path) -> None:
    config = msgspec.to_builtins(untimed(tmp_path).config)
    rows = items_with(10, {"llada": 9.0})
    save(
        tmp_path,
        [row | {"content_tokens": 10 + 90 * (row["item"] > 0)} for row in rows],
        config=config,
    )
    save(tmp_path / "speed", items_with(1, {"llada": 2.0}), suites={"gsm8k": "GSM8K"})
    assert token_ledger(read_measured(tmp_path))["tps_content"].tolist() == [5.0]


@pytest.mark.parametrize("items", [[0, 1], [0, 2, 3]])
def test_a_timed_run_that_lacks_responses_is_refused(tmp_path: Path, items: list[int]) -> None:
    untimed(tmp_path)
    rows = items_with(4, {"llada": 3.0, "dcd": 1.5})
    if len(items) == 2:
        rows = [row for row in rows if row["method"] == "llada" or row["item"] in items]
    save(
        tmp_path / "speed",
        [row for row in rows if len(items) == 2 or row["item"] in items],
        suites={"gsm8k": "GSM8K"},
    )
    with pytest.raises(
        UserError, match="speed: not all methods have the first problems of gsm8k there"
    ):
        read_measured(tmp_path)


def test_problems_of_several_seeds_are_counted_once(tmp_path: Path) -> None:
    drawn = {"temperature": 0.7, "seed": 0, "seeds": [0, 1]}
    config = msgspec.to_builtins(untimed(tmp_path).config) | drawn
    for folder in (tmp_path, tmp_path / "speed"):
        rows = [
            row | {"prompt_hash": f"p{row['item'] % 2}"}
            for row in items_with(4, {"llada": 3.0, "dcd": 1.5})
        ]
        save(
            folder,
            rows,
            config=config | {"timed": folder.name == "speed"},
            data={"files": {"gsm8k": {"items": 4}}},
        )
    assert "- timed problems: the first 2\n" in render(read_measured(tmp_path))["main.md"]


def test_the_first_sample_alone_may_be_timed(tmp_path: Path) -> None:
    config = msgspec.to_builtins(untimed(tmp_path).config) | {"temperature": 0.7, "seed": 0}
    for folder, samples in ((tmp_path, 2), (tmp_path / "speed", 1)):
        rows = [
            row | {"prompt_hash": f"p{row['item'] % 3}"}
            for row in items_with(3 * samples, {"llada": 3.0, "dcd": 1.5})
        ]
        save(
            folder,
            rows,
            config=config | {"timed": samples == 1, "samples": samples},
            data={"files": {"gsm8k": {"items": 3 * samples}}},
        )
    assert measure(read_measured(tmp_path))["speedup"].to_list() == [1.0, 2.0]


def test_without_a_timed_run_beside_it_there_is_no_speed(tmp_path: Path) -> None:
    untimed(tmp_path)
    assert measure(read_measured(tmp_path))["speedup"].isna().all()


def test_a_timed_run_that_has_only_begun_is_named(tmp_path: Path) -> None:
    untimed(tmp_path)
    save(tmp_path / "speed", [], suites={"gsm8k": "GSM8K"})
    with pytest.raises(UserError, match="speed has no finished response yet"):
        read_measured(tmp_path)


def test_a_reference_of_the_timed_run_alone_joins_with_its_problems(tmp_path: Path) -> None:
    speed = save(
        tmp_path / "speed", items_with(4, {"llada": 3.0, "dcd": 1.5}), suites={"gsm8k": "GSM8K"}
    )
    config = msgspec.to_builtins(speed.config) | {"timed": False}
    del config["methods"]["llada"]
    save(tmp_path, items_with(10, {"dcd": 9.0}), config=config)
    rows = measure(read_measured(tmp_path)).set_index("method")
    assert list(rows.index) == ["llada", "dcd"]
    assert (rows["items"].to_list(), rows["speedup"].to_list()) == ([4, 10], [1.0, 2.0])


@pytest.mark.parametrize(
    "what",
    [
        "untimed",
        "settings",
        "problems",
        "more",
        "temperature",
        "dtype",
        "seeds",
        "weights",
        "another model",
    ],
)
def test_a_run_that_does_not_belong_is_refused(what: str, tmp_path: Path) -> None:
    run = untimed(tmp_path, models={"base": {"gsm8k": "nano"}})
    config = msgspec.to_builtins(run.config) | {"timed": what != "untimed"}
    model = {"name": "nano", "sha256": {"model": "0" * 64} if what == "weights" else NANO_SHA256}
    weights = {"nano": model if what != "another model" else {"name": "nano"}}
    if what == "another model":
        config["models"], weights["other"] = (
            {"base": {"gsm8k": "other"}},
            {"sha256": {"model": "0" * 64}},
        )
    if what == "seeds":
        run = untimed(
            tmp_path, models={"base": {"gsm8k": "nano"}}, temperature=0.7, seed=0, seeds=[0, 1]
        )
        config |= {"temperature": 0.7, "seed": 9}
    if what in ("temperature", "dtype"):
        config[what] = {"temperature": 0.9, "dtype": "bfloat16"}[what]
    if what == "settings":
        config["methods"]["dcd"]["method"] = "llada"
    own = items_with(3, {"llada": 3.0, "dcd": 1.5})
    if what == "problems":
        own[0]["prompt_hash"] = own[3]["prompt_hash"] = (
            "another"  # the first problem of both methods
        )
    if what == "more":
        own.append(item("ssd", "gsm8k", 5, seconds=1.0, prompt_hash="p5", tokens_hash="t5"))
        config["methods"]["ssd"] = config["methods"]["dcd"]
    save(tmp_path / "speed", own, config=config, weights=weights)
    with pytest.raises(UserError, match="speed"):
        read_measured(tmp_path)


def test_decoders_that_were_changed_between_both_runs_are_refused(tmp_path: Path) -> None:
    run = untimed(tmp_path)
    config, rows = (
        msgspec.to_builtins(run.config) | {"timed": True},
        items_with(4, {"llada": 3.0, "dcd": 1.5}),
    )
    for folder in (tmp_path, tmp_path / "speed"):
        plugins = [{"plugin": "mine.py", "path": "a/mine.py", "sha256": folder.name}]
        save(folder, rows, config=config | {"timed": folder.name == "speed"}, plugins=plugins)
    with pytest.raises(UserError, match=r"the plugin mine\.py: missing there, or not as in"):
        read_measured(tmp_path)
