"""Questions of a user's file: a suite without code, `mine=./q.jsonl(prompt=question,answer=gold,judge=number)`.

The file is JSON lines, or CSV with a header. A judge compares a response with the answer: `exact` up to case and
whitespace, `number` its last number, or a function of (response, answer).

ParallelBench (Kang et al., arXiv 2510.04767) has no licence; `--suite parallelbench:waiting_line/copy --data CHECKOUT`
reads the task's file, fills its prompt with the problem and its solved example, and calls the checkout's metric.
"""

import csv
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import yaml

from harness.elements import import_function, parse_call
from harness.errors import UserError, explained, once
from harness.suites.numbers import last_number, only_number

PROMPTS = ("prompt", "question")  # where the prompt is looked for unless its column is named
EXACT, NUMBER = "exact", "number"
FORMAT = "a line is one JSON object; CSV is in a file named .csv"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
Judge = Callable[[str, str], bool]


@dataclass(frozen=True)
class Questions:
    """A file of questions, and its columns: prompt "" is the first of PROMPTS that is there, MADE made.

    judge: "exact", "number", or the file and the name of a function, "FILE.py:FUNCTION".
    """

    file: Path
    prompt: str = ""
    answer: str = "answer"
    judge: str = EXACT

    @property
    def judge_file(self) -> Path | None:
        """The file of the judge's function; None for a built-in judge."""
        return None if self.judge in (EXACT, NUMBER) else Path(self.judge.rpartition(":")[0])


def questions_of(text: str) -> tuple[str, Questions]:
    """The name and the questions of an element NAME=FILE(column=..., judge=...). Raises UserError for any other."""
    head, arguments = parse_call(text)
    name, _, file = (each.strip() for each in head.partition("="))
    judge = str(arguments.pop("judge", EXACT))
    path, _, function = judge.rpartition(":")
    if path.endswith(".py") and function:
        judge = f"{_real(path)}:{function}"
    known = judge in (EXACT, NUMBER) or Path(judge.rpartition(":")[0]).suffix == ".py"
    if not known or not NAME.fullmatch(name) or not file or not {*arguments} <= {"prompt", "answer"}:
        raise UserError(
            f"--suite {text}: {'' if known else f'unknown judge {judge}; '}write NAME=FILE.jsonl(prompt=COLUMN,"
            "answer=COLUMN,judge=JUDGE); a name is letters, digits, _, - and .; a judge is exact, number, or "
            "FILE.py:FUNCTION"
        )
    columns = {key: str(value) for key, value in arguments.items()}
    questions = Questions(_real(file), judge=judge, **columns)
    right = judge_of(judge)
    for number, row in enumerate(read_questions(questions), 1):
        if not right(row["answer"], row["answer"]):
            raise UserError(
                f"questions {file.strip()}: question {number}: by judge={judge} its own answer {row['answer']!r} is "
                "not a right response, so no response could be judged"
            )
    return name, questions


def _real(path: str) -> Path:
    """The file itself, without links; a loop of links as it is, which no one can read."""
    return Path(os.path.realpath(Path(path).expanduser()))


