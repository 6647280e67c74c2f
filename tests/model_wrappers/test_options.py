"""Options of decoders: every name, type and range is checked by one conversion, and messages name what is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from model_wrappers import METHODS
from model_wrappers.decoders import decoder_named
from model_wrappers.options import AboveZero, NotNegative, Options, Positive, Share, convert_options


class Sample(Options, frozen=True, kw_only=True):
    """One field of each kind."""

    count: Positive | None = None
    share: Share = 0.5
    weight: NotNegative = 0.0
    rate: AboveZero = 1.0
    whole: int = 0
    text: str = ""
    switch: bool = False
    kind: Literal["left", "right"] = "left"
    file: Path | None = None

    def check(self) -> None:
        if self.switch and self.kind == "right":
            raise ValueError("switch=True is for kind='left'")


def test_values_are_converted() -> None:
    made = convert_options(Sample, {"file": "a/b.json", "share": 1, "kind": "right", "count": 3}, "sample")
    assert (made.file, made.share, made.kind, made.count) == (Path("a/b.json"), 1.0, "right", 3)
    assert convert_options(Sample, {"file": Path("c")}, "sample").file == Path("c")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuont": 1}, "unknown option 'cuont' for sample; valid: count, share, weight, rate.*; did you mean count"),
        ({"q": 1}, "valid: .*file$"),
        ({"count": 0}, "option count=0 for sample must be a whole number of at least 1 or None"),
        ({"count": True}, "option count=True for sample must be a whole number"),
        ({"share": 1.5}, r"option share=1.5 for sample must be a finite number in \[0, 1\]"),
        ({"share": float("nan")}, "share"),
        ({"weight": -1}, "option weight=-1 for sample must be a finite number of at least 0"),
        ({"weight": float("inf")}, "weight=inf must be finite"),
        ({"rate": 0}, "option rate=0 for sample must be a finite number above 0"),
        ({"whole": 1.5}, "option whole=1.5 for sample must be a whole number"),
        ({"text": 1}, "option text=1 for sample must be text"),
        ({"switch": 1}, "option switch=1 for sample must be True or False"),
        ({"kind": "up"}, "option kind='up' for sample must be 'left' or 'right'"),
        ({"file": 3}, "option file=3 for sample must be a path or None"),
        ({"switch": True, "kind": "right"}, "sample: switch=True is for kind='left'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        convert_options(Sample, values, "sample")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["\ud800", "two\nlines"])
def test_text_that_no_record_can_have_is_refused(text: str) -> None:
    class Own(Options, frozen=True):
        note: str = ""

    with pytest.raises(ValueError, match=r"option note=.* for mine must be printable text"):
        convert_options(Own, {"note": text}, "mine")


@pytest.mark.parametrize("method", METHODS)
def test_every_decoder_has_options_with_defaults(method: str) -> None:
    decoder = decoder_named(method)
    assert issubclass(decoder.options, Options) and decoder.options() == convert_options(decoder.options, {}, method)
    assert decoder.takes("stop_at_eos") != decoder.causal  # an autoregressive one always does
    assert not decoder.takes("unheard_of")
