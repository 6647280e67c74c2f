"""Figures from synthetic records: what their lines hold, what is skipped, that same records give same bytes; colors."""

import itertools
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from command_lines import refused
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from run_records import drafted_window as window
from run_records import item, lines_of, save, save_presets
from scipy import stats

from harness.errors import UserError
from harness.measures.intervals import tradeoff
from harness.measures.parallelism import series_of
from harness.measures.seconds import read_measured
from harness.measures.theory import acceptance_by_position, expected_committed, fef_windows
from harness.methods.presets import PRESETS
from harness.records.store import Run, write_meta
from harness.runs.selection import methods_named
from tables import figures as cli
from tables.charts import (
    PALETTE,
    UNDATED,
    WHOLE,
    Skipped,
    by_option,
    draw_acceptance,
    draw_anchor,
    draw_curves,
    draw_throughput,
    draw_tradeoff,
    draw_window_size,
    new_figure,
)
from tables.fronts import draw_front, draw_parallelism, front_of, name_points

SIZES = {"fef-4(window=4)": 4, "fef-4": 16, "fef-2": 16}


def sized_run(folder: Path, methods: tuple[str, ...] = ("fef-4(window=4)", "fef-4"), **fields: Any) -> Run:
    """LLaDA and FeF methods, 20 items on each of two suites; windows accept their drafts independently."""
    draws = np.random.default_rng(0)
    items, windows = [], []
    for suite in ("gsm8k", "math"):
        for number in range(20):
            items.append(item("llada", suite, number, correct=number < 15, seconds=1 + draws.random(), forwards=48))
            for method in methods:
                size = SIZES[method]
                accepted = [int(np.cumprod(draws.random(size) < 0.9).sum()) for _ in range(10)]
                counts = {"proposed": 10 * size, "accepted": sum(accepted), "draft_forwards": 10}
                counts["rejected"] = sum(count < size for count in accepted)
                spent = {"seconds": 0.5 + draws.random() / 2, "forwards": 20, "correct": number < 12}
                items.append(item(method, suite, number, **counts, **spent))
                windows += [window(method, number, size, count, suite=suite) for count in accepted]
    named: dict[str, Any] = {"llada": {"label": "LLaDA", "method": "llada"}}
    for method in methods:
        options = {suite: {"options": {"window": SIZES[method]}} for suite in ("gsm8k", "math")}
        named[method] = {"label": method.upper(), "method": "fef", "suites": options}
    config = {"data": "generated", "methods": named, "suites": {"gsm8k": {"title": "GSM8K"}, "math": {"title": "MATH"}}}
    return save(folder, fields.pop("items", items), windows, config=config, **fields)


def test_the_tradeoff_is_the_mean_over_suites_with_pooled_wilson(tmp_path: Path) -> None:
    run = sized_run(tmp_path)
    frame, left_out = tradeoff(run)
    assert left_out == [] and frame["method"].to_list() == ["llada", "fef-4(window=4)", "fef-4"]
    row = frame.to_dict("records")[1]
    pooled = stats.binomtest(24, 40).proportion_ci(method="wilson")
    expected = (60, 100 * pooled.low, 100 * pooled.high)
    assert (row["accuracy"], row["accuracy_low"], row["accuracy_high"]) == pytest.approx(expected)
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert frame.to_dict("records")[0]["speedup_low"] == 1.0


def test_what_the_tradeoff_leaves_out_is_said(tmp_path: Path) -> None:
    run = sized_run(tmp_path)
    short = run.items[(run.items["method"] != "fef-4") | (run.items["suite"] == "math")]
    frame, left_out = tradeoff(Run(run.folder, run.meta, short, run.windows))
    assert "fef-4" not in set(frame["method"]) and left_out[0].startswith("without FEF-4: a suite is missing")
    verdicts = run.items["correct"].astype(object).where(run.items["suite"] != "math", None)
    frame, left_out = tradeoff(Run(run.folder, run.meta, run.items.assign(correct=verdicts), run.windows))
    assert len(frame) == 3 and left_out == ["without MATH: LLaDA is not scored there"]
    without = run.items[run.items["method"] != "llada"]
    with pytest.raises(Skipped, match="no scored items of LLaDA"):
        draw_tradeoff(Run(run.folder, run.meta, without, run.windows))


