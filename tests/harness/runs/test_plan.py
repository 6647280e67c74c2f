"""The plan of a run: what is measured, what follows from costs, how it is summed."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_lines import resolved_run

from harness.errors import UserError
from harness.runs import plan
from harness.runs.plan import Forecast, described, from_costs, measured
from harness.runs.resolve import ResolvedRun
from harness.runs.responses import Sample

SECONDS = {"llada": 4.0, "llada/2": 2.0}


class FakePool:
    """Takes seconds by method, on a clock of its own."""

    size, description = 1, {}

    def __init__(self, items: dict[str, int]) -> None:
        self.items, self.now, self.decoded = items, 0.0, []

    def warm_up(self, suite: str, first: dict[str, int]) -> dict[str, Sample]:
        self.decoded += [(method, suite, item) for method, item in first.items()]
        self.now += sum(SECONDS[method] for method in first)
        return {method: Sample(SECONDS[method], 48.0) for method in first}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> FakePool:
    made = FakePool({"gsm8k": 3, "mbpp": 2})
    monkeypatch.setattr(plan.time, "monotonic", lambda: made.now)
    return made


def resolved(*line: str) -> ResolvedRun:
    return resolved_run("--suite", "gsm8k,mbpp", "--methods", "llada,llada/2", *line)


def test_every_method_is_measured_on_every_suite_after_one_that_is_discarded(pool: FakePool) -> None:
    found = measured(resolved().config, pool, budget=100)  # type: ignore[arg-type]
    assert {key: each.responses for key, each in found.items()} == {
        ("llada", "gsm8k"): 3,
        ("llada", "mbpp"): 2,
        ("llada/2", "gsm8k"): 3,
        ("llada/2", "mbpp"): 2,
    }
    assert len(pool.decoded) == 2 + 10 and pool.decoded[:2] == [("llada", "gsm8k", 0), ("llada/2", "gsm8k", 0)]


def test_measuring_ends_with_the_budget_but_not_before_every_method_was_there(pool: FakePool) -> None:
    found = measured(resolved().config, pool, budget=1)  # type: ignore[arg-type]
    assert found["llada", "gsm8k"] == Forecast(4.0, 48.0, 1) and found["llada/2", "gsm8k"] == Forecast(2.0, 48.0, 1)
    longer = 64 / 48  # tokens of a response on MBPP and on GSM8K
    assert found["llada", "mbpp"] == Forecast(longer * 4.0, longer * 48.0, 0)


MEASURED = {"prompt": "32", "response": "48", "model": "nano", "arch": "None"}


def costs_file(folder: Path, **changes: Any) -> Path:
    record = {
        "arguments": MEASURED,
        "environment": {"cpu": "Test CPU", "gpu": None},
        "passes": [{"pass": "plain forward", "ms": 100.0}],
        "speedups": [{"method": "fef-2", "suite": "gsm8k", "predicted speedup": 2.0}],
    }
    (folder / "costs.json").write_text(json.dumps(record | changes))
    return folder / "costs.json"


def test_from_costs_a_step_is_a_forward_and_fef_goes_by_its_speedup(tmp_path: Path) -> None:
    found, source = from_costs(resolved("--methods", "llada,llada/2,fef-2,ssd"), costs_file(tmp_path))
    assert found["llada", "gsm8k"] == Forecast(pytest.approx(4.8), 48.0)
    assert found["llada/2", "mbpp"] == Forecast(pytest.approx(3.2), 32.0)
    assert found["fef-2", "gsm8k"] == Forecast(pytest.approx(2.4), None)
    assert found["fef-2", "mbpp"] == found["ssd", "gsm8k"] == Forecast(None, None)
    assert source.endswith("a forward of 80 tokens in 100 ms on Test CPU")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "other", "arch": None}, r"is of the model other, and the run of nano: .* --model nano"),
        ({"arch": "llada-8b", "layers": "2"}, "is of 2 layers alone, and prices no whole model"),
    ],
)
def test_costs_of_another_model_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        from_costs(resolved(), costs_file(tmp_path, arguments=MEASURED | change))


def test_costs_of_another_checkpoint_of_the_same_shape_serve(tmp_path: Path) -> None:
    found, _ = from_costs(resolved(), costs_file(tmp_path, arguments=MEASURED | {"model": "nano-fef"}))
    assert found["llada", "gsm8k"].seconds == pytest.approx(4.8)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"passes": []}'])
def test_another_file_than_one_of_costs_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "costs.json").write_text(content)
    with pytest.raises(UserError, match=r"is no record of costs .*bench.py --costs --out"):
        from_costs(resolved(), tmp_path / "costs.json")


def test_the_plan_sums_items_calls_and_hours() -> None:
    found = {("llada", "gsm8k"): Forecast(36.0, 48.0, 2), ("llada/2", "gsm8k"): Forecast(None, None)}
    text = described(resolved().config, {"gsm8k": 200}, found, 4, "measured here")
    assert text.splitlines() == [
        "200 items, 2 methods; measured here",
        "GSM8K, LLaDA: 200 responses, each 48 calls, 36 s (measured on 2), together 2 h 0 min",
        "calls of the model: 9600",
        "on one device: at least, for 1 of 2 methods, 2 h 0 min",
        "on 4 of them: at least, for 1 of 2 methods, 30 min",
        "besides: loading the models, scoring, tables",
        "not counted, for it cannot be told without measuring: GSM8K, LLaDA/2",
    ]


def test_costs_are_scaled_to_the_length_of_the_response(tmp_path: Path) -> None:
    lengths = [{"tokens": 40, "ms": 50.0}, {"tokens": 80, "ms": 100.0}, {"tokens": 120, "ms": 200.0}]
    found, _ = from_costs(resolved(), costs_file(tmp_path, lengths=lengths))
    assert found["llada", "gsm8k"].seconds == pytest.approx(4.8)  # 32 + 48 tokens, as the record
    assert found["llada", "mbpp"].seconds == pytest.approx(64 * 0.140)  # 32 + 64, two fifths of the way from 80 to 120


def test_an_estimate_is_the_longer_of_reading_the_weights_and_multiplying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "parameters_of", lambda name: 8_000_000_000)
    run = resolved("--methods", "llada,dcd,threshold", "--device", "cuda", "--plan", "--costs", "a100")
    found, source = from_costs(run, Path("a100"))
    assert run.config.dtype == "bfloat16" and source.startswith("an estimate, nothing was measured: nano with 8")
    multiplied = 2 * 8e9 * (plan.PROMPT + 48) / (plan.REACHED * 312e12)
    assert found["llada", "gsm8k"] == Forecast(pytest.approx(48 * multiplied), 48.0)
    assert found["dcd", "gsm8k"] == Forecast(pytest.approx(96 * multiplied), 96.0)
    assert found["threshold", "gsm8k"] == Forecast(None, None)
    monkeypatch.setattr(plan, "PROMPT", -40)
    assert from_costs(run, Path("a100"))[0]["llada", "gsm8k"].seconds == pytest.approx(48 * 16e9 / 2.039e12)
