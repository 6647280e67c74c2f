"""The main job on nano, end to end: records, scoring, tables, resume after a kill, and what is
refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command_lines import refused
from fakes import WHOLE
from generated import write_suites
from opencompass_config import write_config
from paths import ROOT
from verdicts_only import evaluate

import harness
from harness.records.files import each_frame, read_prompts, replay
from harness.records.store import TIMED, read_lines, read_run
from harness.run import main
from harness.sandbox.program import choose
from harness.suites.registry import suite_named

KEYS = ["method", "suite", "item"]
# of nano's responses; .ci/run has a timed run of all suites
LENGTHS = {
    "gsm8k": 48,
    "humaneval": 48,
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four methods, on a suite of text and one of code."""
    out = tmp_path_factory.mktemp("run") / "nano"
    line = [
        "--methods",
        "llada,llada/2,fef-2,fef-2-nosd",
        "--limit",
        "1",
        "--untimed",
        "--out",
        str(out),
    ]
    with redirect_stdout(StringIO()) as said:
        assert main(["--suite", ",".join(LENGTHS), *line]) == 0
    (out.parent / "said").write_text(said.getvalue())
    return out


def test_progress_is_one_line_for_all_suites(run_folder: Path) -> None:
    lines = (run_folder.parent / "said").read_text().splitlines()
    assert [line.split()[-2] for line in lines if "━" in line] == ["8/8"]


