"""Synthetic runs for the regression gate: two methods on four suites, whose items agree but for
what a test changes."""

from pathlib import Path
from typing import Any

from run_records import PAPER_SUITES, item, save

from harness.gate import main
from harness.records.store import Run

ENVIRONMENT = {
    **{"platform": "Linux x86_64", "cpu": "Vendor model 1", "cpu_capability": "AVX2", "threads": 2},
    **{"dtype": "float32", "packages": {"torch": "2.13.0", "transformers": "5.23.0"}},
}
METHODS = ("llada", "fef-2")
ITEMS = 100


def items_of(**changes: Any) -> list[dict[str, Any]]:
    """Items of two methods on four suites, three of four right; `changes` to FeF's item 7 of math.

    Another prompt or solution is LLaDA's too: a problem has one.
    """
    shared = {
        name: value
        for name, value in changes.items()
        if name in ("prompt_hash", "prompt_tokens", "gold")
    }
    rows = []
    for method in METHODS:
        for suite in PAPER_SUITES:
            for number in range(ITEMS):
                row = item(
                    method,
                    suite,
                    number,
                    correct=number % 4 > 0,
                    tokens_hash=f"{suite}{number}",
                    text="said",
                )
                row |= {"prompt_hash": "p", "gold": "7", "rows": 60, "token_forwards": 100}
                row |= {
                    "prompt_tokens": 30,
                    "content_tokens": 20,
                    "eos_tokens": 28,
                    "post_stop_tokens": 0,
                }
                own = changes if method == "fef-2" else shared
                rows.append(row | (own if (suite, number) == ("math", 7) else {}))
    return rows


def run_of(
    folder: Path,
    rows: list[dict[str, Any]],
    environment: dict[str, Any] = ENVIRONMENT,
    limit: int | None = ITEMS,
    **config: Any,
) -> Run:
    """A run of these items, two methods on the paper's suites; `config` changes its
    configuration."""
    suites = {suite: {"gen_length": 48, "options": {}} for suite in PAPER_SUITES}
    settings = {
        **{"data": "generated", "limit": limit, "temperature": 0.0},
        "methods": {
            name: {"label": name, "method": name, "role": "base", "suites": suites}
            for name in METHODS
        },
        "suites": {key: {"title": title} for key, title in PAPER_SUITES.items()},
        **config,
    }
    files = {suite: {"sha256": "s"} for suite in PAPER_SUITES}
    return save(folder, rows, config=settings, environment=environment, data={"files": files})


def verdict(run: Run, golden: Path) -> int:
    """What the gate's command exits with."""
    return main([str(run.folder), "--against", str(golden)])
