"""Figures from synthetic records: what their lines hold, what is skipped, that same records give
same bytes; colors."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from run_records import drafted_window as window
from run_records import item, lines_of, save, seeded
from scipy import stats

from harness.errors import UserError
from harness.measures.intervals import tradeoff
from harness.records.store import Run, write_meta
from tables import figures as cli
from tables.charts import (
    Skipped,
    draw_front,
    draw_pass_at_k,
    looks_of,
)
from tables.series import PALETTE

SIZES = {"fef-4(window=4)": 4, "fef-4": 16, "fef-2": 16}


def sized_run(
    folder: Path, methods: tuple[str, ...] = ("fef-4(window=4)", "fef-4"), **fields: Any
) -> Run:
    """LLaDA and FeF methods, 20 items on each of two suites; windows accept their drafts
    independently."""
    draws = np.random.default_rng(0)
    items, windows = [], []
    for suite in ("gsm8k", "math"):
        for number in range(20):
            items.append(
                item(
                    "llada",
                    suite,
                    number,
                    correct=number < 15,
                    seconds=1 + draws.random(),
                    forwards=48,
                )
            )
            for method in methods:
                size = SIZES[method]
                accepted = [int(np.cumprod(draws.random(size) < 0.9).sum()) for _ in range(10)]
                counts = {"proposed": 10 * size, "accepted": sum(accepted), "draft_forwards": 10}
                counts["rejected"] = sum(count < size for count in accepted)
                spent = {
                    "seconds": 0.5 + draws.random() / 2,
                    "forwards": 20,
                    "correct": number < 12,
                }
                items.append(item(method, suite, number, **counts, **spent))
                windows += [window(method, number, size, count, suite=suite) for count in accepted]
    named: dict[str, Any] = {"llada": {"label": "LLaDA", "method": "llada"}}
    for method in methods:
        options = {suite: {"options": {"window": SIZES[method]}} for suite in ("gsm8k", "math")}
        named[method] = {"label": method.upper(), "method": "fef", "suites": options}
    config = {
        "data": "generated",
        "methods": named,
        "suites": {"gsm8k": {"title": "GSM8K"}, "math": {"title": "MATH"}},
    }
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


def test_every_series_has_another_look(tmp_path: Path) -> None:
    run = sized_run(tmp_path, ("fef-4(window=4)", "fef-4", "fef-2"))
    series = looks_of(run, {"Mine": "fef-4*"})
    assert [*series] == ["Mine", "LLaDA", "FEF-2"]
    assert len({str(look) for look in series.values()}) == 3


def test_what_the_tradeoff_leaves_out_is_said(tmp_path: Path) -> None:
    run = sized_run(tmp_path)
    short = run.items[(run.items["method"] != "fef-4") | (run.items["suite"] == "math")]
    frame, left_out = tradeoff(Run(run.folder, run.meta, short, run.windows))
    assert "fef-4" not in set(frame["method"]) and left_out[0].startswith(
        "without FEF-4: a suite is missing"
    )
    verdicts = run.items["correct"].astype(object).where(run.items["suite"] != "math", None)
    frame, left_out = tradeoff(
        Run(run.folder, run.meta, run.items.assign(correct=verdicts), run.windows)
    )
    assert len(frame) == 3 and left_out == ["without MATH: LLaDA is not scored there"]
    without = run.items[run.items["method"] != "llada"]
    with pytest.raises(Skipped, match="no scored items of LLaDA"):
        draw_front(Run(run.folder, run.meta, without, run.windows), None, {})


def test_figures_that_need_seconds_are_not_drawn_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sized_run(tmp_path)
    run.config.timed = False
    write_meta(tmp_path, {"config": run.config.to_json()})
    assert cli.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    why = "the run's seconds were not measured for comparison"
    skipped = [line.split(":")[0] for line in said if line.endswith(why)]
    assert skipped == ["anchor", "front", "front-gsm8k", "front-math"]
    assert not (tmp_path / "figures").exists()
    assert tradeoff(run)[0].empty


def test_pass_at_k_has_a_panel_a_run_and_a_line_a_method(tmp_path: Path) -> None:
    right = {"llada": [[1, 0], [1, 0], [0, 0]], "mine": [[1, 1], [1, 0], [1, 0]]}
    figure, _ = draw_pass_at_k([seeded(tmp_path / "a", right), seeded(tmp_path / "b", right)])
    assert [axes.get_title() for axes in figure.axes] == ["temperature 0.7"] * 2
    heights = lines_of(figure.axes[1])
    assert heights["llada"] == pytest.approx([100 / 3, 50, 50])
    assert heights["mine"] == pytest.approx([200 / 3, 250 / 3, 100])


def test_a_method_looks_alike_in_all_panels_whatever_the_order_of_methods(tmp_path: Path) -> None:
    right = {"llada": [[1, 0], [1, 0], [0, 0]], "mine": [[1, 1], [1, 0], [1, 0]]}
    other = {"mine": right["mine"], "llada": right["llada"]}
    figure, _ = draw_pass_at_k([seeded(tmp_path / "a", right), seeded(tmp_path / "b", other)])
    colors = [
        {line.get_label(): line.get_color() for line in axes.get_lines()} for axes in figure.axes
    ]
    assert colors[0] == colors[1] and len(set(colors[0].values())) == 2


def test_samples_that_no_problem_has_yet_are_no_points(tmp_path: Path) -> None:
    run = seeded(tmp_path, {"llada": [[1, 0], [1, 0], [0, 0]]})
    begun = Run(run.folder, run.meta, run.items.head(4), run.windows)
    heights = lines_of(draw_pass_at_k([begun])[0].axes[0])["llada"]
    assert heights[:2] == [50.0, 50.0] and np.isnan(heights[2])


def test_runs_of_samples_are_drawn_without_another_run(tmp_path: Path) -> None:
    run = seeded(tmp_path / "run", {"llada": [[1], [0], [1]]})
    out = tmp_path / "out"
    assert cli.main(["--pass-at-k", str(run.folder), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"pass-at-k.pdf", "pass-at-k.png"}
    with pytest.raises(UserError, match="or --out with --pass-at-k"):
        cli.main(["--pass-at-k", str(run.folder)])


@pytest.mark.slow
def test_the_command_writes_what_it_can_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sized_run(tmp_path / "run")
    command = [str(run.folder), "--out"]
    for out in ("one", "two"):
        assert cli.main([*command, str(tmp_path / out)]) == 0
    names = {
        "front",
        "front-gsm8k",
        "front-math",
    }
    written = list((tmp_path / "one").glob("[!.]*"))
    assert {path.name for path in written} == {
        f"{n}.{kind}" for n in names for kind in ("pdf", "png")
    }
    for path in written:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
        assert b"CreationDate" not in path.read_bytes()
    capsys.readouterr()
    bare = save(tmp_path / "bare", [item("llada", "gsm8k", 0)])
    assert cli.main([str(bare.folder)]) == 0
    said = capsys.readouterr().out
    assert "anchor: skipped, it takes two" in said
    assert {path.stem for path in (bare.folder / "figures").iterdir()} == {"front", "front-gsm8k"}


# Colors: seen on paper and on a dark page, and told apart by every eye


# Linear RGB as a dichromat sees it: Machado, Oliveira and Fernandes (2009), severity 1.
EYES = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def linear(color: str) -> np.ndarray:
    return np.array(
        [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in to_rgb(color)
        ]
    )


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
