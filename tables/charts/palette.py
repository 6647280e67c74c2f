"""Colors that people tell apart whatever their eyes: those of Okabe and Ito, darkened where white paper needs it."""

from __future__ import annotations

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
# The shapes that go with them, as plotly calls them; more than colors, so that the two do not repeat together.
MARKERS = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"),
    *("pentagon", "hexagon", "hourglass"),
)
