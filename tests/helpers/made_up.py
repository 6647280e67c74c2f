"""Made-up problems of public benchmarks, in the formats of their files."""

import csv
import json
from pathlib import Path
from typing import Any

from harness.suites.spec import shipped

ADD = 'def add(a, b):\n    """Return the sum of a and b."""\n'
CHECK = "def check(candidate):\n    inputs = [[1, 2], [0, -3]]\n    results = [3, -3]\n" + (
    "    for arguments, result in zip(inputs, results):\n"
    "        assert candidate(*arguments) == result\n"
)
HUMANEVAL_PLUS = {
    "prompt": ADD,
    "canonical_solution": "    return a + b\n",
    "entry_point": "add",
    "test": f"import numpy as np\n{CHECK}",
}
MBPP_PLUS = {
    "text": "Write a function to find the larger of two numbers.",
    "code": "def larger(a, b):\n    return max(a, b)",
    "test_list": ["assert larger(1, 2) == 2", "assert larger(2, 1) == 2"],
    "test": "import numpy as np\nfor a, b, c in [(1, 2, 2), (-1, -2, -1)]:\n    "
    "assert np.allclose(larger(a, b), c)\n",
}
IFEVAL = {
    "prompt": "Write about owls without any comma.",
    "instruction_id_list": ["punctuation:no_comma"],
    "kwargs": [{}],
}
AIME = {"origin_prompt": "What is 2 + 3?", "gold_answer": "5"}
ARC = {
    "question": {
        "stem": "Which is an animal?",
        "choices": [
            {"text": text, "label": label}
            for text, label in zip(("owl", "stone", "cloud", "spoon"), "ABCD", strict=True)
        ],
    },
    "answerKey": "A",
}
HELLASWAG = {
    "query": "An owl sits in a tree. It",
    "choices": [" flies away.", " is a stone.", " reads.", " boils."],
    "gold": 0,
}


def write_benchmarks(folder: Path) -> None:
    """Two problems of each benchmark that suites name, below `folder/data`."""
    data = folder / "data"
    _write_lines(
        data / "humaneval_plus" / "humaneval_plus.jsonl",
        [{"task_id": f"HumanEval/{number}", **HUMANEVAL_PLUS} for number in range(2)],
    )
    _write_lines(
        data / "mbpp_plus" / "mbpp_plus.jsonl",
        [{"task_id": number, **MBPP_PLUS} for number in range(2)],
    )
    _write_lines(
        data / "ifeval" / "input_data.jsonl", [{"key": number, **IFEVAL} for number in range(2)]
    )
    _write_lines(data / "aime.jsonl", [AIME, AIME])
    header = [*"abcdefg", "Question", "Correct Answer", *map("Incorrect Answer {}".format, "123")]
    rows = [[*"abcdefg", f"What is {number}?", "right", "x", "y", "z"] for number in range(2)]
    path = data / "gpqa" / "gpqa_diamond.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    for dataset in shipped("bbh_gen_ee62e9"):
        examples = [{"input": "Is an owl a bird?", "target": "(A)"}] * 2
        path = data / "BBH" / "data" / f"{dataset['name']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"examples": examples}))


def write_choices(folder: Path) -> None:
    """Two questions of ARC and HellaSwag, and of the subjects of MMLU, below `folder/data`."""
    data = folder / "data"
    _write_lines(data / "ARC" / "ARC-c" / "ARC-Challenge-Dev.jsonl", [ARC, ARC])
    _write_lines(data / "hellaswag" / "hellaswag.jsonl", [HELLASWAG, HELLASWAG])
    for dataset in shipped("mmlu_ppl_ac766d"):
        for split in ("dev", "test"):
            path = data / "mmlu" / split / f"{dataset['name']}_{split}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("Is an owl a bird?,yes,no,maybe,never,A\n" * 5)


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
