"""A run's options are the fields of one struct, for the command line and for Python alike; the
command fef-dllm."""

import re
import sys
from dataclasses import fields, make_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness
from harness import run
from harness.cli import COMMANDS, main
from harness.errors import UserError
from harness.options import checked, option, parsed
from harness.runs.options import RunOptions
from model_wrappers.options import first_few

VALUES: dict[str, Any] = {
    **{"model": "nano-long", "limit": 3, "temperature": 0.5, "plugin": ("a.py", "b.py")},
    **{"dtype": "float16", "reads_at": -1, "stop_at_eos": True, "out": Path("out")},
}


def from_evaluate(monkeypatch: pytest.MonkeyPatch, **values: Any) -> Any:
    """The options that `evaluate` runs with."""
    seen: list[Any] = []

    def stop(given: Any, scratch: Path) -> None:
        seen.append(given)
        raise UserError("seen")

    monkeypatch.setattr(run, "run", stop)
    with pytest.raises(UserError, match="seen"):
        harness.evaluate(**values)
    return seen[0]


def test_a_command_line_and_evaluate_build_the_same_struct(monkeypatch: pytest.MonkeyPatch) -> None:
    line = [
        "--model",
        "nano-long",
        "--limit",
        "3",
        "--temperature",
        "0.5",
        "--plugin",
        "a.py",
        "--plugin=b.py",
    ]
    line += ["--dtype", "float16", "--reads-at=-1", "--stop-at-eos", "--out", "out"]
    assert (
        from_evaluate(monkeypatch, **VALUES)
        == parsed(RunOptions, line)
        == checked(RunOptions, VALUES)
    )
    assert from_evaluate(monkeypatch) == parsed(RunOptions, []) == RunOptions()


def test_one_field_is_an_option_of_the_command_line_and_of_evaluate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    added = [("margin", int | None, option("points that may be lost", least=1))]
    more = make_dataclass("RunOptions", added, bases=(RunOptions,), frozen=True, kw_only=True)
    monkeypatch.setattr(run, "RunOptions", more)
    assert [each.name for each in fields(more)] == [
        *(each.name for each in fields(RunOptions)),
        "margin",
    ]
    assert (
        parsed(more, ["--margin", "5"]).margin == from_evaluate(monkeypatch, margin=5).margin == 5
    )  # type: ignore
    assert parsed(more, []).margin is None  # type: ignore[attr-defined]
    for build in (lambda: parsed(more, ["--margin", "0"]), lambda: checked(more, {"margin": 0})):
        with pytest.raises(UserError, match=r"^--margin 0 must be at least 1$"):
            build()
    with pytest.raises(SystemExit):
        parsed(more, ["--help"])
    assert "--margin MARGIN" in capsys.readouterr().out
    for line, says in (
        (["--limt", "3"], "^unknown option --limt; did you mean --limit"),
        (["--block-length", "0"], "^--block-length 0 must be at least 1"),
        (["--batch", "\u00b2"], "^--batch .* must be a whole number or 'auto'"),
        (
            ["--prompt", "none"],
            "^argument --prompt: invalid choice: 'none' .*; --help has all options$",
        ),
    ):
        with pytest.raises(UserError, match=says):
            parsed(more, line)


def test_help_has_what_most_runs_need_first_and_the_rest_in_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parsed(RunOptions, ["--help"])
    first, *groups = capsys.readouterr().out.partition("\noptions:")[2].split("\n\n")
    shown = re.findall(r"^  --([a-z-]+)", first, re.MULTILINE)
    assert shown == [
        "suite",
        "methods",
        "model",
        "data",
        "limit",
        "device",
        "workers",
        "out",
        "resume",
        "list",
    ]
    assert len(groups) == 5 and all(re.match(r"[a-z ]+:\n  --", group) for group in groups)


@pytest.mark.parametrize("value", [False, None, True, 3])
def test_evaluate_refuses_an_option_that_there_is_not_whatever_its_value(value: object) -> None:
    with pytest.raises(UserError, match="unknown option nonsense; valid: suite, methods"):
        harness.evaluate(nonsense=value)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"methods": {"threshold": {"tau": 0.1}}}, "--methods .* must be"),
        ({"methods": (name for name in ["fef-3"])}, "fef-2"),
        ({"chat_template_args": {"a": float("nan")}}, "must be a JSON object"),
        ({"plan": True}, "--plan is of the command alone"),
        ({"temperature": float("nan")}, "--temperature nan must be a finite number"),
    ],
)
def test_evaluate_refuses_what_it_would_not_do(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        harness.evaluate(**values)


def test_the_version_is_the_installed_one() -> None:
    assert harness.__version__ == metadata.version("fef-dllm-harness")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = harness.nothing


def test_one_value_stands_for_several_and_none_and_false_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, several = (
        checked(RunOptions, {"plugin": given}) for given in ("mine.py", [Path("mine.py")])
    )
    assert one.plugin == several.plugin
    paths = checked(
        RunOptions, {"model": Path("m"), "data": Path("d"), "out": "o", "limit": np.int64(3)}
    )
    assert (paths.model, paths.data, paths.out, paths.limit) == ("m", "d", Path("o"), 3)
    assert (
        from_evaluate(monkeypatch, limit=None, temperature=None, untimed=False, stop_at_eos=False)
        == RunOptions()
    )


# The command fef-dllm
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fef-dllm"])
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0 and capsys.readouterr().out.startswith(f"usage: fef-dllm {name} ")


def test_a_command_does_what_its_file_does_and_no_other_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--list"]) == 0
    assert "fef-two-stream" in capsys.readouterr().out
    with pytest.raises(UserError, match="there is no command runs; did you mean run"):
        main(["runs"])


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (2, "0, 1"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more")]
)
def test_the_first_of_many_names_are_shown_and_the_others_counted(count: int, text: str) -> None:
    assert first_few(range(count), most=3) == text
