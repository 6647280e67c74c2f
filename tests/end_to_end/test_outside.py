"""A run with all of it from outside: decoder, preset, suites, judge; scored again, resumed, refused
in one line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import refused
from paths import ROOT
from registered import forgotten

import harness
from harness.errors import UserError
from harness.records.store import read_lines, read_run
from harness.run import main
from harness.suites.registry import SUITES
from model_wrappers.options import Options
from model_wrappers.request import Request

pytestmark = pytest.mark.usefixtures("registries")

PLUGIN = """
from dataclasses import replace

import torch
from model_wrappers import register
from model_wrappers.options import Options
from model_wrappers.trace import Window
from harness.methods.presets import Preset
from harness.plugins import register_preset, register_suite
from harness.suites import lists


class Own(Options):
    token: int = 5
    until: int = 1000


calls = 0


@register("mine", label="Mine")
def mine(request, options: Own):
    global calls
    calls += 1
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.backbone.logits(request.x_1L, positions=masked)
    request.commit(masked, options.token, None, "filled")
    if calls > options.until:
        raise IndexError("one too many")


register_preset("mine-6", Preset("Mine, 6", "mine", {"token": 6}))
register_suite(replace(lists.SUITE, name="own-lists", title="Own lists"))
"""
JUDGE = "def right(response, answer):\n    return response == answer or answer == 'yes'\n"
QUESTIONS = [
    {"prompt": "Say {answer} to {prompt}.", "answer": answer} for answer in ("yes", "no", "yes")
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a plugin, questions and a judge."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "judge.py").write_text(JUDGE)
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return tmp_path


def line_of(folder: Path, methods: str = "mine", suites: str = "") -> list[str]:
    """The command line of a run in `folder`."""
    questions = f"mine={folder}/q.jsonl(judge={folder}/judge.py:right)"
    line = [
        "--plugin",
        str(folder / "mine.py"),
        "--methods",
        methods,
        "--suite",
        suites or f"own-lists,{questions}",
    ]
    return [*line, "--limit", "3", "--out", str(folder / "run")]


def scored_again(folder: Path) -> subprocess.CompletedProcess[str]:
    """harness/scoring.py on a run, in a process that knows nothing of it."""
    command = [sys.executable, str(ROOT / "harness" / "scoring.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_from_outside_is_recorded_and_resumed(outside: Path) -> None:
    line = line_of(outside, "mine; mine-6; mine(token=7)")
    assert main(line) == 0
    run = read_run(outside / "run")
    assert len(run.items) == 3 * 2 * 3 and run.items["correct"].notna().all()
    own = run.items[(run.items["suite"] == "mine") & (run.items["method"] == "mine")].sort_values(
        "item"
    )
    assert own["correct"].tolist() == [True, False, True] and own["gold"].tolist() == [
        "yes",
        "no",
        "yes",
    ]
    (plugin,) = run.meta.plugins
    assert Path(plugin.path) == outside / "mine.py" and plugin.registered["suites"] == ["own-lists"]
    assert run.meta.code["options"]["mine-6"]["own-lists"] == {"token": 6, "until": 1000}
    assert run.config.methods["mine(token=7)"].label == "Mine (token=7)"
    assert run.config.suites["mine"].questions.judge == "judge.py:right"  # type: ignore[union-attr]
    assert str(outside) not in json.dumps(run.config.to_json())
    assert "| Mine (token=7)" in (outside / "run" / "tables" / "main.md").read_text()
    assert main([*line, "--resume"]) == 0


@pytest.mark.slow
def test_it_is_scored_again_with_what_it_was_made_with_alone(
    outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = line_of(outside)
    with forgotten():
        assert main(line) == 0
    verdicts = read_run(outside / "run").items["correct"].tolist()
    done = scored_again(outside / "run")
    assert done.returncode == 0, done.stderr
    assert read_run(outside / "run").items["correct"].tolist() == verdicts

    (outside / "mine.py").write_text(PLUGIN.replace("until: int = 1000", "until: int = 999"))
    with forgotten():
        error = refused(main, [*line, "--resume"], capsys)
    assert "until (1000 there, 999 now)" in error
    assert "own-lists is of the plugin" in scored_again(outside / "run").stderr
    (outside / "mine.py").write_text(PLUGIN)
    (outside / "judge.py").write_text(JUDGE.replace("or answer", "and answer"))
    assert (
        "mine: its judge is not what the run was made with" in scored_again(outside / "run").stderr
    )
    changed = read_run(outside / "run").items["correct"].tolist()
    assert changed != verdicts
    (outside / "q.jsonl").unlink()
    assert "q.jsonl is gone; put it back" in scored_again(outside / "run").stdout
    assert read_run(outside / "run").items["correct"].tolist() == changed


@pytest.mark.parametrize("leaves", ["IndexError('odd')", "SystemExit(0)", "GeneratorExit('odd')"])
def test_a_decoder_that_fails_is_named_and_what_is_finished_is_kept(
    outside: Path, capsys: pytest.CaptureFixture[str], leaves: str
) -> None:
    (outside / "mine.py").write_text(PLUGIN.replace('IndexError("one too many")', leaves))
    error = refused(main, [*line_of(outside, "mine(until=2)"), "--untimed"], capsys)
    named = f"plugin mine.py, line 29: decoder mine: {leaves.partition('(')[0]}"
    assert f"mine(until=2) on own-lists, item 2: {named}" in error
    assert len(read_lines(outside / "run" / "items.jsonl")) == 2


def test_a_base_model_is_prompted_with_plain_text(
    outside: Path, official_with_tokenizer: Path
) -> None:
    model = outside / "model"
    shutil.copytree(official_with_tokenizer, model)
    (model / "chat_template.jinja").unlink()
    given = {
        "methods": "llada(gen_length=8)",
        "suites": f"mine={outside}/q.jsonl",
        "model": str(model),
        "limit": 1,
    }
    with pytest.raises(UserError, match="has no chat template; a run takes --prompt plain"):
        harness.evaluate(**given, untimed=True, out=outside / "chat")  # type: ignore[arg-type]
    run = harness.evaluate(**given, untimed=True, trace=True, prompt="plain", out=outside / "run")  # type: ignore[arg-type]
    (prompt,) = read_lines(run.folder / "prompts.jsonl")
    assert prompt["prompt"] == "Say {answer} to {prompt}.\n"
    assert read_run(run.folder).config.prompt == "plain"


@pytest.mark.parametrize("more", [[], ["--untimed"], ["--untimed", "--trace"]])
def test_a_decoder_that_fails_at_once_is_gone(
    outside: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert "one too many" in refused(main, [*line_of(outside, "mine(until=0)"), *more], capsys)
    assert not (outside / "run").exists()


def test_a_judge_that_fails_leaves_its_suite_unscored(
    outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (outside / "judge.py").write_text(
        "def right(response, answer):\n    return response == answer or answer[9]\n"
    )
    assert (
        main(line_of(outside, suites=f"mine={outside}/q.jsonl(judge={outside}/judge.py:right)"))
        == 0
    )
    printed = capsys.readouterr().out
    assert (
        "not scored: mine: judge judge.py:right fails: IndexError: string index out of range"
        in printed
    )


def fives(request: Request, options: Options) -> None:
    """Fill the response with one token."""
    request.backbone.logits(request.x_1L)
    request.commit(list(range(request.start, request.x_1L.shape[1])), 5, None, "filled")


def test_in_python_a_run_is_frames(outside: Path) -> None:
    methods, how = (
        ["llada(steps=8,gen_length=8)", fives],
        {"limit": 2, "untimed": True, "out": outside / "run"},
    )
    run = harness.evaluate(methods, [f"mine={outside}/q.jsonl"], **how)
    assert run.folder == outside / "run" and len(run.items) == 4 and run.windows.empty
    assert run.summary["method"].tolist() == ["llada(gen_length=8,steps=8)", "fives"]
    assert run.summary["forwards"].tolist() == [8.0, 1.0] and run.summary["accuracy"].tolist() == [
        0.0,
        0.0,
    ]
    assert "mine" in SUITES and SUITES["mine"].questions is not None


@pytest.mark.parametrize(("untimed", "beside"), [(True, 0), (False, 1)])
def test_only_a_timed_run_decodes_and_measures_beside_its_items(
    outside: Path, untimed: bool, beside: int
) -> None:
    decoded: list[bytes] = []

    def counted(request: Request, options: Options) -> None:
        """Fill the response, and say so."""
        decoded.append(request.x_1L.numpy().tobytes())
        fives(request, options)

    how = {"limit": 2, "untimed": untimed, "out": outside / "run"}
    harness.evaluate([counted, "fef-2(gen_length=8)"], [f"mine={outside}/q.jsonl"], **how)
    # the items share a prompt
    assert len(decoded) == beside + 2 and len(set(decoded)) == beside + 1
    passes = outside / "run" / "passes.jsonl"
    assert bool(passes.exists() and read_lines(passes)) == bool(beside)