def test_acceptance_lines_are_the_counts_and_alpha_to_the_position(tmp_path: Path) -> None:
    run = sized_run(tmp_path, ("fef-2", "fef-4", "fef-4(window=4)"))
    figure, _ = draw_acceptance(run)
    above, below = figure.axes
    windows = fef_windows(run)
    assert "FEF-4(WINDOW=4)" not in lines_of(above)  # a row of an ablation alone
    for method in ("fef-2", "fef-4"):
        positions = acceptance_by_position(windows[windows["method"] == method])
        assert lines_of(above)[method.upper()] == positions["given_tested"].to_list()
        assert lines_of(below)[method.upper()] == positions["unconditional"].to_list()
        items = run.items[run.items["method"] == method]
        alpha = items["accepted"].sum() / (items["accepted"].sum() + items["rejected"].sum())
        expected = [alpha**position for position in range(1, 17)]
        assert any(heights == pytest.approx(expected) for heights in lines_of(below).values())
    drawn = {(line.get_marker(), str(line.get_linestyle()), line.get_fillstyle()) for line in below.get_lines()}
    assert len(drawn) == 4  # distinguishable without colour


def test_the_window_size_figure_has_the_measured_and_the_expected_lengths(tmp_path: Path) -> None:
    run = sized_run(tmp_path)
    figure, _ = draw_window_size(run)
    above, below = figure.axes
    measured, theorem, actual = lines_of(above).values()
    windows = fef_windows(run)
    for position, method in enumerate(("fef-4(window=4)", "fef-4")):
        own = windows[windows["method"] == method]
        assert measured[position] == pytest.approx(own["committed"].mean())
        counts = run.items[run.items["method"] == method].groupby("suite")[["accepted", "rejected"]].sum()
        alphas = counts["accepted"] / counts.sum(axis=1)
        assert theorem[position] == pytest.approx(np.mean([expected_committed(a, SIZES[method]) for a in alphas]))
    assert actual == pytest.approx(theorem)  # no window here is short
    assert lines_of(below)["forward passes"] == pytest.approx([48 / 20] * 2)


def test_figures_that_need_seconds_are_not_drawn_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sized_run(tmp_path)
    run.config.timed = False
    write_meta(tmp_path, {"config": run.config.to_json()})
    assert cli.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    why = "the run's seconds were not measured for comparison"
    skipped = [line.split(":")[0] for line in said if line.endswith(why)]
    assert skipped == ["tradeoff", "window-size", "anchor", "front", "front-gsm8k", "front-math"]
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"acceptance"}
    assert tradeoff(run)[0].empty


def test_curves_are_raw_and_smoothed_and_stages_follow_one_another(tmp_path: Path) -> None:
    steps = [*range(1, 101), *range(1, 21)]
    losses = np.random.default_rng(0).uniform(1, 2, len(steps))
    text = "".join(f"{step},{loss}\n" for step, loss in zip(steps, losses, strict=True))
    (tmp_path / "loss.csv").write_text("step,loss\n" + text)
    figure, _ = draw_curves({"one": tmp_path / "loss.csv"})
    raw, smooth = figure.axes[0].get_lines()
    assert np.array_equal(raw.get_xdata(), range(1, 121)) and np.allclose(raw.get_ydata(), losses, rtol=1e-12)
    heights = np.asarray(smooth.get_ydata())
    assert smooth.get_label() == "one" and heights[60] == pytest.approx(losses[59:62].mean())
    for name, content, says in (("none", None, "is no loss.csv"), ("bad", "step\n1\n", "is no loss.csv")):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=says):
            draw_curves({name: tmp_path / name})


