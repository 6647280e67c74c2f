r"""The suites: which OpenCompass dataset, prompt and evaluator each one is, written out whole.

A suite of real files is OpenCompass's own zero-shot chat configuration (MBPP: its 3-shot one); a generated suite has
the same dataset class, the bare problem as its prompt, and the evaluator that fits its answers. Types are import paths,
so nothing of OpenCompass is imported here. Per suite, LLaDA's own settings for LLaDA-8B-Instruct (gen_length,
block_length and options of its decoder) and nano's lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.nano_suites import FILES

BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
IMPLEMENT = (
    "Read the following function signature and docstring, and fully implement the function described. "
    "Your response should only contain the code for this function.\n"
)
EXPERT = "You are an expert Python programmer, and here is your task: "
TESTS = " Your code should pass these tests:\n\n "
# The three solved tasks of the MBPP prompt (Austin et al., arXiv 2108.07732, tasks 2 to 4), in OpenCompass's wording.
MBPP_SHOTS = (
    (
        "Write a function to find the similar elements from the given two tuple lists.",
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
        "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4) \n"
        "assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14) \n",
        "def similar_elements(test_tup1, test_tup2):\r\n"
        "  res = tuple(set(test_tup1) & set(test_tup2))\r\n"
        "  return (res)",
    ),
    (
        "Write a python function to identify non-prime numbers.",
        "assert is_not_prime(2) == False \nassert is_not_prime(10) == True \nassert is_not_prime(35) == True \n",
        "import math\r\ndef is_not_prime(n):\r\n    result = False\r\n"
        "    for i in range(2,int(math.sqrt(n)) + 1):\r\n        if n % i == 0:\r\n"
        "            result = True\r\n    return result",
    ),
    (
        "Write a function to find the largest integers from a given list of numbers using heap queue algorithm.",
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],3)==[85, 75, 65] \n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],2)==[85, 75] \n"
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],5)==[85, 75, 65, 58, 35] \n",
        "import heapq as hq\r\ndef heap_queue_largest(nums,n):\r\n"
        "  largest_nums = hq.nlargest(n, nums)\r\n  return largest_nums",
    ),
)


def _mbpp_rounds() -> list[dict[str, str]]:
    rounds = []
    for text, tests, code in MBPP_SHOTS:
        rounds.append({"role": "HUMAN", "prompt": f"{EXPERT}{text}{TESTS}{tests}"})
        rounds.append({"role": "BOT", "prompt": f"[BEGIN]\n '{code}' \n[DONE] \n\n "})
    return [*rounds, {"role": "HUMAN", "prompt": f"{EXPERT}{{text}}{TESTS}{{test_list}}  \n"}]


def _human(prompt: str) -> list[dict[str, str]]:
    return [{"role": "HUMAN", "prompt": prompt}]


MATH_EVAL: dict[str, Any] = {
    "evaluator": {"type": "opencompass.datasets.MATHEvaluator", "version": "v2"},
    "pred_postprocessor": {"type": "opencompass.datasets.math_postprocess_v2"},
}
GSM8K_GOLD = {"dataset_postprocessor": {"type": "opencompass.datasets.gsm8k_dataset_postprocess"}}


@dataclass(frozen=True)
class Suite:
    """One benchmark.

    dataset: its OpenCompass class; file: below the data folder's `data/`; columns: what the prompt reads; output: the
    column of the reference. rounds and evaluation are those of the real files, nano_rounds and nano_evaluation those of
    generated problems. executes: whether scoring runs model-written code. paper: LLaDA's settings for the 8B model.
    """

    title: str
    dataset: str
    columns: tuple[str, ...]
    output: str
    rounds: list[dict[str, str]]
    evaluation: dict[str, Any]
    nano_rounds: list[dict[str, str]]
    nano_evaluation: dict[str, Any]
    nano_length: int
    paper: dict[str, Any]
    executes: bool = False
    load: dict[str, Any] = field(default_factory=dict)


HUMANEVAL_EVAL: dict[str, Any] = {
    "evaluator": {"type": "harness.evaluators.SandboxedHumanEval", "k": [1]},
    "pred_postprocessor": {"type": "opencompass.datasets.humaneval_postprocess_v2"},
}
MBPP_EVAL: dict[str, Any] = {"evaluator": {"type": "harness.evaluators.SandboxedMBPP"}}
LISTS_EVAL: dict[str, Any] = {"evaluator": {"type": "harness.evaluators.ListsEvaluator"}}

SUITES = {
    "gsm8k": Suite(
        title="GSM8K",
        dataset="opencompass.datasets.GSM8KDataset",
        columns=("question",),
        output="answer",
        rounds=_human("{question}" + BOXED),
        evaluation=MATH_EVAL | GSM8K_GOLD,
        nano_rounds=_human("{question}"),
        nano_evaluation={
            "evaluator": {"type": "opencompass.datasets.Gsm8kEvaluator"},
            "pred_postprocessor": {"type": "opencompass.datasets.gsm8k_postprocess"},
        }
        | GSM8K_GOLD,
        nano_length=48,
        paper={"gen_length": 256, "block_length": 8},
    ),
    "math": Suite(
        title="MATH",
        dataset="opencompass.datasets.MATHDataset",
        load={"file_name": "test_prm800k_500.json"},
        columns=("problem",),
        output="solution",
        rounds=_human("{problem}" + BOXED),
        evaluation=MATH_EVAL,
        nano_rounds=_human("{problem}"),
        nano_evaluation=MATH_EVAL,
        nano_length=48,
        paper={"gen_length": 512, "block_length": 64},
    ),
    "humaneval": Suite(
        title="HumanEval",
        dataset="opencompass.datasets.HumanevalDataset",
        columns=("prompt",),
        output="task_id",
        rounds=_human(IMPLEMENT + "{prompt}"),
        evaluation=HUMANEVAL_EVAL,
        nano_rounds=_human("{prompt}"),
        nano_evaluation=HUMANEVAL_EVAL,
        nano_length=48,
        paper={"gen_length": 512, "block_length": 512, "options": {"logits_eos_inf": True}},
        executes=True,
    ),
    "mbpp": Suite(
        title="MBPP",
        dataset="opencompass.datasets.MBPPDataset",
        columns=("text", "test_list"),
        output="test_list_2",
        rounds=_mbpp_rounds(),
        evaluation=MBPP_EVAL,
        nano_rounds=_human("{text}"),
        nano_evaluation=MBPP_EVAL,
        nano_length=64,
        paper={"gen_length": 256, "block_length": 256, "options": {"confidence_eos_eot_inf": True}},
        executes=True,
    ),
    "lists": Suite(
        title="Lists",
        dataset="harness.evaluators.ListsDataset",
        columns=("question",),
        output="answer",
        rounds=_human("{question}"),
        evaluation=LISTS_EVAL,
        nano_rounds=_human("{question}"),
        nano_evaluation=LISTS_EVAL,
        nano_length=32,
        paper={"gen_length": 32, "block_length": 32},
    ),
}


def suites_named(names: str) -> list[str]:
    """The suites of a comma-separated list. Raises UserError for an unknown or repeated one."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in SUITES]
    if unknown or not chosen:
        raise UserError(f"unknown suite {', '.join(unknown) or '(none)'}; valid: {', '.join(SUITES)}")
    if len(set(chosen)) < len(chosen):
        raise UserError(f"--suite names a suite twice: {names}")
    return chosen


