"""What a run says before and after the decoding."""

from pathlib import Path

import pytest
from command_lines import resolved_run

from harness.errors import one_line_errors
from harness.run import main, next_steps, resumable, unscored
from harness.runs.respond import Deadline, OutOfTime
from harness.sandbox.program import UNSAFE, Containment
from model_wrappers import decode, load_backbone


def test_ctrl_c_prints_the_command_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        with resumable(tmp_path):
            raise KeyboardInterrupt

    assert one_line_errors(interrupted) == 130
    said = capsys.readouterr().err
    assert said.startswith("interrupted: finished responses are kept")
    assert f"run --resume --out {tmp_path}" in said


@pytest.mark.parametrize(
    ("suites", "expected"), [("gsm8k,humaneval,mbpp", "HumanEval, MBPP"), ("gsm8k", "")]
)
def test_what_no_sandbox_will_score_is_said_before(
    monkeypatch: pytest.MonkeyPatch, suites: str, expected: str
) -> None:
    run = resolved_run("--suite", suites, "--methods", "llada")
    monkeypatch.setattr(
        "harness.sandbox.program.choose", lambda unsafe: Containment(None, "no sandbox")
    )
    assert unscored(run, unsafe=False).partition(" will be")[0] == expected
    monkeypatch.setattr("harness.sandbox.program.choose", lambda unsafe: Containment(UNSAFE))
    assert unscored(run, unsafe=True) == ""


def test_the_last_lines_name_the_report_and_commands(tmp_path: Path) -> None:
    opened, *commands = next_steps(tmp_path, "fef(steps=2)", traced=True).splitlines()
    assert opened.endswith(str(tmp_path / "report" / "index.html"))
    assert len(commands) == 3
    assert all(str(tmp_path) in command for command in commands)
    assert commands[0].endswith("--against 'fef(steps=2)'")


def test_a_plan_has_the_time_of_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", "--suite", "lists", "--methods", "llada,threshold", "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 responses to decode (2 methods; items: lists 2)"
    assert [line.split(": about")[0].strip() for line in lines[1:-1]] == ["LLaDA", "Threshold"]
    assert "in all" in lines[-1]


def test_a_long_response_ends_after_some_seconds_and_knows_its_part() -> None:
    deadline = Deadline(0.0)
    with pytest.raises(OutOfTime):
        decode(load_backbone("nano"), [5, 6, 7], "llada", gen_length=32, steps=8, observer=deadline)
    assert deadline.positions == 4
    assert deadline.elapsed > 0