def read_questions(questions: Questions) -> list[dict[str, str]]:
    """The rows of a file, {answer, prompt}. Raises UserError, with the line, for a file that cannot be used."""
    path = questions.file
    if questions.prompt == MADE:
        return parallelbench_rows(path)
    not_text = explained(f"questions {path}", UnicodeDecodeError, instead="save the file as UTF-8, not compressed")
    with explained(f"questions {path}", OSError, ValueError, csv.Error), not_text:
        if path.exists() and not path.is_file():
            raise ValueError("it is no plain file")
        if path.exists() and path.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST >> 20} MiB; ask fewer questions")
        if not (rows := list(_rows(path))):
            raise ValueError("the file holds no questions")
        named = [name for name in PROMPTS if name in rows[0][1]]
        if not questions.prompt and len(named) > 1:
            raise ValueError(f"the file has columns {' and '.join(named)}: name the one to ask, as prompt={named[0]}")
        prompt = questions.prompt or (named or PROMPTS)[0]
        # The answer first: OpenCompass fills columns into the prompt in their order, and a prompt may hold "{answer}".
        columns = {"answer": questions.answer, "prompt": prompt}
        found = []
        for line, row in rows:
            texts = {name: _text(line, row, column) for name, column in columns.items()}
            if questions.judge == NUMBER and only_number(texts["answer"]) is None:
                raise ValueError(
                    f"line {line}: the answer {texts['answer']!r} is not one number; judge=number reads -1,234.5, .5, "
                    "1e-5, 3/4 and 12%, of a solution what follows ####"
                )
            found.append(texts)
        return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, each with its line. Raises UserError or ValueError for one that cannot be read."""
    if path.suffix.lower() != ".csv":
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
            if line.strip():
                with explained(f"questions {path}: line {number}", ValueError, RecursionError, instead=FORMAT):
                    row = json.loads(line, parse_int=str, parse_float=str, object_pairs_hook=once)  # 0.10 stays 0.10
                    if not isinstance(row, dict):
                        raise ValueError(f"a JSON object was expected, not {line.strip()[:40]}")
                yield number, row
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        once((name, "") for name in reader.fieldnames or ())
        for row in reader:
            if None in row:
                raise ValueError(f"line {reader.line_num}: more cells than the header has")
            if [*row.values()] == [*row]:
                raise ValueError(f"line {reader.line_num} is the header again: two files were joined")
            yield reader.line_num, row


def _text(line: int, row: dict[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"line {line}: {column} must be text, not {value!r}; the columns are {', '.join(map(str, row))}; name "
            "them: NAME=FILE(prompt=COLUMN,answer=COLUMN)"
        )
    return value


def judge_of(judge: str) -> Judge:
    """A judge: whether a response is right, given the answer. Raises UserError for a function that cannot be used."""
    if judge == EXACT:
        return lambda response, answer: _plain(response) == _plain(answer)
    if judge == NUMBER:
        return same_number
    name = judge.rpartition(":")[2]
    path = Path(judge.rpartition(":")[0])
    if path.suffix != ".py":  # of a generated suite
        return cast(Judge, getattr(import_module(str(path)), name))
    function = _function(path, name, path.stat().st_mtime_ns if path.is_file() else 0)

    def judged(response: str, answer: str) -> bool:
        with explained(f"judge {path.name}:{name} fails", BaseException):  # whatever the user's function raises
            verdict = function(response, answer)
        if isinstance(verdict, bool):
            return verdict
        raise UserError(f"judge {path.name}:{name} must return True or False, not {verdict!r}")

    return judged


@lru_cache
def _function(path: Path, name: str, version: int) -> Callable[[str, str], Any]:
    """A function of a file of this version, or a metric of ParallelBench."""
    metric = path.parts[-len(METRICS.parts) :] == METRICS.parts
    return (parallelbench_metric if metric else import_function)(path, name, f"{version:x}")


def same_number(response: str, answer: str) -> bool:
    """Whether the last number of a response is that of the answer."""
    read, gold = last_number(response), only_number(answer)
    return read is not None and gold is not None and gold.equals(read)


def _plain(text: str) -> str:
    """The text without case, whitespace as single blanks. Source: the Unicode Standard, D145, canonical matching."""
    folded = unicodedata.normalize("NFD", text).casefold()
    return " ".join(unicodedata.normalize("NFD", folded).split())


LARGEST = 1 << 29  # bytes of a file, which is read whole
PARALLELBENCH = "parallelbench:"
MADE = "parallelbench"  # what Questions.prompt says of its files: the prompt is made, not a column
TASKS, METRICS = Path("dataset/parallel_bench/data/output/test"), Path("dataset/parallel_bench/metrics.py")
GRADED = ("summary_score", "paraphrase_score")  # a share of each response, not right or wrong
GRAMMAR = ("sentence_to_words_score", "grammar_score", "startwith_score")


def parallelbench_task(element: str, checkout: str | None) -> tuple[str, Path, str]:
    """Name, file and judge of an element parallelbench:GROUP/TASK. Raises UserError for one that cannot be judged."""
    task = element.removeprefix(PARALLELBENCH)
    folder = Path(checkout or "").expanduser().resolve() / TASKS
    file, wrong, metric = folder / f"{task}.jsonl", "", ""
    if checkout is None or not folder.is_dir():
        wrong = f"it needs --data CHECKOUT, a checkout of furiosa-ai/ParallelBench with {TASKS}"
    elif not file.is_file():
        known = sorted(str(each.relative_to(folder).with_suffix("")) for each in folder.glob("*/*.jsonl"))
        wrong = f"{folder} has no such task; it has {', '.join(known)}"
    elif (metric := str(_config_of(file).get("metric"))) in GRADED:
        wrong = f"its metric {metric} grades a response, and a suite needs right or wrong"
    elif metric in GRAMMAR and (shutil.which("java") is None or find_spec("language_tool_python") is None):
        wrong = f"its metric {metric} needs Java and the package language_tool_python"
    if wrong:
        raise UserError(f"--suite {element}: {wrong}")
    root = folder.parents[len(TASKS.parts) - 1]
    return f"parallelbench-{task.replace('/', '-')}", file, f"{root / METRICS}:{metric}"


def parallelbench_rows(file: Path) -> list[dict[str, str]]:
    """The problems of a task: answer (JSON), shot and shown (a solved example, or ""), and prompt. Raises UserError."""
    prompt = str(_config_of(file)["prompt"])

    def filled(given: dict[str, Any]) -> str:
        return prompt.format(**given).replace("\\n", "\n")

    rows = []
    with explained(f"{file} is no task of ParallelBench", OSError, ValueError, KeyError, TypeError, AttributeError):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            shots = row["input"].get("icl_examples") or [None]
            solved = shots[0] and (filled(shots[0]["input"]), shots[0]["answer"])
            shot, shown = solved or ("", "")
            shown = shown["example"] if isinstance(shown, dict) else shown
            texts = {"shot": shot, "shown": shown, "prompt": filled(row["input"])}
            rows.append({"answer": json.dumps(row["answer"]), **texts})
            if len(shots) > 1 or bool(shot) != bool(rows[0]["shot"]):
                raise ValueError("one solved example a problem is known, or none")
    return rows


def parallelbench_metric(judge: Path, name: str, version: str) -> Callable[[str, str], bool]:
    """A metric as a judge: whether it gives a response its full score. Raises UserError where it cannot be imported."""
    sys.path.insert(0, str(judge.parents[2]))  # it imports other files of the checkout
    try:
        metric = import_function(judge, name, version)
    finally:
        sys.path.pop(0)

    def right(response: str, answer: str) -> bool:
        score = metric(response, json.loads(answer))
        return float(score["score"] if isinstance(score, dict) else score) == 1.0

    return right


def _config_of(file: Path) -> dict[str, Any]:
    """A task's entry in task_config.yaml of its folder. Raises UserError where it has no prompt."""
    path = file.with_name("task_config.yaml")
    with explained(f"{path} says no prompt of {file.stem}", OSError, LookupError, TypeError, yaml.YAMLError):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))[f"{file.parent.name}/{file.stem}"]
        return {**found, "prompt": "" + found["prompt"]}  # text alone
