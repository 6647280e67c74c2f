"""The suites by name, and OpenCompass's configuration of each. A new suite is one file here and one entry in ALL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.suites import gsm8k, humaneval, lists, math, mbpp
from harness.suites.spec import Suite

ALL = (gsm8k.SUITE, math.SUITE, humaneval.SUITE, mbpp.SUITE, lists.SUITE)
SUITES: dict[str, Suite] = {suite.name: suite for suite in ALL}
GENERATED = tuple(name for name, suite in SUITES.items() if suite.generator is not None)
PAPER_SUITES = ("gsm8k", "math", "humaneval", "mbpp")


def suites_named(names: str) -> list[str]:
    """The suites of a comma-separated list. Raises UserError for an unknown or repeated one."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in SUITES]
    if unknown or not chosen:
        raise UserError(f"unknown suite {', '.join(unknown) or '(none)'}; valid: {', '.join(SUITES)}")
    if len(set(chosen)) < len(chosen):
        raise UserError(f"--suite names a suite twice: {names}")
    return chosen


def generation_settings(suite: str, generated: bool) -> dict[str, Any]:
    """A suite's default lengths and decoder options: those of its generated problems, or LLaDA-8B-Instruct's."""
    spec = SUITES[suite]
    return {"gen_length": spec.generator.length} if generated and spec.generator else spec.lengths


def data_file(suite: str, data: Path) -> Path:
    """Where a suite's test file lies in a folder of OpenCompass's layout. Raises UserError if it is missing."""
    name = SUITES[suite].file
    path = data / "data" / name
    if not path.is_file():
        raise UserError(
            f"data file for {suite} is missing: {path}; --data wants a folder that holds data/{name} "
            "(OpenCompass's layout)"
        )
    return path


def dataset_config(suite: str, data: Path, generated: bool) -> dict[str, Any]:
    """OpenCompass's dataset configuration of a suite whose file lies below `data`."""
    spec = SUITES[suite]
    path = data_file(suite, data).resolve()
    source = spec.generator if generated and spec.generator else spec
    return {
        "abbr": suite,
        "type": spec.dataset,
        "path": str(path.parent if spec.by_folder else path),
        **spec.load,
        "reader_cfg": {"input_columns": list(spec.columns), "output_column": spec.output, **spec.reader},
        "infer_cfg": {
            "prompt_template": {
                "type": "opencompass.openicl.icl_prompt_template.PromptTemplate",
                "template": {"round": source.rounds},
            },
            "retriever": {"type": "opencompass.openicl.icl_retriever.ZeroRetriever"},
            "inferencer": {"type": "opencompass.openicl.icl_inferencer.GenInferencer"},
        },
        "eval_cfg": source.evaluation,
    }
