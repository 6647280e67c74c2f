"""Claims: compared from records, corrected together, and refused where a record cannot bear them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from run_records import item, save

from harness.errors import UserError
from harness.stats import paired_interval
from tables.claims import main

TWO = """
[[claim]]
claim = "DCD is more accurate"
record = "run"
method = "dcd"
reference = "llada"
at_least = -2

[[claim]]
claim = "DCD is twice as fast"
record = "run"
method = "dcd"
reference = "llada"
measure = "speed"
"""


def write(folder: Path, text: str) -> Path:
    right = {"llada": lambda n: n % 2 == 0, "dcd": lambda n: n % 10 < 7}
    rows = [
        item(method, "gsm8k", n, correct=right[method](n), seconds=2.0 if method == "llada" else 1.0)
        for method in right
        for n in range(200)
    ]
    save(folder / "run", rows, suites={"gsm8k": "GSM8K"})
    (folder / "claims.toml").write_text(text)
    return folder / "claims.toml"


def test_a_claim_is_compared_from_its_record(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    assert main([str(path)]) == 0
    points, speed = pd.read_csv(path.with_suffix(".csv")).to_dict("records")
    low, high = paired_interval(20, 60, 200)
    assert (points["value"], points["word"], points["goal"]) == (20.0, "ahead", "holds")
    assert (points["low"], points["high"]) == pytest.approx((100 * low, 100 * high))
    assert (speed["value"], speed["low"], speed["high"], speed["word"]) == (2.0, 2.0, 2.0, "ahead")
    assert "DCD is twice as fast" in path.with_suffix(".md").read_text()


def test_more_claims_make_wider_intervals(tmp_path: Path) -> None:
    path = write(tmp_path, TWO + TWO.replace('"dcd"', '"X"').replace('"llada"', '"dcd"').replace('"X"', '"llada"'))
    main([str(path)])
    frame = pd.read_csv(path.with_suffix(".csv"))
    assert frame["low"].iloc[0] < 100 * paired_interval(20, 60, 200)[0]
    assert frame["word"].tolist() == ["ahead", "ahead", "behind", "behind"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"dcd"', '"nobody"'),
        ('"run"', '"elsewhere"'),
        ("at_least", "at_most"),
        ("[[claim]]", "[claim]"),
        ('"speed"', '"x"'),
    ],
)
def test_what_no_record_bears_is_refused(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        main([str(write(tmp_path, TWO.replace(old, new)))])
