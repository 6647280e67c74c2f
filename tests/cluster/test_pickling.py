"""Options travel to processes that do not know the module of a decoder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta
from paths import ROOT

from harness.cluster.pickling import pickled, unpickled
from harness.options import RunOptions, checked
from model_wrappers import METHODS, register
from model_wrappers.options import Options, Positive
from model_wrappers.request import Request

LARGEST = 9


class Known(Options):
    """Options with a rule of their own."""

    k: Positive = 2
    share: Annotated[float, Meta(ge=0)] = 0.5

    def check(self) -> None:
        """Raise ValueError."""
        super().check()
        if self.k > LARGEST:
            raise ValueError(f"k={self.k} is too large")


def of_mine(request: Request, options: Known) -> None:
    """A decoder."""
    print(options)


ELSEWHERE = """
import sys
from pathlib import Path
from harness.cluster.pickling import unpickled
from harness.methods.selection import methods_named
from model_wrappers.options import convert_options

named = methods_named(unpickled(Path(sys.argv[1]).read_bytes()).methods)
(name,) = named
decoder = named[name].decoder
for values in ({"k": 3}, {"k": 0}, {"k": 10}, {"step": 1}):
    try:
        decoder.function(None, convert_options(decoder.options, values, name))
    except ValueError as error:
        print(error)
print(decoder.options.__doc__)
"""


@pytest.mark.parametrize("registered", [False, True])
def test_a_decoder_and_its_options_are_known_elsewhere(registries: None, tmp_path: Path, registered: bool) -> None:
    name = "of-mine" if registered else "of_mine"
    if registered:
        register(name)(of_mine)
    (tmp_path / "options").write_bytes(pickled(checked(RunOptions, {"methods": (of_mine,)})))
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "options")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "Known(k=3, share=0.5)",
        f"option k=0 for {name} must be a whole number of at least 1",
        f"{name}: k=10 is too large",
        f"unknown option 'step' for {name}; valid: k, share",
        "Options with a rule of their own.",
    ], done.stderr


def test_options_without_functions_come_back_as_they_were() -> None:
    options, before = checked(RunOptions, {"methods": "llada; fef-2", "limit": 3, "workers": 2}), dict(METHODS)
    assert unpickled(pickled(options)).limit == 3 and before == METHODS
