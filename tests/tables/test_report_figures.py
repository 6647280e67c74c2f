"""The report's figures in a browser, for a run of many methods with long names."""

from __future__ import annotations

from pathlib import Path

import browsers
import pytest
from browsers import chromium, visit
from paths import ROOT

from tables import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(bool(browsers.MISSING), reason=f"no browser: {browsers.MISSING}"),
]
FIGURES = ("front", "acceptance", "calls")
# Pixels from above: end of the ticks' numbers, begin and end of the axis title and of the legend, end of the figure.
EDGES = """(name) => {
  const plot = document.querySelector(`#plot-${name}`);
  const [title, legend] = [".xtitle", ".legend"].map((each) => plot.querySelector(each).getBoundingClientRect());
  const ticks = Math.max(...[...plot.querySelectorAll(".xtick")].map((each) => each.getBoundingClientRect().bottom));
  return [ticks, title.top, title.bottom, legend.top, legend.bottom, plot.getBoundingClientRect().bottom];
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of 32 methods."""
    folder = tmp_path_factory.mktemp("front") / "report"
    report.main([str(ROOT / "results" / "reference" / "front"), "--out", str(folder)])
    return folder


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_legend_covers_nothing_and_is_whole(made: Path, width: int) -> None:
    with chromium() as browser, visit(browser, made, width=width) as opened:
        for name in FIGURES:
            opened.page.wait_for_selector(f"#plot-{name}[data-drawn]")
            edges = [round(edge) for edge in opened.page.evaluate(EDGES, name)]
            assert edges == sorted(edges), name
        assert opened.complaints == []
