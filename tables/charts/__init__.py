"""Numbers become figures."""

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#5a50f0", "#3a95cf", "#767676")
# The shapes that go with them, as plotly calls them; more than colors, so that the two do not repeat together.
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"),
    *("pentagon", "hexagon", "hourglass"),
)
