"""Rendering as a command: what it writes, what it refuses, that LaTeX takes it; which tables a run
has."""

import io
import os
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from command_lines import refused
from paths import ROOT
from rendering import render
from run_records import PAPER_SUITES, full_items, has_latex, item, rows_of, save, save_presets

from harness.errors import UserError
from harness.measures.table import MEASURES
from harness.methods.presets import GROUPS, PRESETS
from harness.records.store import Run
from harness.scoring import options_of_tables
from tables import render as cli
from tables.output import write_pdf


def test_a_table_without_groups_of_columns_is_printed_however_narrow_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    save(tmp_path, full_items())
    assert cli.main([str(tmp_path), "--measures"]) == 0
    assert "responses.md" in capsys.readouterr().out


def test_command_line_writes_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "run", full_items())
    assert cli.main([str(tmp_path / "run")]) == 0
    written = {path.name for path in (tmp_path / "run" / "tables").iterdir()}
    assert written == {
        "main.md",
        "main.tex",
        "main.csv",
        "windows.md",
        "windows.tex",
        "windows.csv",
    }
    said = capsys.readouterr().out
    assert (
        "Acc." in said
        and "Mean" in said
        and "GSM8K" not in said
        and "**" not in said
        and "ins>" not in said
    )
    assert f"in full: {tmp_path / 'run' / 'tables' / 'main.md'}" in said
    lines = said.replace(str(tmp_path), "").splitlines()
    assert max(map(len, lines[:-1])) <= 80 and any(
        "100.00" in line and "4.00x" in line for line in lines
    )
    more = ["--paper", "--measures", "--against", "llada", "--intervals"]
    assert cli.main([str(tmp_path / "run"), "--out", str(tmp_path / "out"), *more]) == 0
    kinds = {
        f"{name}.{kind}"
        for name in ("paper", "responses", "measures", "tokens", "against")
        for kind in ("md", "tex", "csv")
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == written | kinds
    assert "95% interval" in capsys.readouterr().out


def test_the_terminal_has_the_marks_of_what_it_shows_and_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(of: Run, *options: str) -> str:
        assert cli.main([str(of.folder), *options]) == 0
        return " ".join(capsys.readouterr().out.split())

    blocks = ({"gen_length": 256, "block_length": 8}, {"gen_length": 128, "block_length": 8})
    settings = dict(zip(("llada", "fef-2"), blocks, strict=True))
    methods = {name: {"label": name, "suites": {"gsm8k": its}} for name, its in settings.items()}
    items = [
        item(name, "gsm8k", number, content_tokens=9, text=" " if name == "llada" else "9")
        for name in methods
        for number in (0, 1)
    ]
    config = {"methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    drifts = [{"start": {"busy_percent": 90.0}, "end": {}}]
    run = save(tmp_path, items, config=config, sessions=drifts)
    shown = said(run)
    assert "[l] other length" in shown and "busy before: 90%" in shown
    assert "[e] more than 5% of its responses are empty" in shown
    assert "fef-2: gen_length=128" in shown


@pytest.mark.parametrize(("columns", "suites"), [(80, False), (200, True)])
def test_suites_are_shown_where_the_terminal_is_wide_enough(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    suites: bool,
) -> None:
    save(tmp_path, full_items(PAPER_SUITES), suites=PAPER_SUITES)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main([str(tmp_path), "--against", "llada"]) == 0
    shown = capsys.readouterr().out
    assert ("HumanEval" in shown) is suites
    assert "Mean" in shown
    assert "not shown" in shown and f"{tmp_path}/tables/against.md" in shown.replace("\n", "")


def test_a_mean_has_no_mark_of_a_suite_that_it_is_not_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = full_items()
    rows[0]["disturbed"] = True  # LLaDA's, on GSM8K
    save(tmp_path, rows)
    assert cli.main([str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "disturbed responses: 1 of 16" in shown
    assert "no Speed" not in shown


def test_scoring_renders_again_what_was_rendered(tmp_path: Path) -> None:
    save(tmp_path, full_items(PAPER_SUITES), suites=PAPER_SUITES)
    assert options_of_tables(tmp_path / "tables", ["llada", "fef-2"]) == []
    assert cli.main([str(tmp_path), "--paper", "--against", "llada", "--intervals"]) == 0
    assert options_of_tables(tmp_path / "tables", ["llada", "fef-2"]) == [
        "--paper",
        "--against",
        "llada",
        "--intervals",
    ]


def test_damage_is_one_line_and_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, [item("llada", "gsm8k", 0, seconds=None)])
    assert "llada gsm8k 0 has no seconds" in refused(cli.main, [str(tmp_path)], capsys)
    assert not (tmp_path / "tables").exists()


def test_a_method_without_forwards_has_no_speedup_in_forwards(tmp_path: Path) -> None:
    items = [item("llada", "gsm8k", 0), item("dcd", "gsm8k", 0, forwards=0)]
    table = render(save(tmp_path, items, suites={"gsm8k": "GSM8K"}))["main.md"]
    (row,) = [line for line in table.splitlines() if line.startswith("| DCD")]
    assert row.endswith(" - |") and "1.00x" in row


def test_a_run_without_the_papers_methods_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "methods": {"llada": {"label": "Mine"}},
        "suites": {"gsm8k": {}},
        "data": {"gsm8k": "sha256"},
    }
    run = save(tmp_path / "run", [item("llada", "gsm8k", 0)], config=config)
    assert "- problems a suite: 1\n" in render(run)["main.md"]
    assert cli.main([str(run.folder), "--paper"]) == 0
    assert (
        "no paper.md: the paper's tables have none of this run's methods" in capsys.readouterr().out
    )
    assert {path.name for path in (run.folder / "tables").iterdir()} == set(render(run))


def test_several_runs_are_rendered_each_into_its_own_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {
        methods: save_presets(tmp_path / methods[0], *methods)
        for methods in (("llada", "ssd"), ("dcd", "ddosp"))
    }
    assert cli.main([str(run.folder) for run in runs.values()]) == 0
    for methods, run in runs.items():
        csv = (run.folder / "tables" / "main.csv").read_text().splitlines()
        assert {line.split(",")[0] for line in csv[1:]} == set(methods)
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert said == [f"written to {run.folder / 'tables'}" for run in runs.values()]


def test_make_tables_renders_every_committed_run_in_one_go() -> None:
    if shutil.which("make") is None:
        pytest.skip("no make")
    command = ["make", "--dry-run", "--silent", "--assume-old", ".venv/.installed", "tables"]
    said = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    runs = {
        path.parent.relative_to(ROOT).as_posix()
        for path in ROOT.glob("results/reference/*/run.json")
    }
    assert len(runs) > 1 and runs | {
        "tables/render.py",
        "--paper",
        "--pdf",
        "tables/claims.py",
    } <= set(said)


@pytest.mark.skipif(not has_latex(), reason="no pdflatex with booktabs and multirow")
def test_latex_of_every_table_compiles(tmp_path: Path) -> None:
    suites = PAPER_SUITES | {"gsm8k": r"G_S{M} 8% & <K> \ ^~#$ |"}
    items = [*full_items(PAPER_SUITES), item("dcd", "gsm8k", 0, correct=None)]
    run = save(
        tmp_path / "run",
        items,
        suites=suites,
        scoring={"not_scored": {"gsm8k": "no_sandbox & 100%"}},
    )
    files = render(run, paper=True, intervals=True, measures=True, against="llada")
    assert write_pdf(
        [text for name, text in files.items() if name.endswith(".tex")], tmp_path
    ).exists()


def test_a_missing_latex_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pdflatex"
    program.write_text(
        "#!/bin/sh\necho \"! LaTeX Error: File 'multirow.sty' not found.\"\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(UserError, match="could not compile the tables: ! LaTeX Error: File"):
        write_pdf([], tmp_path)


def test_acceptance_is_in_percent(tmp_path: Path) -> None:
    files = render(save(tmp_path, full_items()))
    assert rows_of(files["windows.md"])["FeF-DLLM (step=2)"][1] == "50.00"


# Which tables a run has
ABLATIONS = ("training", "speculation", "draft", "window-size")


def run_of(folder: Path, *methods: str) -> dict[str, str]:
    return render(save_presets(folder, *methods))


def in_csv(text: str) -> list[str]:
    """The methods of a CSV file, each once, in its order."""
    frame = pd.read_csv(io.StringIO(text))
    assert list(frame.columns) == MEASURES and len(frame) == 2 * frame["method"].nunique()
    return frame["method"].drop_duplicates().to_list()


def test_there_is_no_main_table_if_the_ablations_show_all_of_it(tmp_path: Path) -> None:
    ablations = dict.fromkeys(method for name in ABLATIONS for method in GROUPS[name])
    files = run_of(tmp_path / "all", *ablations)
    assert not {"main.tex", "main.md"} & set(files) and {
        f"{name}.tex" for name in ABLATIONS
    } <= set(files)
    without_training = run_of(tmp_path / "draft", *GROUPS["draft"])
    assert "LLaDA" in rows_of(without_training["main.md"])


def test_a_method_whose_ablation_is_not_there_is_in_the_main_table(tmp_path: Path) -> None:
    files = run_of(tmp_path, "llada", "llada-trained")
    assert in_csv(files["main.csv"]) == ["llada", "llada-trained"] and "training.csv" not in files


def test_the_card_names_responses_that_speculation_changed(tmp_path: Path) -> None:
    run = save_presets(tmp_path, *GROUPS["speculation"])
    config = run.config.to_json()
    for name, method in config["methods"].items():
        options = {"steps": PRESETS[name].options.get("steps", 48)}
        method["suites"] = {suite: {"options": options} for suite in config["suites"]}
    items = run.items.dropna(axis=1).to_dict("records")
    hashes = [
        {"tokens_hash": str((row["method"], row["suite"]) == ("fef-4", "math"))} for row in items
    ]
    rows = [row | own for row, own in zip(items, hashes, strict=True)]
    text = render(save(tmp_path / "hashed", rows, config=config))["speculation.md"]
    assert "same tokens: 6 of 8 responses, not MATH 0 (step=4), MATH 1 (step=4)\n" in text
