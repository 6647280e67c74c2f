"""Synthetic records of a run, written as harness/run.py writes them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness.records.files import model_hashes
from harness.records.store import Run, read_run
from harness.runs.selection import methods_named
from model_wrappers.backbones.registry import SHIPPED

PAPER_SUITES = {"gsm8k": "GSM8K", "math": "MATH", "humaneval": "HumanEval", "mbpp": "MBPP"}
NANO_SHA256 = model_hashes(SHIPPED["nano"])
LABELS = {"llada": "LLaDA", "llada/2": "LLaDA/2", "dcd": "DCD", "fef-2": "FeF-DLLM (step=2)"}


def item(method: str, suite: str, number: int, **fields: Any) -> dict[str, Any]:
    """A record of one item; by default right, 2 s and 48 forwards, no drafts."""
    defaults = {
        "correct": True,
        "seconds": 2.0,
        "forwards": 48,
        "proposed": 0,
        "accepted": 0,
        "rejected": 0,
    }
    return {"schema": 1, "method": method, "suite": suite, "item": number, **defaults, **fields}


def window(method: str, suite: str, number: int, committed: int) -> dict[str, Any]:
    """A record of one speculative window."""
    return {
        "method": method,
        "suite": suite,
        "item": number,
        "proposed": 4,
        "accepted": 2,
        "committed": committed,
    }


def drafted_window(
    method: str, number: int, proposed: int, accepted: int, **fields: Any
) -> dict[str, Any]:
    """A record of a window; a rejected draft is corrected and committed too."""
    counts = {"proposed": proposed, "accepted": accepted, "committed": min(proposed, accepted + 1)}
    return {"method": method, "suite": "gsm8k", "item": number, **counts, **fields}


def save(
    folder: Path,
    items: list[dict[str, Any]],
    windows: list[dict[str, Any]] | None = None,
    suites: dict[str, str] | None = None,
    **meta: Any,
) -> Run:
    """Write a run's records as harness/run.py does, and read them back; items with drafts have
    windows in any case."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "data": "generated",
        "methods": {
            key: {"label": label, "method": key.split("/")[0]} for key, label in LABELS.items()
        },
        "suites": {
            key: {"title": title}
            for key, title in (suites or {"gsm8k": "GSM8K", "math": "MATH"}).items()
        },
    }
    environment = {"device": "cpu", "cpu": "Test CPU", "threads": 2, "dtype": "float32"}
    run = {"schema": 1, "name": "run", "config": config, "environment": environment, **meta}
    run.setdefault("weights", {"nano": {"name": "nano", "sha256": NANO_SHA256}})
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in items))
    windows = [*(windows or []), *missing_windows(items, windows or [])]
    (folder / "windows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in windows))
    return read_run(folder)


def missing_windows(
    items: list[dict[str, Any]], windows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Windows of every item that has drafts and none: one for each that rejected, the last with
    most drafts."""
    keys = ("method", "suite", "item")
    there = {tuple(row.get(key) for key in keys) for row in windows}
    found = []
    for row in items:
        key = {name: row[name] for name in keys}
        if row.get("proposed") and tuple(key.values()) not in there:
            more, accepted = max(0, row.get("rejected", 1) - 1), row.get("accepted", 0)
            last = {"proposed": row["proposed"] - more, "accepted": accepted}
            found += [{**key, "proposed": 1, "accepted": 0, "committed": 0}] * more
            found.append({**key, **last, "committed": row.get("committed", 3)})
    return found


def full_items(suites: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Four items per suite: LLaDA 3 of 4 right; FeF all right, four times as fast, on half the
    forwards."""
    rows = []
    for suite in suites or {"gsm8k": "", "math": ""}:
        for number in range(4):
            rows.append(item("llada", suite, number, correct=number > 0))
            drafts = {"proposed": 4, "accepted": 2, "rejected": 1}
            rows.append(item("fef-2", suite, number, seconds=0.5, forwards=24, **drafts))
    return rows


def seeded(folder: Path, right: dict[str, list[list[int]]]) -> Run:
    """LLaDA and others on one suite, by method a list of verdicts for each seed."""
    items = [
        item(
            method,
            "gsm8k",
            draw * len(verdicts) + problem,
            correct=bool(verdict),
            seconds=1.0 + problem,
        )
        for method, draws in right.items()
        for draw, verdicts in enumerate(draws)
        for problem, verdict in enumerate(verdicts)
    ]
    config = {
        **{"seed": 3, "seeds": [3, 5, 7], "temperature": 0.7, "data": "generated"},
        "methods": {name: {"label": name, "method": "llada"} for name in right},
        "suites": {"gsm8k": {"title": "GSM8K"}},
    }
    count = sum(map(len, next(iter(right.values()))))
    return save(folder, items, config=config, data={"files": {"gsm8k": {"items": count}}})


def save_presets(folder: Path, *methods: str, suites: tuple[str, ...] = ("gsm8k", "math")) -> Run:
    """A saved run of presets, two items a suite; of ten drafts of FeF methods six are accepted, two
    rejected."""
    drafts = {"proposed": 10, "accepted": 6, "rejected": 2}
    items = [
        item(method, suite, number, **(drafts if method.startswith("fef") else {}))
        for method in methods
        for suite in suites
        for number in range(2)
    ]
    config = {
        "data": "generated",
        "methods": {
            name: {"label": preset.row, "method": preset.method}
            for name, preset in methods_named(",".join(methods)).items()
        },
        "suites": {suite: {"title": PAPER_SUITES.get(suite, suite)} for suite in suites},
    }
    return save(folder, items, config=config)


def rows_of(markdown: str) -> dict[str, list[str]]:
    """The cells of a Markdown table by the first one."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def has_latex() -> bool:
    """Whether pdflatex is here with what the tables need."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return False
    packages = ("booktabs.sty", "multirow.sty", "graphicx.sty")
    return (
        subprocess.run(["kpsewhich", *packages], capture_output=True, check=False).returncode == 0
    )


def lines_of(axes: Any) -> dict[str, list[float]]:
    """The heights of the lines that an axes has, by label."""
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