def data_file(suite: str, data: Path) -> Path:
    """Where a suite's test file lies in a folder of OpenCompass's layout. Raises UserError if it is missing."""
    path = data / "data" / FILES[suite]
    if not path.is_file():
        raise UserError(
            f"data file for {suite} is missing: {path}; --data wants a folder that holds data/{FILES[suite]} "
            "(OpenCompass's layout)"
        )
    return path


def dataset_config(suite: str, data: Path, generated: bool) -> dict[str, Any]:
    """OpenCompass's dataset configuration of a suite whose file lies below `data`."""
    spec = SUITES[suite]
    path = data_file(suite, data).resolve()
    return {
        "abbr": suite,
        "type": spec.dataset,
        "path": str(path.parent if suite in ("gsm8k", "math") else path),
        **spec.load,
        "reader_cfg": {
            "input_columns": list(spec.columns),
            "output_column": spec.output,
            **({"train_split": "test"} if suite == "humaneval" else {}),
        },
        "infer_cfg": {
            "prompt_template": {
                "type": "opencompass.openicl.icl_prompt_template.PromptTemplate",
                "template": {"round": spec.nano_rounds if generated else spec.rounds},
            },
            "retriever": {"type": "opencompass.openicl.icl_retriever.ZeroRetriever"},
            "inferencer": {"type": "opencompass.openicl.icl_inferencer.GenInferencer"},
        },
        "eval_cfg": spec.nano_evaluation if generated else spec.evaluation,
    }
