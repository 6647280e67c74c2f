"""Questions of a user's file: a suite without code, `mine=./q.jsonl(prompt=question,answer=gold,judge=number)`.

The file is JSON lines, or CSV with a header. A judge compares a response with the answer: `exact` up to case and
whitespace, `number` their last numbers, or a function of (response, answer).
"""

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec

from harness.elements import parse_call
from harness.errors import UserError, explained
from harness.outside import import_function
from harness.suites import parallelbench

PROMPTS = ("prompt", "question")  # where the prompt is looked for unless its column is named
EXACT, NUMBER = "exact", "number"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
NUMBERS = re.compile(r"(?:(?<![\w)])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
Judge = Callable[[str, str], bool]


@dataclass(frozen=True)
class Questions:
    """A file of questions, and its columns: prompt "" is the first of PROMPTS that is there, parallelbench.PROMPT made.

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
        judge = f"{Path(path).expanduser().resolve()}:{function}"
    known = judge in (EXACT, NUMBER) or Path(judge.rpartition(":")[0]).suffix == ".py"
    if not known or not NAME.fullmatch(name) or not file or not {*arguments} <= {"prompt", "answer"}:
        raise UserError(
            f"--suite {text}: {'' if known else f'unknown judge {judge}; '}write NAME=FILE.jsonl(prompt=COLUMN,"
            "answer=COLUMN,judge=JUDGE); a name is letters, digits, _, - and .; a judge is exact, number, or "
            "FILE.py:FUNCTION"
        )
    columns = {key: str(value) for key, value in arguments.items()}
    questions = Questions(Path(file).expanduser().resolve(), judge=judge, **columns)
    judge_of(judge)
    read_questions(questions)
    return name, questions


def read_questions(questions: Questions) -> list[dict[str, str]]:
    """The rows of a file, {answer, prompt}. Raises UserError, with the line, for a file that cannot be used."""
    path = questions.file
    if questions.prompt == parallelbench.PROMPT:
        return parallelbench.rows_of(path)
    with explained(f"questions {path}", OSError, ValueError, csv.Error):
        if not (rows := list(_rows(path))):
            raise ValueError("the file holds no questions")
        prompt = questions.prompt or next((name for name in PROMPTS if name in rows[0][1]), PROMPTS[0])
        # The answer first: OpenCompass fills columns into the prompt in their order, and a prompt may hold "{answer}".
        columns = {"answer": questions.answer, "prompt": prompt}
        found = []
        for line, row in rows:
            texts = {name: _text(line, row, column) for name, column in columns.items()}
            if questions.judge == NUMBER and last_number(texts["answer"]) is None:
                raise ValueError(f"line {line}: the answer {texts['answer']!r} has no number to judge by")
            found.append(texts)
        return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, each with its line. Raises UserError or ValueError for one that cannot be read."""
    if path.suffix != ".csv":
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
            if line.strip():
                with explained(f"questions {path}: line {number}", msgspec.MsgspecError, RecursionError):
                    yield number, msgspec.json.decode(line, type=dict[str, Any])
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        for row in reader:
            if None in row:
                raise ValueError(f"line {reader.line_num}: more cells than the header has")
            yield reader.line_num, row


def _text(line: int, row: dict[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = json.dumps(value)
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
        return lambda response, answer: last_number(response) == last_number(answer) is not None
    name = judge.rpartition(":")[2]
    path = Path(judge.rpartition(":")[0])
    if path.suffix != ".py":  # of a generated suite
        return cast(Judge, getattr(import_module(str(path)), name))
    function = _function(path, name, path.stat().st_mtime_ns if path.is_file() else 0)

    def judged(response: str, answer: str) -> bool:
        with explained(f"judge {path.name}:{name} fails", Exception):  # whatever the user's function raises
            verdict = function(response, answer)
        if isinstance(verdict, bool):
            return verdict
        raise UserError(f"judge {path.name}:{name} must return True or False, not {verdict!r}")

    return judged


@lru_cache
def _function(path: Path, name: str, version: int) -> Callable[[str, str], Any]:
    """A function of a file of this version, or a metric of ParallelBench."""
    if path.parts[-len(parallelbench.METRICS.parts) :] == parallelbench.METRICS.parts:
        return parallelbench.metric_of(path, name, f"{version:x}")
    return import_function(path, name, f"{version:x}")


def last_number(text: str) -> Decimal | None:
    """The last number of a text; thousands may be separated by commas."""
    found = NUMBERS.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