def test_throughput_is_the_mean_over_the_suites(tmp_path: Path) -> None:
    rows = [
        {"suite": suite, "method": method, "batch": size, "responses/s": speed * size}
        for suite, speed in (("gsm8k", 1.0), ("mbpp", 3.0))
        for method in ("llada", "threshold")
        for size in (1, 4)
    ]
    (tmp_path / "record.json").write_text(json.dumps({"throughput": rows}))
    figure, _ = draw_throughput(tmp_path / "record.json")
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in figure.axes[0].get_lines()}
    assert lines == dict.fromkeys(("llada", "threshold"), ([1, 4], [2.0, 8.0]))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match=r"no record of harness\.bench --throughput"):
        draw_throughput(tmp_path / "other.json")
    assert cli.main(["--throughput", str(tmp_path / "record.json"), "--out", str(tmp_path / "out")]) == 0
    assert {path.stem for path in (tmp_path / "out").glob("[!.]*")} == {"throughput"}


def test_the_command_writes_what_it_can_the_same_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sized_run(tmp_path / "run")
    (tmp_path / "loss.csv").write_text("step,loss\n1,3.0\n2,2.5\n")
    command = [str(run.folder), "--curves", f"base={tmp_path / 'loss.csv'}", "--out"]
    for out in ("one", "two"):
        assert cli.main([*command, str(tmp_path / out)]) == 0
    names = {"tradeoff", "acceptance", "window-size", "front", "front-gsm8k", "front-math", "curves"}
    written = list((tmp_path / "one").glob("[!.]*"))
    assert {path.name for path in written} == {f"{n}.{kind}" for n in names for kind in UNDATED}
    for path in written:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
        assert b"CreationDate" not in path.read_bytes()
    capsys.readouterr()
    bare = save(tmp_path / "bare", [item("llada", "gsm8k", 0)])
    assert cli.main([str(bare.folder)]) == 0
    said = capsys.readouterr().out
    assert "acceptance: skipped, no method" in said and "window-size: skipped, it takes two" in said
    assert {path.stem for path in (bare.folder / "figures").iterdir()} == {"tradeoff"}


@pytest.mark.parametrize("line", [[], ["--curves", "a=b"], ["--out", "x", "--curves", "loss.csv"]])
def test_a_line_that_asks_for_nothing_clear_is_refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused(cli.main, line, capsys)


# Colors: seen on paper and on a dark page, and told apart by every eye


# Linear RGB as a dichromat sees it: Machado, Oliveira and Fernandes (2009), severity 1.
EYES = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def linear(color: str) -> np.ndarray:
    return np.array([part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)])


