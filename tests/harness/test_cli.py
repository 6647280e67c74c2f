"""The command fef-dllm."""

from __future__ import annotations

import sys

import pytest

from harness.cli import COMMANDS, main
from harness.errors import UserError


def test_without_a_command_all_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fef-dllm"])
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0 and capsys.readouterr().out.startswith(f"usage: fef-dllm {name} ")


def test_a_command_does_what_its_file_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "fef-two-stream" in capsys.readouterr().out


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(UserError, match="there is no command runs; valid: run, plan"):
        main(["runs"])
