"""Figures of decoders at several settings: what is a series, what is joined, what a front shows and
leaves out."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from matplotlib.figure import Figure
from run_records import item, lines_of, save
from scipy import stats

from harness.errors import UserError
from harness.measures.parallelism import by_option, series_of
from harness.measures.seconds import read_measured
from harness.methods.settings import setting_of
from harness.records.store import Run
from harness.runs.selection import methods_named
from tables import figures
from tables.charts import (
    WHOLE,
    Skipped,
    draw_front,
    draw_option,
    draw_parallelism,
    front_of,
)


def run_with(folder: Path, methods: str, **of: dict[str, str]) -> Run:
    """Ten items of two suites: method n takes 1 / (n + 1) s and 96 - n forwards, and solves the
    first 9 - n % 5.

    methods: elements of --methods. of: method -> label and decoder, of what is no such element.
    """
    named: dict[str, Any] = dict(of)
    for key, preset in methods_named(methods).items():
        setting = setting_of(preset, "gsm8k", {"gen_length": 48, "block_length": 48})
        options = {
            "gen_length": 48,
            "block_length": setting.block_length,
            "options": setting.options,
        }
        suites = {"gsm8k": options, "math": options}
        named[key] = {
            "label": preset.row,
            "method": preset.method,
            "role": preset.role,
            "suites": suites,
        }
    items = [
        item(
            method,
            suite,
            number,
            seconds=1 / (at + 1),
            forwards=96 - at,
            content_tokens=20,
            correct=number < 9 - at % 5,
        )
        for suite in ("gsm8k", "math")
        for at, method in enumerate(named)
        for number in range(10)
    ]
    suites = {"gsm8k": {"title": "GSM8K"}, "math": {"title": "MATH"}}
    return save(folder, items, config={"data": "generated", "methods": named, "suites": suites})


THRESHOLDS = "threshold(tau=0.8),threshold,threshold(tau=0.5)"


def test_a_front_has_a_line_for_each_series_by_milliseconds_and_accuracy(tmp_path: Path) -> None:
    figure, left_out = draw_front(run_with(tmp_path, f"llada,llada/2,{THRESHOLDS},ssd"), "math", {})
    lines = {drawn.get_label(): drawn.lines[0] for drawn in figure.axes[0].containers}
    assert left_out == [] and list(lines) == ["LLaDA", "Threshold", "SSD"]
    assert list(lines["LLaDA"].get_xdata()) == pytest.approx([500, 1000])  # in the order of time
    assert list(lines["Threshold"].get_xdata()) == pytest.approx([200, 250, 1000 / 3])
    assert list(lines["Threshold"].get_ydata()) == pytest.approx([50, 60, 70])


def test_the_names_are_a_legend(tmp_path: Path) -> None:
    others = "ssd,dcd,ddosp,factor,entropy,klass,wino,freedave,prophet"
    figure, _ = draw_front(run_with(tmp_path, f"llada,{THRESHOLDS},{others}"), "math", {})
    assert len(figure.legends[0].get_texts()) == 11


def test_the_band_of_a_front_is_llada_as_tuned_for_accuracy(tmp_path: Path) -> None:
    def band(run: Run) -> float:
        (drawn,) = draw_front(run, "math", {})[0].axes[0].patches
        return float(drawn.get_y())

    tuned = {"llada-tuned-accurate": {"label": "LLaDA, tuned (accurate)", "method": "llada"}}
    low = [100 * stats.binomtest(right, 10).proportion_ci(method="wilson").low for right in (9, 6)]
    assert band(
        run_with(tmp_path / "tuned", f"ssd,dcd,llada,{THRESHOLDS}", **tuned)
    ) == pytest.approx(low[0])
    assert band(run_with(tmp_path, f"ssd,dcd,wino,llada,{THRESHOLDS}")) == pytest.approx(low[1])


def test_a_front_without_a_point_is_not_drawn(tmp_path: Path) -> None:
    rows = [
        item(method, "math", n, seconds=1.0, disturbed=True)
        for method in ("llada", "dcd")
        for n in range(5)
    ]
    with pytest.raises(Skipped, match="its seconds were disturbed"):
        draw_front(save(tmp_path, rows, suites={"math": "MATH"}), None, {})


def test_a_method_that_only_the_timed_part_has_is_no_point_of_a_front(tmp_path: Path) -> None:
    def of(methods: Any, count: int) -> list[dict[str, Any]]:
        at = itertools.product(methods, ("gsm8k", "math"), range(count))
        return [
            item(method, suite, n, prompt_hash=f"p{n}", correct=n > 1, seconds=1.0)
            for method, suite, n in at
        ]

    config = msgspec.to_builtins(run_with(tmp_path / "speed", f"llada,{THRESHOLDS}").config)
    save(tmp_path / "speed", of(config["methods"], 5), config=config)
    alone = {name: method for name, method in config["methods"].items() if name != "llada"}
    save(tmp_path, of(alone, 20), config=config | {"timed": False, "methods": alone})
    figure, left_out = draw_front(read_measured(tmp_path), None, {})
    assert left_out == ["without LLaDA: its accuracy is of fewer problems"]
    assert [drawn.get_label() for drawn in figure.axes[0].containers] == ["Threshold"]


def test_a_series_is_one_decoder_with_one_verification_and_checkpoint(tmp_path: Path) -> None:
    methods = f"llada,llada-trained,{THRESHOLDS},fef-2,fef-fast,fef-two-stream,fef-two-stream-1(anchor=8),llada+dual"
    assert series_of(run_with(tmp_path, f"{methods},threshold+dual"), {}) == {
        "LLaDA": ["llada"],
        "LLaDA w/ train": ["llada-trained"],
        "Threshold": THRESHOLDS.split(","),
        "FeF-DLLM": ["fef-2", "fef-fast"],
        "FeF-DLLM two-stream": ["fef-two-stream", "fef-two-stream-1(anchor=8)"],
        "dual cache": ["llada+dual", "threshold+dual"],
    }
    methods = "llada,threshold,threshold(tau=0.5),threshold(role=fef),threshold(tau=0.5,role=fef)"
    two_checkpoints = ["threshold(role=fef)", "threshold(role=fef,tau=0.5)"]
    assert series_of(run_with(tmp_path / "two", methods), {})["Threshold, fef"] == two_checkpoints


def test_what_differs_in_more_than_one_option_is_not_joined(tmp_path: Path) -> None:
    two_stream = "fef-two-stream,fef-two-stream-1(anchor=8)"
    figure, _ = draw_front(
        run_with(tmp_path, f"llada,llada/2,{THRESHOLDS},{two_stream},llada+dual,threshold+dual"),
        None,
        {},
    )
    joined = {
        drawn.get_label(): drawn.lines[0].get_linestyle() != "None"
        for drawn in figure.axes[0].containers
    }
    assert joined == {
        "LLaDA": True,
        "Threshold": True,
        "FeF-DLLM two-stream": False,
        "dual cache": False,
    }


def own_series(figure: Figure) -> dict[str, list[float]]:
    """Milliseconds of every line of a front, by its name."""
    (axes,) = figure.axes
    return {str(each.get_label()): list(each.lines[0].get_xdata()) for each in axes.containers}


def test_decoders_of_ones_own_are_series_or_are_named_by_a_pattern_that_something_fits(
    tmp_path: Path,
) -> None:
    of = {
        f"margin(low={low})": {"label": f"Margin (low={low})", "method": "margin"}
        for low in (0.2, 0.8)
    }
    figure, _ = draw_front(run_with(tmp_path / "margin", "llada", **of), "math", {})
    assert own_series(figure)["Margin"] == pytest.approx([500, 1000])
    of = {name: {"label": name.upper(), "method": name} for name in ("one", "other", "two")}
    run = run_with(tmp_path, "llada", **of)
    figure, _ = draw_front(run, "math", {"Mine": "o*"})
    assert len(own_series(figure)["Mine"]) == 2 and len(own_series(figure)["TWO"]) == 1
    with pytest.raises(
        UserError, match=r"--series Mine=three: no method fits; the run has one, other, two, llada"
    ):
        draw_front(run, "math", {"Mine": "three"})


def test_parallelism_takes_the_same_titles_as_the_front(tmp_path: Path) -> None:
    figure, _ = draw_parallelism(
        run_with(tmp_path, f"llada,{THRESHOLDS}"), None, {"Mine": "threshold*"}
    )
    assert [str(line.get_label()).partition(" (")[0] for line in figure.axes[0].lines] == ["Mine"]


def test_the_front_is_what_nothing_beats() -> None:
    seconds = pd.Series({"slow": 4.0, "slower": 5.0, "fast": 1.0, "middling": 2.0, "same": 2.0})
    accuracy = pd.Series(
        {"slow": 90.0, "slower": 89.0, "fast": 50.0, "middling": 70.0, "same": 60.0}
    )
    assert front_of(seconds, accuracy) == ["fast", "middling", "slow"]


def test_methods_that_differ_in_one_option_alone_are_by_its_value(tmp_path: Path) -> None:
    methods = (
        "llada,fef-2,fef-4,fef-4(window=4),fef-two-stream,fef-two-stream-1,fef-two-stream(window=4)"
    )
    run = run_with(tmp_path, methods)
    assert by_option(run, "window", 16) == {
        "FeF-DLLM (step=4)": {16: "fef-4", 4: "fef-4(window=4)"},
        "FeF-DLLM two-stream (step=2)": {16: "fef-two-stream", 4: "fef-two-stream(window=4)"},
    }


def test_anchors_are_in_order_with_llada_beside(tmp_path: Path) -> None:
    run = run_with(
        tmp_path, "llada,fef-two-stream,fef-two-stream(anchor=32),fef-two-stream(anchor=8)"
    )
    assert list(by_option(run, "anchor", WHOLE)["FeF-DLLM two-stream (step=2)"]) == [WHOLE, 32, 8]
    figure, _ = draw_option(run, "anchor", WHOLE)
    above, below = figure.axes
    assert lines_of(above)["LLaDA"] == [90, 90]
    (drawn,) = below.containers
    line = drawn.lines[0]
    assert list(line.get_xdata()) == [0, 1, 2] and list(line.get_ydata()) == pytest.approx(
        [4, 3, 2]
    )
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["8", "32", "whole"]


def test_an_option_of_numbers_has_an_axis_of_numbers(tmp_path: Path) -> None:
    figure, _ = draw_option(run_with(tmp_path, f"llada,{THRESHOLDS}"), "tau", 0.9)
    above, below = figure.axes
    assert list(above.containers[0].lines[0].get_xdata()) == [0.5, 0.8, 0.9]
    assert list(below.containers[0].lines[0].get_ydata()) == pytest.approx([4, 2, 3])
    assert below.get_xlabel() == "tau"


def test_the_command_draws_it(tmp_path: Path) -> None:
    run = run_with(tmp_path, "llada,threshold(tau=0.8),threshold(tau=0.5)")
    assert figures.main([str(run.folder), "--against-option", "tau"]) == 0
    assert (tmp_path / "figures" / "option-tau.pdf").exists()


def test_a_value_that_was_not_set_is_the_recorded_one(tmp_path: Path) -> None:
    mine = {
        "mine": {"method": "mine", "suites": {"gsm8k": {}}},
        "mine(rate=2)": {"method": "mine", "suites": {"gsm8k": {"options": {"rate": 2}}}},
    }
    run = run_with(tmp_path, "llada", **mine)
    code = {"options": {"mine": {"gsm8k": {"rate": 1}, "math": {"rate": 1}}}}
    run = replace(run, meta=msgspec.structs.replace(run.meta, code=code))
    assert by_option(run, "rate", None) == {"mine": {1: "mine", 2: "mine(rate=2)"}}


def test_a_decoder_tuned_with_another_fallback_is_another_series(tmp_path: Path) -> None:
    lengths = {"gen_length": 48, "block_length": 48}
    setting = {**lengths, "options": {"fallback": "leftmost"}}
    tuned: dict[str, Any] = {
        "threshold-tuned-fast": {"label": "Threshold, tuned (fast)", "method": "threshold"},
        "fork-tuned-fast": {
            "label": "Fork-dLLM, tuned (fast)",
            "method": "threshold",
            "suites": {"gsm8k": setting, "math": setting},
        },
    }
    assert series_of(run_with(tmp_path, "llada", **tuned), {}) == {
        "LLaDA": ["llada"],
        "Threshold, tuned": ["threshold-tuned-fast"],
        "Fork-dLLM, tuned": ["fork-tuned-fast"],
    }


def test_tuned_settings_of_a_decoder_share_a_look_and_no_line(tmp_path: Path) -> None:
    def tuned(decoder: str, label: str, *names: str) -> dict[str, dict[str, str]]:
        return {
            f"{decoder}-tuned-{name}": {"label": f"{label}, tuned ({name})", "method": decoder}
            for name in names
        }

    own = tuned("entropy", "Entropy", "fast", "accurate", "fast/control") | tuned(
        "fef", "FeF-DLLM", "fast", "accurate"
    )
    figure, _ = draw_front(run_with(tmp_path, "llada", **own), None, {})
    points = {drawn.get_label(): drawn.lines[0] for drawn in figure.axes[0].containers}
    lengths = {name: len(line.get_xdata()) for name, line in points.items()}
    assert lengths == {"Entropy, tuned": 3, "FeF-DLLM, tuned": 2, "LLaDA": 1}
    assert points["Entropy, tuned"].get_linestyle() == "None"


def test_a_method_without_seconds_on_a_suite_is_no_entry_of_a_front(tmp_path: Path) -> None:
    rows = [
        item(method, suite, n, seconds=1.0, disturbed=(method, suite) == ("llada", "math"))
        for method in ("llada", "dcd")
        for suite in ("gsm8k", "math")
        for n in range(5)
    ]
    run = save(tmp_path, rows, suites={"gsm8k": "GSM8K", "math": "MATH"})
    figure, _ = draw_front(run, None, {})
    assert len(figure.axes[0].containers) == 1
