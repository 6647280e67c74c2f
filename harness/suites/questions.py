"""Questions of a user's file: a suite without code, `mine=./q.jsonl(prompt=question,answer=gold,judge=number)`.

The file is JSON lines, or CSV with a header. A judge compares a response with the answer: `exact` up to case and
whitespace, `number` its last number, or a function of (response, answer).
"""

import csv
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

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
    """A function of a file of this version."""
    return import_function(path, name, f"{version:x}")


def same_number(response: str, answer: str) -> bool:
    """Whether the last number of a response is that of the answer."""
    read, gold = last_number(response), only_number(answer)
    return read is not None and gold is not None and gold.equals(read)


def _plain(text: str) -> str:
    """The text without case, whitespace as single blanks. Source: the Unicode Standard, D145, canonical matching."""
    folded = unicodedata.normalize("NFD", text).casefold()
    return " ".join(unicodedata.normalize("NFD", folded).split())


LARGEST = 1 << 29  # bytes of a file, which is read whole
