"""Figures of one option at several values, from synthetic records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from run_records import item, lines_of, save

from harness.errors import UserError
from harness.records.store import Run
from tables.charts.drawing import Skipped
from tables.charts.series import (
    ANCHORS,
    BY_ANCHOR,
    BY_WINDOW,
    FRONT,
    draw_anchor,
    draw_front,
    draw_speed_by_window,
    front_of,
)


def presets_run(folder: Path, methods: list[str], labels: dict[str, str] | None = None) -> Run:
    """Ten items of two suites: method n takes 1 / (n + 1) s and 96 - n forwards, and solves the first 9 - n % 5."""
    items = []
    for suite in ("gsm8k", "math"):
        for position, method in enumerate(methods):
            for number in range(10):
                spent = {"seconds": 1 / (position + 1), "forwards": 96 - position, "correct": number < 9 - position % 5}
                items.append(item(method, suite, number, **spent))
    labels = {method: method.upper() for method in methods} | (labels or {})
    named = {method: {"label": labels[method], "method": method.split("-")[0]} for method in methods}
    suites = {"gsm8k": {"title": "GSM8K"}, "math": {"title": "MATH"}}
    return save(folder, items, config={"data": "generated", "methods": named, "suites": suites})


def everything(series: dict[str, list[str]]) -> list[str]:
    return list(dict.fromkeys(method for row in series.values() for method in row))


def test_a_front_has_a_line_for_each_series_by_milliseconds_and_accuracy(tmp_path: Path) -> None:
    methods = everything(FRONT)
    figure, left_out = draw_front(presets_run(tmp_path, methods), "math")
    (axes,) = figure.axes
    assert left_out == [] and len(axes.containers) == len(FRONT)
    for (name, series), drawn in zip(FRONT.items(), axes.containers, strict=True):
        line = drawn.lines[0]
        assert drawn.get_label() == name
        assert list(line.get_xdata()) == pytest.approx([1e3 / (methods.index(m) + 1) for m in series])
        assert list(line.get_ydata()) == pytest.approx([10 * (9 - methods.index(m) % 5) for m in series])


def test_a_front_needs_two_series(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="two series"):
        draw_front(presets_run(tmp_path, FRONT["Threshold"] + ["llada"]), "math")


def own_series(figure: Figure) -> dict[str, list[float]]:
    """Milliseconds of every line of a front, by its name."""
    (axes,) = figure.axes
    return {str(each.get_label()): list(each.lines[0].get_xdata()) for each in axes.containers}


def test_elements_that_differ_in_options_alone_are_a_series_in_the_order_of_time(tmp_path: Path) -> None:
    methods = ["llada", "margin(low=0.2)", "margin(low=0.8)", "threshold", "threshold(tau=0.5)"]
    labels = {name: name.capitalize().replace("(", " (") for name in methods}
    figure, _ = draw_front(presets_run(tmp_path, methods, labels), "math")
    drawn = own_series(figure)
    assert drawn["Margin"] == pytest.approx([1e3 / 3, 1e3 / 2])
    assert drawn["Threshold"] == pytest.approx([1e3 / 5, 1e3 / 4])
    assert set(drawn) == {"LLaDA, 1 to 8 a step", "Margin", "Threshold"}


def test_a_series_is_named_by_a_pattern_that_something_fits(tmp_path: Path) -> None:
    run = presets_run(tmp_path, ["llada", "one", "other", "two"])
    figure, _ = draw_front(run, "math", {"Mine": "o*"})
    assert len(own_series(figure)["Mine"]) == 2 and len(own_series(figure)["TWO"]) == 1
    with pytest.raises(UserError, match=r"--series Mine=three: no method fits; the run has llada, one, other, two"):
        draw_front(run, "math", {"Mine": "three"})


def test_the_front_is_what_nothing_beats() -> None:
    seconds = pd.Series({"slow": 4.0, "slower": 5.0, "fast": 1.0, "middling": 2.0, "same": 2.0})
    accuracy = pd.Series({"slow": 90.0, "slower": 89.0, "fast": 50.0, "middling": 70.0, "same": 60.0})
    assert front_of(seconds, accuracy) == ["fast", "middling", "slow"]


def test_speed_by_window_is_the_mean_over_suites(tmp_path: Path) -> None:
    methods = ["llada", *(m for row in BY_WINDOW.values() for m in row.values())]
    figure, _ = draw_speed_by_window(presets_run(tmp_path, methods))
    lines = lines_of(figure.axes[0])
    for name, row in BY_WINDOW.items():
        assert lines[f"{name}, wall-clock"] == pytest.approx([methods.index(m) + 1 for m in row.values()])
        forwards = [96 / (96 - methods.index(m)) for m in row.values()]
        assert lines[f"{name}, forward passes"] == pytest.approx(forwards)


def test_speed_by_window_needs_both_verifications(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="both verifications"):
        draw_speed_by_window(presets_run(tmp_path, ["llada", *BY_WINDOW["full"].values()]))


def test_anchors_are_in_order_with_llada_beside(tmp_path: Path) -> None:
    methods = ["llada", *(m for row in BY_ANCHOR.values() for m in row.values())]
    figure, _ = draw_anchor(presets_run(tmp_path, methods))
    above, below = figure.axes
    assert lines_of(above)["LLaDA"] == [90, 90]
    for drawn, row in zip(below.containers, BY_ANCHOR.values(), strict=True):
        assert list(drawn.lines[0].get_xdata()) == list(range(len(ANCHORS)))
        assert list(drawn.lines[0].get_ydata()) == pytest.approx([methods.index(m) + 1 for m in row.values()])


def test_anchors_that_were_not_run_are_not_in_the_legend(tmp_path: Path) -> None:
    figure, _ = draw_anchor(presets_run(tmp_path, ["llada", *BY_ANCHOR["trained"].values()]))
    assert [drawn.get_label() for drawn in figure.axes[0].containers] == ["trained"]


def test_different_decoders_with_a_cache_are_not_joined(tmp_path: Path) -> None:
    methods = ["llada", "llada/2", "threshold", "threshold-0.8", *FRONT["dual cache"]]
    figure, _ = draw_front(presets_run(tmp_path, methods))
    styles = {drawn.get_label(): drawn.lines[0].get_linestyle() for drawn in figure.axes[0].containers}
    assert styles["dual cache"] == "None"
    assert "None" not in {style for name, style in styles.items() if name != "dual cache"}


def test_tuned_settings_of_a_decoder_share_a_look_and_no_line(tmp_path: Path) -> None:
    entropy = ["entropy-tuned-fast", "entropy-tuned-accurate", "entropy-tuned-fast/control"]
    figure, _ = draw_front(presets_run(tmp_path, ["llada", *entropy, "fef-tuned-fast", "fef-tuned-accurate"]))
    points = {drawn.get_label(): drawn.lines[0] for drawn in figure.axes[0].containers}
    assert {name: len(line.get_xdata()) for name, line in points.items()} == {
        "LLaDA, 1 to 8 a step": 1,
        "Entropy, tuned": 3,
        "FeF-DLLM two-stream, tuned": 2,
    }
    assert points["Entropy, tuned"].get_linestyle() == "None"


def test_one_anchor_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="two anchors"):
        draw_anchor(presets_run(tmp_path, ["llada", "fef-two-stream"]))
