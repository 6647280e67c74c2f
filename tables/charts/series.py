"""Figures of one option at several values: the front of accuracy and time, window sizes, anchors.

A series is a list of methods in the order of its values: presets, or elements that differ in options alone.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from msgspec import structs

from harness.errors import UserError
from harness.measures.intervals import tradeoff
from harness.measures.table import REFERENCE, measure, suite_titles
from harness.methods.choosing import TUNED
from harness.methods.tuning import SPACES
from harness.records.store import Run
from tables.charts.drawing import Skipped, legend_below, looks, need_seconds, new_figure

FRONT = {
    "LLaDA, 1 to 8 a step": ["llada", "llada/2", "llada/4", "llada/8"],
    "Threshold": ["threshold-0.95", "threshold", "threshold-0.8", "threshold-0.7", "threshold-0.5"],
    "Factor": ["factor-0.25", "factor-0.5", "factor", "factor-2.0", "factor-4.0"],
    "Entropy": ["entropy-0.01", "entropy", "entropy-0.3", "entropy-1.0", "entropy-3.0"],
    "FeF-DLLM": ["fef-2", "fef-fast"],
    "two-stream, 4 to 1 steps": ["fef-two-stream-4", "fef-two-stream", "fef-two-stream-1"],
    "two-stream, re-mask below": [
        *("fef-two-stream-all", "fef-two-stream-r0.99", "fef-two-stream", "fef-two-stream-r0.5")
    ],
    "two-stream, fresh below": [
        *("fef-two-stream-c0.7", "fef-two-stream-1-c0.9", "fef-two-stream-1-c0.7", "fef-two-stream-1-c0.5")
    ],
    "KLASS": ["klass", "klass-0.6"],
    "WINO": ["wino-0.8", "wino", "wino-0.3"],
    "FreeDave": ["freedave", "freedave-8"],
    "Prophet": ["prophet", "prophet-4"],
    "SSD": ["ssd"],
    "DDOSP": ["ddosp"],
    "DCD": ["dcd"],
    "PC-Sampler": ["pc-sampler"],
    "prefix cache": ["llada+prefix", "threshold+prefix"],
    "dual cache": ["llada+dual", "klass+dual", "wino+dual", "threshold+dual", "entropy+dual", "factor+dual"],
    "others, FeF's weights": ["llada-trained", "threshold-trained", "entropy-trained", "factor-trained"],
    "two-stream, anchor": [
        *("fef-two-stream-a16", "fef-two-stream-1-a16", "fef-two-stream-a32", "fef-two-stream-1-a32")
    ],
    "two-stream, by confidence": [
        *("fef-two-stream-1-sure-c0.7", "fef-two-stream-sure", "fef-two-stream-1-sure"),
    ],
}
APART = {"prefix cache", "dual cache", "others, FeF's weights"}  # different decoders, which no line should join
BY_WINDOW = {
    "full": {2: "fef-2-w2", 4: "fef-2-w4", 8: "fef-2-w8", 16: "fef-2", 32: "fef-2-w32", 64: "fef-2-w64"},
    "two-stream": {n: "fef-two-stream" if n == 16 else f"fef-two-stream-w{n}" for n in (2, 4, 8, 16, 32, 64)},
}
WHOLE = "whole"
ANCHORS = (8, 16, 24, 32, WHOLE)
BY_ANCHOR = {
    "trained": {n: f"fef-two-stream-a{n}" for n in ANCHORS[:-1]} | {WHOLE: "fef-two-stream"},
    "not trained for it": {n: f"fef-two-stream-a{n}-untrained" for n in ANCHORS[:-1]}
    | {WHOLE: "fef-two-stream-untrained"},
}


def draw_front(run: Run, suite: str | None = None, named: Mapping[str, str] | None = None) -> tuple[Figure, list[str]]:
    """Accuracy against mean seconds of a response, series of FRONT and of the run's own, and what was left out.

    Lines join them but for those APART; what a decoder was tuned to are points of one look. The run's own series are
    elements that differ in options alone, and `named`: title -> pattern of methods (fnmatch). suite: None for means
    over the suites. Whiskers are 95% intervals, Wilson's on a suite; the band is LLaDA's. Raises Skipped unless two
    decoders were tuned, or a series of its own or two others have two methods that were scored, and if the run was not
    timed.
    """
    need_seconds(run)
    label = "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"
    run = run if suite is None else _only(run, suite)
    seconds = measure(run).groupby("method")["seconds_per_item"].mean()
    accuracy, left_out = tradeoff(run)
    accuracy = accuracy.set_index("method")
    own, tuned = _own(run, named or {}), _tuned(run)
    lines = {name: [m for m in row if m in accuracy.index] for name, row in {**FRONT, **own, **tuned}.items()}
    lines = {name: series for name, series in lines.items() if series}
    lines |= {name: list(seconds[lines[name]].sort_values().index) for name in own if name in lines}
    several = [name for name, series in lines.items() if len(series) > 1]
    if len(several) < 2 and not own.keys() & {*several} and len(tuned) < 2:
        raise Skipped("the run has no two series of methods with two scored members each")
    figure, axes = new_figure(2.3, entries=list(lines))
    for (name, series), look, dashes in zip(lines.items(), looks(), cycle(("-", "--", ":")), strict=False):
        rows = accuracy.loc[series]
        axes.errorbar(
            1e3 * seconds[series],
            rows["accuracy"],
            yerr=[rows["accuracy"] - rows["accuracy_low"], rows["accuracy_high"] - rows["accuracy"]],
            elinewidth=0.4,
            linewidth=0.7,
            linestyle="none" if name in tuned or name in APART else dashes,
            label=name,
            **look,
        )
    if REFERENCE in accuracy.index:
        ends = accuracy.loc[REFERENCE, ["accuracy_low", "accuracy_high"]]
        axes.axhspan(*ends, color="0.95", linewidth=0, zorder=-1)
    front = front_of(seconds[accuracy.index], accuracy["accuracy"])
    axes.step(1e3 * seconds[front], accuracy["accuracy"][front], where="post", color="0.8", linewidth=2, zorder=0)
    axes.set(xscale="log", xlabel="milliseconds a response", ylabel=label)
    within_decade = seconds[accuracy.index].max() < 10 * seconds[accuracy.index].min()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 6, 8) if within_decade else (1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    legend_below(figure, axes)
    return figure, left_out


def _own(run: Run, named: Mapping[str, str]) -> dict[str, list[str]]:
    """The run's methods that no other series has, those that differ in options alone together, by their label.

    named: title -> pattern; what fits a pattern is of the first such series. Raises UserError if nothing fits one.
    """
    known = {method for series in FRONT.values() for method in series}
    rest = [name for name in run.config.methods if TUNED not in name]
    found: dict[str, list[str]] = {}
    for title, pattern in named.items():
        found[title] = fnmatch.filter(rest, pattern)
        if not found[title]:
            raise UserError(f"--series {title}={pattern}: no method fits; the run has {', '.join(run.config.methods)}")
        rest = [name for name in rest if name not in found[title]]
    for name in rest:
        if name not in known:
            label = run.config.methods[name].label.partition(" (")[0] or name.partition("(")[0]
            found.setdefault(label, [*FRONT.get(label, [])]).append(name)
    return found


def _tuned(run: Run) -> dict[str, list[str]]:
    """The run's methods with tuned settings, by their decoder's label."""
    decoders: dict[str, list[str]] = {}
    for name in run.config.methods:
        decoder, tuned, _ = name.partition(TUNED)
        if tuned:
            decoders.setdefault(f"{SPACES[decoder].label}, tuned", []).append(name)
    return decoders


def front_of(seconds: pd.Series[float], accuracy: pd.Series[float]) -> list[str]:
    """The methods than which none is both as fast and more accurate, or faster and as accurate, fastest first."""
    best, front = float("-inf"), []
    for method in sorted(seconds.index, key=lambda each: (seconds[each], -accuracy[each])):
        if accuracy[method] > best:
            best = accuracy[method]
            front.append(method)
    return front


def _only(run: Run, suite: str) -> Run:
    """The part of a run that is of one suite."""
    config = structs.replace(run.config, suites={suite: run.config.suites[suite]})
    windows = run.windows[run.windows["suite"] == suite] if len(run.windows) else run.windows
    items = run.items[run.items["suite"] == suite]
    return replace(run, meta=structs.replace(run.meta, config=config), items=items, windows=windows)


def draw_speed_by_window(run: Run) -> tuple[Figure, list[str]]:
    """Wall-clock and forward speedup at two steps against window size, both verifications, means over the suites.

    Raises Skipped if one of the verifications has fewer than two window sizes in the run, or if it was not timed.
    """
    need_seconds(run)
    means = _means(run)
    sizes = {name: {n: m for n, m in series.items() if m in means.index} for name, series in BY_WINDOW.items()}
    if min(len(series) for series in sizes.values()) < 2:
        raise Skipped("it takes two window sizes at two steps of both verifications (--methods window)")
    figure, axes = new_figure(2.5)
    for (name, series), look in zip(sizes.items(), looks(), strict=False):
        rows = means.loc[list(series.values())]
        axes.plot(list(series), rows["speedup"], linestyle="-", label=f"{name}, wall-clock", **look)
        faint = look | {"markersize": 2.5}
        axes.plot(list(series), rows["forward_speedup"], linestyle=":", label=f"{name}, forward passes", **faint)
    axes.axhline(1, color="0.7", linewidth=0.6, zorder=0)
    everything = sorted({n for series in sizes.values() for n in series})
    axes.set(xscale="log", yscale="log", xlabel="window size", ylabel="speedup over LLaDA")
    axes.set_xticks(everything, [str(n) for n in everything], minor=False)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.legend()
    return figure, []


def draw_anchor(run: Run) -> tuple[Figure, list[str]]:
    """Accuracy and wall-clock speedup of two-stream verification against its anchor, means over the suites.

    Raises Skipped with fewer than two anchors, or if the run was not timed.
    """
    need_seconds(run)
    frame, left_out = tradeoff(run)
    frame = frame.set_index("method")
    series = {name: {n: m for n, m in row.items() if m in frame.index} for name, row in BY_ANCHOR.items()}
    series = {name: row for name, row in series.items() if row}
    if max(map(len, series.values()), default=0) < 2:
        raise Skipped("it takes two anchors of two-stream verification (--methods anchor)")
    figure, (above, below) = new_figure(3.6, rows=2, entries=[*series, "LLaDA"])
    for (name, row), look in zip(series.items(), looks(), strict=False):
        rows, positions = frame.loc[list(row.values())], [ANCHORS.index(n) for n in row]
        for axes, value in ((above, "accuracy"), (below, "speedup")):
            whiskers = [rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]]
            whiskers = [
                length.clip(lower=0) for length in whiskers
            ]  # rounding can make an interval of width 0 negative
            axes.errorbar(positions, rows[value], yerr=whiskers, elinewidth=0.6, linestyle="-", label=name, **look)
    if "llada" in frame.index:
        above.axhline(frame.loc["llada", "accuracy"], color="0.5", linestyle="--", linewidth=0.8, label="LLaDA")
    above.set(ylabel="accuracy (%)")
    below.set(ylabel="wall-clock speedup", xlabel="anchor: unresolved positions per context pass")
    below.set_xticks(range(len(ANCHORS)), [str(n) for n in ANCHORS], minor=False)
    legend_below(figure, above)
    return figure, left_out


def _means(run: Run) -> pd.DataFrame:
    """Speedups by method, means over the suites, of the methods that have all of the run's."""
    measured = measure(run)
    complete = measured.groupby("method")["suite"].nunique() == measured["suite"].nunique()
    means: pd.DataFrame = measured.groupby("method")[["speedup", "forward_speedup"]].mean()[complete]
    return means
