"""The colours of figures and of the report: seen on paper and on a dark page, and told apart by every eye."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tables.charts.palette import PALETTE

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