def lab(color: str, eye: str) -> np.ndarray:
    """CIELAB of a color as an eye sees it."""
    x, y, z = np.cbrt(TO_XYZ @ np.clip(EYES[eye] @ linear(color), 1e-3, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("paper", ["#ffffff", "#161618"])
def test_a_line_stands_out_from_the_paper(paper: str) -> None:
    """WCAG asks a ratio of 3 for graphics."""
    for color in PALETTE:
        dark, light = sorted(0.05 + TO_XYZ[1] @ linear(each) for each in (color, paper))
        assert light / dark >= 3, color


@pytest.mark.parametrize("eye", EYES)
def test_two_colors_differ_to_every_eye(eye: str) -> None:
    """A difference of 2.3 in CIELAB is just seen; a few times that is seen at a glance."""
    for one, other in combinations(PALETTE, 2):
        assert np.linalg.norm(lab(one, eye) - lab(other, eye)) > 10, (one, other)


# Figures of one option at several values
def run_with(folder: Path, methods: str, **of: dict[str, str]) -> Run:
    """Ten items of two suites: method n takes 1 / (n + 1) s and 96 - n forwards, and solves the first 9 - n % 5.

    methods: elements of --methods. of: method -> label and decoder, of what is no such element.
    """
    named: dict[str, Any] = dict(of)
    for key, preset in methods_named(methods).items():
        setting = preset.for_suite("gsm8k", {"gen_length": 48, "block_length": 48}, {})
        options = {"gen_length": 48, "block_length": setting.block_length, "options": setting.options}
        suites = {"gsm8k": options, "math": options}
        named[key] = {"label": preset.label, "method": preset.method, "role": preset.role, "suites": suites}
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
    figure, left_out = draw_front(run_with(tmp_path, f"llada,llada/2,{THRESHOLDS},ssd"), "math")
    lines = {drawn.get_label(): drawn.lines[0] for drawn in figure.axes[0].containers}
    assert left_out == [] and list(lines) == ["LLaDA", "Threshold", "SSD"]
    assert list(lines["LLaDA"].get_xdata()) == pytest.approx([500, 1000])  # in the order of time
    assert list(lines["Threshold"].get_xdata()) == pytest.approx([200, 250, 1000 / 3])
    assert list(lines["Threshold"].get_ydata()) == pytest.approx([50, 60, 70])


def test_the_band_of_a_front_is_llada_as_tuned_for_accuracy(tmp_path: Path) -> None:
    def band(run: Run) -> float:
        (drawn,) = draw_front(run, "math")[0].axes[0].patches
        return float(drawn.get_y())

    tuned = {"llada-tuned-accurate": {"label": "LLaDA, tuned (accurate)", "method": "llada"}}
    low = [100 * stats.binomtest(right, 10).proportion_ci(method="wilson").low for right in (9, 6)]
    assert band(run_with(tmp_path / "tuned", f"ssd,dcd,llada,{THRESHOLDS}", **tuned)) == pytest.approx(low[0])
    assert band(run_with(tmp_path, f"ssd,dcd,wino,llada,{THRESHOLDS}")) == pytest.approx(low[1])


def test_a_method_that_only_the_timed_part_has_is_no_point_of_a_front(tmp_path: Path) -> None:
    def of(methods: Any, count: int) -> list[dict[str, Any]]:
        at = itertools.product(methods, ("gsm8k", "math"), range(count))
        return [item(method, suite, n, prompt_hash=f"p{n}", correct=n > 1, seconds=1.0) for method, suite, n in at]

    config = msgspec.to_builtins(run_with(tmp_path / "speed", f"llada,{THRESHOLDS}").config)
    save(tmp_path / "speed", of(config["methods"], 5), config=config)
    alone = {name: method for name, method in config["methods"].items() if name != "llada"}
    save(tmp_path, of(alone, 20), config=config | {"timed": False, "methods": alone})
    figure, left_out = draw_front(read_measured(tmp_path))
    assert left_out == ["without LLaDA: its accuracy is of fewer problems"]
    assert [drawn.get_label() for drawn in figure.axes[0].containers] == ["Threshold"]


def test_what_shows_nothing_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(Skipped, match="too many to distinguish"):
        draw_tradeoff(save_presets(tmp_path / "many", *list(PRESETS)[:21]))
    with pytest.raises(Skipped, match="no decoder but LLaDA has two settings"):
        draw_front(run_with(tmp_path / "front", "llada,llada/2,ssd,threshold"), "math")
    with pytest.raises(Skipped, match="two anchors"):
        draw_anchor(run_with(tmp_path / "anchor", "llada,fef-two-stream"))


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
    figure, _ = draw_front(run_with(tmp_path, f"llada,llada/2,{THRESHOLDS},{two_stream},llada+dual,threshold+dual"))
    joined = {drawn.get_label(): drawn.lines[0].get_linestyle() != "None" for drawn in figure.axes[0].containers}
    assert joined == {"LLaDA": True, "Threshold": True, "FeF-DLLM two-stream": False, "dual cache": False}


def own_series(figure: Figure) -> dict[str, list[float]]:
    """Milliseconds of every line of a front, by its name."""
    (axes,) = figure.axes
    return {str(each.get_label()): list(each.lines[0].get_xdata()) for each in axes.containers}


def test_decoders_of_ones_own_are_series_or_are_named_by_a_pattern_that_something_fits(tmp_path: Path) -> None:
    of = {f"margin(low={low})": {"label": f"Margin (low={low})", "method": "margin"} for low in (0.2, 0.8)}
    figure, _ = draw_front(run_with(tmp_path / "margin", "llada", **of), "math")
    assert own_series(figure)["Margin"] == pytest.approx([500, 1000])
    of = {name: {"label": name.upper(), "method": name} for name in ("one", "other", "two")}
    run = run_with(tmp_path, "llada", **of)
    figure, _ = draw_front(run, "math", {"Mine": "o*"})
    assert len(own_series(figure)["Mine"]) == 2 and len(own_series(figure)["TWO"]) == 1
    with pytest.raises(UserError, match=r"--series Mine=three: no method fits; the run has one, other, two, llada"):
        draw_front(run, "math", {"Mine": "three"})


def test_parallelism_takes_the_same_titles_as_the_front(tmp_path: Path) -> None:
    figure, _ = draw_parallelism(run_with(tmp_path, f"llada,{THRESHOLDS}"), None, {"Mine": "threshold*"})
    assert [str(line.get_label()).partition(" (")[0] for line in figure.axes[0].lines] == ["Mine"]


def test_the_front_is_what_nothing_beats() -> None:
    seconds = pd.Series({"slow": 4.0, "slower": 5.0, "fast": 1.0, "middling": 2.0, "same": 2.0})
    accuracy = pd.Series({"slow": 90.0, "slower": 89.0, "fast": 50.0, "middling": 70.0, "same": 60.0})
    assert front_of(seconds, accuracy) == ["fast", "middling", "slow"]


def test_methods_that_differ_in_one_option_alone_are_by_its_value(tmp_path: Path) -> None:
    methods = "llada,fef-2,fef-4,fef-4(window=4),fef-two-stream,fef-two-stream-1,fef-two-stream(window=4)"
    run = run_with(tmp_path, methods)
    assert by_option(run, "window", 16) == {
        "FeF-DLLM (step=4)": {16: "fef-4", 4: "fef-4(window=4)"},
        "FeF-DLLM two-stream (step=2)": {16: "fef-two-stream", 4: "fef-two-stream(window=4)"},
    }


def test_anchors_are_in_order_with_llada_beside(tmp_path: Path) -> None:
    run = run_with(tmp_path, "llada,fef-two-stream,fef-two-stream(anchor=32),fef-two-stream(anchor=8)")
    assert list(by_option(run, "anchor", WHOLE)["FeF-DLLM two-stream (step=2)"]) == [WHOLE, 32, 8]
    figure, _ = draw_anchor(run)
    above, below = figure.axes
    assert lines_of(above)["LLaDA"] == [90, 90]
    (drawn,) = below.containers
    line = drawn.lines[0]
    assert list(line.get_xdata()) == [0, 1, 2] and list(line.get_ydata()) == pytest.approx([4, 3, 2])
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["8", "32", "whole"]


def test_tuned_settings_of_a_decoder_share_a_look_and_no_line(tmp_path: Path) -> None:
    def tuned(decoder: str, label: str, *names: str) -> dict[str, dict[str, str]]:
        return {f"{decoder}-tuned-{name}": {"label": f"{label}, tuned ({name})", "method": decoder} for name in names}

    own = tuned("entropy", "Entropy", "fast", "accurate", "fast/control") | tuned("fef", "FeF-DLLM", "fast", "accurate")
    figure, _ = draw_front(run_with(tmp_path, "llada", **own))
    points = {drawn.get_label(): drawn.lines[0] for drawn in figure.axes[0].containers}
    lengths = {name: len(line.get_xdata()) for name, line in points.items()}
    assert lengths == {"Entropy, tuned": 3, "FeF-DLLM, tuned": 2, "LLaDA": 1}
    assert points["Entropy, tuned"].get_linestyle() == "None"


def test_names_stand_at_points_where_all_find_room() -> None:
    """Three at one point do, sixty do not: then none is written."""
    for count, room in ((3, True), (60, False)):
        figure, axes = new_figure(2.9)
        points = {f"decoder number {number}": (1.0, 1.0) for number in range(count)}
        axes.plot([0, 2], [0, 2])
        assert name_points(figure, axes, points, [(1.0, 1.0)]) is room
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == (count if room else 0)
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
