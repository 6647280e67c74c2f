"""Figures of decoders at several settings: the front of accuracy and time, window sizes, anchors.

Which methods are one series is read from the run's configuration, so a decoder of one's own is in them too.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from msgspec import structs

from harness.errors import UserError
from harness.measures.intervals import tradeoff
from harness.measures.table import REFERENCE, measure, suite_titles
from harness.methods.choosing import TUNED
from harness.records.schema import Method
from harness.records.store import Run
from tables.charts.drawing import Skipped, legend_below, looks, need_seconds, new_figure

WHOLE = "whole"  # the anchor of a step that has one context


def series_of(run: Run, named: Mapping[str, str]) -> dict[str, list[str]]:
    """The run's methods by title: those of one decoder, verification and checkpoint, by the shortest of their labels.

    What a decoder was tuned to is a series, with all its checkpoints; so are all that have one cache. named: title ->
    pattern (fnmatch); what fits it is of that series alone. Raises UserError if nothing fits a pattern.
    """
    methods = run.config.methods
    rest, found = list(methods), {}
    for title, pattern in named.items():
        found[title] = [name for name in fnmatch.filter(rest, pattern) if TUNED not in name]
        if not found[title]:
            raise UserError(f"--series {title}={pattern}: no method fits; the run has {', '.join(methods)}")
        rest = [name for name in rest if name not in found[title]]
    kinds: dict[object, list[str]] = {}
    for name in rest:
        kinds.setdefault(_kind(name, methods[name]), []).append(name)
    for kind, names in kinds.items():
        shortest = min((methods[name].label or name for name in names), key=len)
        found[kind if isinstance(kind, str) else shortest.partition(" (")[0]] = names
    return found


def _kind(name: str, method: Method) -> object:
    """What the methods of a series have in common; a text is the series' title."""
    if TUNED in name:
        return method.method, TUNED
    options = _settings(method)
    cache = options.get("cache", "none")
    return f"{cache} cache" if cache in ("prefix", "dual") else (method.method, method.role, options.get("verify"))


def _settings(method: Method) -> dict[str, Any]:
    """The options and lengths that a method has on its suites, by name; by suite where they differ."""
    every: dict[str, dict[str, Any]] = {}
    for suite, setting in method.suites.items():
        lengths = {"gen_length": setting.gen_length, "block_length": setting.block_length}
        for name, value in {**lengths, **setting.options}.items():
            every.setdefault(name, {})[suite] = value
    same = {
        name: next(iter(values.values())) for name, values in every.items() if len({*map(str, values.values())}) == 1
    }
    return {**every, **same}


def by_option(run: Run, option: str, default: Any) -> dict[str, dict[Any, str]]:
    """The methods that differ in this option alone, value -> method, by the label of one that has the default."""
    groups: dict[str, dict[Any, str]] = {}
    for name, method in run.config.methods.items():
        settings = _settings(method)
        value = settings.pop(option, default)
        if isinstance(value, dict):  # another one on every suite
            continue
        same = json.dumps([method.method, method.role, method.draft_role, settings], sort_keys=True)
        groups.setdefault(same, {})[value] = name
    labels = {name: method.label or name for name, method in run.config.methods.items()}
    several = [group for group in groups.values() if len(group) > 1]
    return {labels[group.get(default, next(iter(group.values())))]: group for group in several}


def draw_front(run: Run, suite: str | None = None, named: Mapping[str, str] | None = None) -> tuple[Figure, list[str]]:
    """Accuracy against mean seconds of a response, by series (`series_of`), and what was left out.

    A line joins methods that differ in one option. suite: None for means over the suites. Whiskers are 95% intervals,
    Wilson's on a suite; the band is LLaDA's. Raises Skipped unless methods were tuned or a series beside LLaDA's has
    two that were scored, and if the run was not timed.
    """
    need_seconds(run)
    label = "mean accuracy (%)" if suite is None else f"accuracy on {suite_titles(run)[suite]} (%)"
    run = run if suite is None else _only(run, suite)
    seconds = measure(run).groupby("method")["seconds_per_item"].mean()
    accuracy, left_out = tradeoff(run)
    accuracy = accuracy.set_index("method")
    lines = {
        title: list(seconds[[name for name in names if name in accuracy.index]].sort_values().index)
        for title, names in series_of(run, named or {}).items()
    }
    lines = {title: series for title, series in lines.items() if series}
    tuned = any(TUNED in name for series in lines.values() for name in series)
    if not tuned and all(len(series) == 1 or REFERENCE in series for series in lines.values()):
        raise Skipped("no decoder but LLaDA has two settings that were scored")
    figure, axes = new_figure(2.3, entries=list(lines))
    for (name, series), look, dashes in zip(lines.items(), looks(), cycle(("-", "--", ":")), strict=False):
        rows = accuracy.loc[series]
        axes.errorbar(
            1e3 * seconds[series],
            rows["accuracy"],
            yerr=[rows["accuracy"] - rows["accuracy_low"], rows["accuracy_high"] - rows["accuracy"]],
            elinewidth=0.4,
            linewidth=0.7,
            linestyle=dashes if TUNED not in series[0] and _one_option(run, series) else "none",
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


def _one_option(run: Run, methods: list[str]) -> bool:
    """Whether methods are one decoder with one checkpoint, and differ in one option at most."""
    rows = [run.config.methods[name] for name in methods]
    settings = [{**_settings(row), "decoder": (row.method, row.role)} for row in rows]
    every = {name for own in settings for name in own}
    differ = [name for name in every if len({str(own.get(name)) for own in settings}) > 1]
    return len(differ) <= 1 and "decoder" not in differ


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


def draw_anchor(run: Run) -> tuple[Figure, list[str]]:
    """Accuracy and wall-clock speedup of two-stream verification against its anchor, means over the suites.

    Raises Skipped with fewer than two anchors, or if the run was not timed.
    """
    need_seconds(run)
    frame, left_out = tradeoff(run)
    frame = frame.set_index("method")
    series = {
        title: {n: method for n, method in row.items() if method in frame.index}
        for title, row in by_option(run, "anchor", WHOLE).items()
    }
    series = {title: row for title, row in series.items() if len(row) > 1}
    if not series:
        raise Skipped("it takes two anchors of two-stream verification (--methods anchor)")
    anchors = sorted({n for row in series.values() for n in row}, key=lambda n: (n == WHOLE, n if n != WHOLE else 0))
    figure, (above, below) = new_figure(3.6, rows=2, entries=[*series, "LLaDA"])
    for (name, row), look in zip(series.items(), looks(), strict=False):
        rows, positions = (
            frame.loc[[row[n] for n in anchors if n in row]],
            [i for i, n in enumerate(anchors) if n in row],
        )
        for axes, value in ((above, "accuracy"), (below, "speedup")):
            whiskers = [rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]]
            whiskers = [length.clip(lower=0) for length in whiskers]  # rounding can make a width of 0 negative
            axes.errorbar(positions, rows[value], yerr=whiskers, elinewidth=0.6, linestyle="-", label=name, **look)
    if "llada" in frame.index:
        above.axhline(frame.loc["llada", "accuracy"], color="0.5", linestyle="--", linewidth=0.8, label="LLaDA")
    above.set(ylabel="accuracy (%)")
    below.set(ylabel="wall-clock speedup", xlabel="anchor: unresolved positions per context pass")
    below.set_xticks(range(len(anchors)), [str(n) for n in anchors], minor=False)
    legend_below(figure, above)
    return figure, left_out
