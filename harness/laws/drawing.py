"""The audit's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from harness.laws.exact import Result


def draw_laws(results: list[Result], folder: Path) -> None:
    """error.png and .pdf: total variation against expected forward passes, a marker per decoder, bars where sampled."""
    figure = Figure(figsize=(6.5, 3.8))
    axes = figure.subplots()
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    decoders = list(dict.fromkeys(result.case.decoder for result in results))
    for number, decoder in enumerate(decoders):
        own = [result for result in results if result.case.decoder == decoder]
        axes.errorbar(
            [result.measured.forwards for result in own],
            [result.distance for result in own],
            yerr=[[min(result.measured.bound(), result.distance) for result in own], [r.measured.bound() for r in own]],
            fmt="os^Dv<>pP*X"[number % 11],
            color=colormaps["tab20"](2 * number % 20 + number // 10),
            fillstyle="none",  # markers of decoders with the same law overlap
            elinewidth=0.8,
            label=decoder,
        )
    axes.set(xlabel="expected forward passes", ylabel="total variation to the joint")
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    _save(figure, folder / "error")


def draw_neural(table: pd.DataFrame, folder: Path) -> None:
    """neural.png and .pdf: total variation against w, a line per column, the last row being the bound."""
    figure = Figure(figsize=(4.5, 3.2))
    axes = figure.subplots()
    for name in table:
        style: dict[str, Any] = {"color": "black", "linewidth": 2} if name == "all" else {}
        axes.plot(range(1, len(table)), table[name].iloc[:-1], label=name, **style)
    axes.set(xlabel="tokens drawn at once, w", ylabel="total variation to the chain law")
    axes.set(xticks=range(1, len(table), 3), ylim=(-0.02, 1.02))
    axes.legend(frameon=False, fontsize="small")
    _save(figure, folder / "neural")


def _save(figure: Figure, stem: Path) -> None:
    for kind in ("png", "pdf"):
        figure.savefig(stem.with_suffix(f".{kind}"), dpi=150, bbox_inches="tight")
