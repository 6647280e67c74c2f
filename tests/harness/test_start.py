"""What a command imports before anything of value."""

import subprocess
import sys

import pytest

from harness.errors import UserError

LINES = """
import sys
sys.argv[1:] = {arguments!r}
from harness.run import main
assert main() == 0
heavy = {{"torch", "transformers", "pandas", "opencompass"}} & set(sys.modules)
assert not heavy, heavy
"""


def printed(*arguments: str) -> str:
    """What a command prints that imports nothing heavy."""
    command = [sys.executable, "-c", LINES.format(arguments=list(arguments))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_of_methods_waits_for_nothing() -> None:
    text = printed("--list")
    assert "fef-2" in text and "suites: gsm8k" in text


def test_options_of_a_decoder_are_listed_where_it_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from harness.run import main

    assert main(["--list", "--methods", "threshold"]) == 0
    assert "tau=0.9" in capsys.readouterr().out
    with pytest.raises(UserError, match="--list: unknown method threshhold; did you mean thresho"):
        main(["--list", "--methods", "threshhold"])