def test_the_plan_of_a_finished_run_is_what_is_left(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [file for file in run_folder.rglob("*") if file.is_file()]
        return {str(file): (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}

    before = state()
    again = ["--resume", "--out", str(run_folder), "--plan"]
    assert main(again) == 0
    assert capsys.readouterr().out == "all items are decoded already\n"
    assert main([*again, "--methods", "threshold"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{len(LENGTHS)} responses to decode (5 methods; items: ")
    # Nothing is rewritten: another process may be at work on the run.
    assert state() == before


def test_every_item_is_recorded_once_and_scored(run_folder: Path) -> None:
    items = read_run(run_folder).items
    assert len(items) == 4 * len(LENGTHS) == len(items.drop_duplicates(KEYS))
    unscored = read_run(run_folder).meta.scoring["not_scored"]  # code, where no sandbox works
    assert items.loc[~items["suite"].isin(list(unscored)), "correct"].isin([True, False]).all()
    assert (items["seconds"] > 0).all()


def without_seconds(folder: Path) -> list[list[dict[str, Any]]]:
    """Items and windows in one order, less the seconds and what else is of their timing."""

    def place(row: dict[str, Any]) -> list[str]:
        return [str(row.get(key)) for key in (*KEYS, "step", "round")]

    def counts(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name not in TIMED}

    files = [read_lines(folder / name) for name in ("items.jsonl", "windows.jsonl")]
    return [[counts(row) for row in sorted(rows, key=place)] for rows in files]


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--batch", "4"]], ids=["timed", "batched"])
def test_a_killed_run_resumes_to_the_records_of_an_uninterrupted_one(
    tmp_path: Path, more: list[str]
) -> None:
    line = [
        "--suite",
        "lists,math",
        "--methods",
        "llada,fef-2",
        "--limit",
        "6",
        "--threads",
        "1",
        *more,
    ]
    command = [
        sys.executable,
        str(ROOT / "harness" / "run.py"),
        *line,
        "--out",
        str(tmp_path / "killed"),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    items = tmp_path / "killed" / "items.jsonl"
    deadline = time.monotonic() + 300
    while not (items.exists() and items.read_bytes().count(b"\n") >= 5):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = len(read_lines(items))
    assert 5 <= done < 24
    with items.open("a") as file:
        file.write('{"schema": 1, "method": "ll')  # a line torn by the kill
    assert main([*line, "--out", str(tmp_path / "killed"), "--resume"]) == 0
    assert main([*line, "--out", str(tmp_path / "whole")]) == 0
    assert without_seconds(tmp_path / "killed") == without_seconds(tmp_path / "whole")


def real_layout(folder: Path, count: int) -> Path:
    """Generated problems laid out as the real files are, all of MATH's too, for every user to
    read."""
    folder.chmod(0o755)
    write_suites(folder, count=count)
    shutil.copy(
        folder / "data" / "math" / "test_prm800k_500.json", folder / "data" / "math" / "math.json"
    )
    return folder


@pytest.mark.slow
def test_real_files_and_an_official_checkpoint_go_the_same_way(
    tmp_path: Path, official_with_tokenizer: Path
) -> None:
    suites = ["gsm8k", "math", "math500", "humaneval", "mbpp", "opencompass:gsm8k_0shot_gen_a58960"]
    line = ["--data", str(real_layout(tmp_path, 3)), "--model", str(official_with_tokenizer)]
    line += [
        "--suite",
        ",".join(suites),
        "--methods",
        "llada,fef-2",
        "--limit",
        "1",
        "--gen-length",
        "8",
    ]
    assert main([*line, "--out", str(tmp_path / "run")]) == 0
    run = read_run(tmp_path / "run")
    assert len(run.items) == 2 * len(suites)
    assert run.items["correct"].notna().all() or choose().sandbox is None
    prompts = run.items.set_index("suite")["prompt_tokens"]
    # four solved problems are before the real GSM8K prompt
    assert prompts["gsm8k"].min() > 10 * prompts["math"].max()
    assert run.config.suites["math"].configuration == "math_0shot_gen_11c4b5"
    table = (tmp_path / "run" / "tables" / "main.md").read_text().replace("\\", "")
    digest = str(run.config.suites["gsm8k"].configuration_sha256)[:8]
    assert f"- files: gsm8k_gen_1d7fe4 ({digest}) (GSM8K); math_0shot" in table


def test_a_model_that_cannot_be_loaded_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = ["--model", "no-such-model", "--data", "generated", "--out", str(out)]
    assert "no-such-model" in refused(main, line, capsys)
    assert not out.exists()


def test_a_run_grows_and_keeps_what_it_has(tmp_path: Path) -> None:
    run = [
        *["--suite", "gsm8k", "--untimed", "--quiet", "--gen-length", "16"],
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*run, "--methods", "llada", "--limit", "1", "--resume"]) == 0  # which begins it
    first = (tmp_path / "run" / "items.jsonl").read_text()
    assert (
        main([*run, "--methods", "fef-2", "--limit", "2", "--resume", "--trace", "--batch", "2"])
        == 0
    )
    items = read_run(tmp_path / "run").items
    assert first.splitlines()[0] in (tmp_path / "run" / "items.jsonl").read_text()
    assert sorted(zip(items["method"], items["item"], strict=True)) == [
        *(("fef-2", 0), ("fef-2", 1)),
        *(("llada", 0), ("llada", 1)),
    ]
    assert items["correct"].notna().all()


def test_responses_to_other_problems_are_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        "--suite",
        "gsm8k",
        "--methods",
        "fef-2",
        "--limit",
        "1",
        "--gen-length",
        "16",
        "--untimed",
        "--quiet",
    ]
    one, two = (tmp_path / name for name in ("one", "two"))
    assert (
        main([*line, "--out", str(one)])
        == main([*line, "--data", "generated:7", "--out", str(two)])
        == 0
    )
    before = (one / "items.jsonl").read_bytes()
    again = [*line, "--out", str(one), "--overwrite", "--data", "generated", "--model"]
    assert "no such folder" in refused(main, [*again, str(tmp_path / "nowhere")], capsys)
    assert (one / "items.jsonl").read_bytes() == before
    for name in ("items.jsonl", "windows.jsonl"):
        shutil.copy(two / name, one / name)
    assert "fef-2 gsm8k 0 has another prompt than now" in refused(
        main, [*line, "--out", str(one), "--resume"], capsys
    )
    assert main([*line, "--out", str(one), "--overwrite"]) == 0
    assert read_run(one).items["prompt_hash"].tolist() == [json.loads(before)["prompt_hash"]]


CALLED = {
    "task_id": "mine/1",
    "prompt": "def twice(f, x):\n    '''f of f of x'''\n",
    "canonical_solution": "    return f(f(x))\n",
    "test": "def check(candidate):\n    assert candidate(lambda x: 2 * x, 3) == 12\n",
    "entry_point": "twice",
}
SORTED = {
    "task_id": "mine/2",
    "prompt": "def order(numbers):\n    '''Sort numbers.'''\n",
    "canonical_solution": "    numbers.sort()\n",
    "test": (
        "def check(candidate):\n    numbers = [2, 1]\n    candidate(numbers)\n    assert numbers =="
        " [1, 2]\n"
    ),
    "entry_point": "order",
}


COPIED = SORTED | {
    "canonical_solution": "    return sorted(numbers)\n",
    "test": (
        "def check(candidate):\n    numbers = [1, 2]\n    assert candidate(numbers) is not"
        " numbers\n"
    ),
}


@pytest.mark.parametrize(
    "task", [CALLED, SORTED, COPIED], ids=["a function", "an argument changed in place", "a copy"]
)
def test_tasks_of_ones_own_are_judged_in_one_process(task: dict[str, str], tmp_path: Path) -> None:
    if choose().sandbox is None:
        pytest.skip(choose().missing)
    path = tmp_path / "data" / "humaneval" / "human-eval-v2-20210705.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text((json.dumps(task) + "\n") * 2)  # one task, two samples
    config = suite_named("humaneval").datasets(False, tmp_path)[0]
    texts = [task["prompt"] + task["canonical_solution"], task["prompt"] + "    raise ValueError\n"]
    assert evaluate(config, [0, 1], texts) == [True, False]


def test_a_prompt_beyond_the_limit_is_refused_by_its_item(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        "--suite",
        "lists",
        "--limit",
        "2",
        "--gen-length",
        "4090",
        "--out",
        str(tmp_path / "run"),
    ]
    error = refused(main, line, capsys)
    assert "lists, item 0" in error and "4096" in error and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_plain_configuration_of_two_items_runs(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("opencompass")
    if not command.exists():
        pytest.skip("opencompass has no command here")
    write_config(tmp_path, 2, fef=("nano", "fef", {"steps": 2}))
    line = [str(command), "config.py", "--work-dir", "out", "--debug"]
    environment = os.environ | {
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (predictions,) = tmp_path.glob("out/*/predictions/fef/gsm8k.json")
    found = json.loads(predictions.read_text())
    assert len(found) == 2 and all(isinstance(each["prediction"], str) for each in found.values())
    (results,) = tmp_path.glob("out/*/results/fef/gsm8k.json")
    assert 0 <= json.loads(results.read_text())["accuracy"] <= 100


# A traced run of every decoder, which is not recorded unless it replays to its tokens and windows
PRESETS = (
    "llada,ssd,ddosp,dcd,threshold,factor,entropy,klass,wino,flash,freedave,pc-sampler,prophet,dream,fef-2,"
    "fef-fast,"
    "block(editing_threshold=0.99)"
)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A traced run of every decoder on two problems."""
    folder = tmp_path_factory.mktemp("traced") / "run"
    harness.evaluate(PRESETS, "gsm8k,math", limit=1, trace=True, threads=1, out=folder)
    return folder


@pytest.mark.slow
def test_the_pieces_of_a_trace_are_the_text_of_its_response(traced: Path) -> None:
    run, pieces = read_run(traced), dict[str, dict[int, str]]()
    texts = run.items.set_index(["method", "suite", "item"])["text"]
    for _, trace in each_frame(traced):
        known = pieces.setdefault(trace.tokenizer, {})
        known.update(trace.pieces)
        tokens = replay(trace).tolist()
        end = next(
            (number for number, token in enumerate(tokens) if token in trace.ends), len(tokens)
        )
        said = "".join(known[token] for token in tokens[:end] if token != trace.mask)
        assert said.split() == str(texts[trace.key]).split()


@pytest.mark.slow
def test_a_traced_run_has_its_prompts_its_reasons_and_its_report(traced: Path) -> None:
    run = read_run(traced)
    assert {method.method for method in run.config.methods.values()} == set(WHOLE)
    assert set(read_prompts(traced)) == {("gsm8k", 0), ("math", 0)}
    assert run.items["why"].str.startswith("read ").all()
    assert (traced / "report" / "index.html").is_file()
    assert {trace.key for _, trace in each_frame(traced)} == set(
        map(tuple, run.items[list(KEYS)].to_numpy())
    )
