"""Suites from a user's file of questions, without code:
`mine=./q.jsonl(prompt=question,answer=gold,judge=number)`.

The file is JSON lines, a JSON array, CSV or TSV, plain or gzipped. A judge compares a response with
the answer: `exact` up to case and whitespace, `number` by the last number, `math` by OpenCompass's
math judge, `choice` by the letter of a choice, or a function of (response, answer). `tests` runs a
response as a program, with tests in place of an answer.
"""

import csv
import gzip
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.elements import parse_call
from harness.errors import UserError, explained
from harness.suites.choices import Row, choice_columns, choices_of, letter_of, with_choices
from harness.suites.programs import tests_of
from harness.suites.texts import plain, text_of
from model_wrappers.decoders.files import import_file
from model_wrappers.options import first_few, meant, note

# Columns of the prompt and of the answer, looked for in this order unless they are named.
PROMPTS = ("prompt", "question", "problem", "input", "instruction")
ANSWERS = ("answer", "solution", "output", "target", "gold", "label")
EXACT = "exact"
NUMBER = "number"
MATH = "math"
# As text: its module imports OpenCompass.
MATH_JUDGE = "harness.sandbox.evaluators:same_mathematics"
CHOICE = "choice"
TESTS = "tests"
PROGRAM_COLUMNS = ("tests", "entry_point")
# The column of a partial response, which is to be completed.
GIVEN = "given"
BUILT_IN = (EXACT, NUMBER, MATH, CHOICE, TESTS)
FORMAT = "a line is one JSON object; an array is in a file named .json, CSV in one named .csv"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
# A number: a minus sign that does not follow a digit (then it is a difference), digits, perhaps
# with commas between thousands, and decimals.
DIGITS = re.compile(r"(?:(?<!\d)-)?(?:\d+(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d))")
# The most answers in a warning.
SHOWN = 3
Judge = Callable[[str, str], bool]


@dataclass(frozen=True)
class Questions:
    """A file of questions.

    Attributes:
        file: JSON lines, a JSON array, CSV or TSV.
        prompt: the column of the prompt; "" for the first of PROMPTS that the file has.
        answer: the column of the answer; "" for the first of ANSWERS that the file has.
        judge: one of BUILT_IN, or the file and the name of a function, "FILE.py:FUNCTION".
    """

    file: Path
    prompt: str = ""
    answer: str = ""
    judge: str = EXACT

    @property
    def judge_file(self) -> Path | None:
        """The file of the judge's function; None for a built-in judge."""
        return None if self.judge in BUILT_IN else Path(self.judge.rpartition(":")[0])


def questions_of(text: str) -> tuple[str, Questions]:
    """The name and the questions of an element NAME=FILE(column=..., judge=...).

    Without a judge, choices are judged by `choice`, and tests without an answer by `tests`. Columns
    that are not read are noted. If the judge calls an answer wrong as a response, there is only a
    warning, for a response may have another form than the answer.

    Args:
        text: the element.

    Raises:
        UserError: the text is no such element, or the file or the judge cannot be used.
    """
    head, arguments = parse_call(text)
    name, _, file = (part.strip() for part in head.partition("="))
    judge = _judge_named(text, str(arguments.pop("judge", "")))
    for argument in {*arguments} - {"prompt", "answer"}:
        valid = ("prompt", "answer", "judge")
        raise UserError(f"--suite {text}: unknown argument {argument}{meant(argument, valid)}")
    if not NAME.fullmatch(name) or not file:
        raise UserError(
            f"--suite {text}: write NAME=FILE.jsonl(prompt=COLUMN,answer=COLUMN,judge=JUDGE); a"
            " name is letters, digits, _, - and ."
        )
    columns = {key: str(value) for key, value in arguments.items()}
    # Absolute: scoring may run in another folder.
    questions = Questions(_absolute(file), judge=judge, **columns)
    rows = _numbered_rows(questions.file)
    if not judge:
        questions = replace(questions, judge=_usual_judge(questions, rows[0][1]))
    answered = read_questions(questions)
    _note_unread(name, questions, [row for _, row in rows])
    # `math` would import OpenCompass, and the answers of `choice` and `tests` are checked already.
    if questions.judge not in (MATH, CHOICE, TESTS):
        _warn_of_answers(name, answered, judge_of(questions.judge))
    return name, questions


def _judge_named(text: str, judge: str) -> str:
    """A judge, a function with its file's absolute path. Raises UserError for an unknown one."""
    path, _, function = judge.rpartition(":")
    if path.endswith(".py") and function:
        return f"{_absolute(path)}:{function}"
    if judge and judge not in BUILT_IN:
        valid = f"{', '.join(BUILT_IN)} or FILE.py:FUNCTION"
        raise UserError(f"--suite {text}: unknown judge {judge}; give {valid}")
    return judge


def _usual_judge(questions: Questions, row: Row) -> str:
    """The judge of a file for which none was given."""
    if choice_columns(row):
        return CHOICE
    has_answer = questions.answer or {*ANSWERS} & row.keys()
    return TESTS if TESTS in row and not has_answer else EXACT


def _note_unread(name: str, questions: Questions, rows: list[Row]) -> None:
    columns = dict.fromkeys(column for row in rows for column in row)
    unread = [column for column in columns if column not in [GIVEN, *_columns(questions, rows[0])]]
    if unread:
        note(f"{name}: the judge {questions.judge} does not read the columns {', '.join(unread)}")


def _warn_of_answers(name: str, rows: list[Row], right: Judge) -> None:
    numbers = []
    # A user's judge may fail on an answer, which is no response.
    failures = []
    for number, row in enumerate(rows, 1):
        try:
            accepted = right(row["answer"], row["answer"])
        except UserError as error:
            accepted = False
            failures.append(f"; {error}")
        if not accepted:
            numbers.append(number)
    if numbers:
        answers = (f"question {number}: {rows[number - 1]['answer'][:40]!r}" for number in numbers)
        named = first_few(answers, SHOWN)
        warning = (
            f"warning: {name}: the judge calls {len(numbers)} of {len(rows)} answers wrong as"
            f" responses ({named}){''.join(failures[:1])}"
        )
        print(warning, file=sys.stderr)


def _absolute(path: str) -> Path:
    return Path(path).expanduser().resolve()


def read_questions(questions: Questions) -> list[Row]:
    """The rows of a file as OpenCompass gets them.

    Args:
        questions: the file, its columns and its judge.

    Returns:
        Rows with `answer` and `prompt`; with `choices` or `function` if the judge reads these, and
        with `given` if the responses are to be completed. The answer of a question with choices is
        a letter, that of a program its tests. An answer that is not text is written as JSON.

    Raises:
        UserError: the file cannot be used; the message has the line.
    """
    rows = _numbered_rows(questions.file)
    with explained(f"questions {questions.file}", ValueError):
        columns = _columns(questions, rows[0][1])
        converted = [_question(questions.judge, columns, line, row) for line, row in rows]
        # All rows or none: a row without a partial response is an error where others have one.
        if any(GIVEN in row for _, row in rows):
            for question, (line, row) in zip(converted, rows, strict=True):
                question[GIVEN] = _text(line, row, GIVEN)
        return converted


def _numbered_rows(path: Path) -> list[tuple[int, Row]]:
    """The rows of a file with their line numbers. Raises UserError for a file without rows."""
    not_text = explained(f"questions {path}", UnicodeDecodeError, instead="save the file as UTF-8")
    with explained(f"questions {path}", OSError, ValueError, csv.Error), not_text:
        rows = list(rows_of(path))
        if not rows:
            raise ValueError("the file holds no questions")
        return rows


def _columns(questions: Questions, row: Row) -> list[str]:
    """The columns that are read: of the prompt, and of the answer and choices, or of the tests."""
    prompt = questions.prompt or _column(row, PROMPTS, "prompt")
    if questions.judge == TESTS:
        return [prompt, *PROGRAM_COLUMNS]
    answer = questions.answer or _column(row, ANSWERS, "answer")
    if questions.judge != CHOICE:
        return [prompt, answer]
    choices = choice_columns(row)
    if not choices:
        raise ValueError("judge=choice needs a column choices with lists, or columns A, B, ...")
    return [prompt, answer, *choices]


def _question(judge: str, columns: list[str], line: int, row: Row) -> Row:
    """A row as OpenCompass gets it. Raises ValueError with the line number."""
    prompt_column, answer_column, *choice_names = columns
    answer = _text(line, row, answer_column)
    prompt = _prompt(line, row, prompt_column)
    # The prompt comes last: OpenCompass replaces column names in braces in this order, so that a
    # "{answer}" in the question's own text stays.
    try:
        if judge == CHOICE:
            choices = choices_of(row, choice_names)
            letter = letter_of(answer, choices)
            return {"answer": letter, "choices": choices, "prompt": with_choices(prompt, choices)}
        if judge == TESTS:
            function = str(row.get("entry_point") or "")
            tests = tests_of(row[TESTS], function)
            return {"answer": tests, "function": function, "prompt": prompt}
    except ValueError as error:
        raise ValueError(f"line {line}: {error}") from error
    return {"answer": answer, "prompt": prompt}


def _column(row: Row, names: tuple[str, ...], kind: str) -> str:
    for name in names:
        if name in row:
            return name
    raise ValueError(
        f"no column of {kind}s among {', '.join(map(str, row))}; name it: NAME=FILE({kind}=COLUMN)"
    )


def rows_of(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a file, each with its line number.

    Args:
        path: JSON lines, a JSON array, CSV or TSV, plain or gzipped.

    Raises:
        UserError or ValueError: a line cannot be read.
    """
    kind = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    # utf-8-sig: spreadsheets write a byte order mark. newline="": cells may hold line ends.
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        delimiter = DELIMITERS.get(kind.suffix.lower())
        if delimiter is not None:
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            for row in reader:
                # The reader's key of surplus cells.
                if None in row:
                    raise ValueError(f"line {reader.line_num}: more cells than the header has")
                yield reader.line_num, row
            return
        text = file.read()
    if kind.suffix.lower() == ".json" and text.lstrip().startswith("["):
        yield from enumerate(_parsed(path, 1, text), 1)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _parsed(path, number, line)


def _parsed(path: Path, number: int, text: str) -> Any:
    """An object or an array of objects. Raises UserError for anything else."""
    # Numbers stay text, for 0.10 must not become 0.1 in a prompt.
    with explained(f"{path}: line {number}", ValueError, instead=FORMAT):
        value = json.loads(text, parse_int=str, parse_float=str)
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                raise ValueError(f"a JSON object was expected, not {text.strip()[:40]}")
    return value


def _text(line: int, row: Row, column: str) -> str:
    value = row.get(column)
    if value is None or value == "":
        raise ValueError(
            f"line {line}: {column} is missing or empty; the columns are {', '.join(map(str, row))}"
        )
    return text_of(value)


def _prompt(line: int, row: Row, column: str) -> str:
    if isinstance(row.get(column), dict | list):
        raise ValueError(
            f"line {line}: {column} must be text, not {str(row[column])[:40]}; of a table of"
            ' pandas\' write orient="records"'
        )
    return _text(line, row, column)


def judge_of(judge: str) -> Judge:
    """The function of a judge: of (response, answer), whether the response is right.

    Args:
        judge: one of BUILT_IN but choice and tests, "FILE.py:FUNCTION" or "MODULE:FUNCTION".

    Raises:
        UserError: the file has no such function.
    """
    if judge == EXACT:
        return lambda response, answer: plain(response) == plain(answer)
    if judge == NUMBER:
        return same_number
    path, _, name = (MATH_JUDGE if judge == MATH else judge).rpartition(":")
    # A function of this project.
    if not path.endswith(".py"):
        module = import_module(path)
        return lambda response, answer: bool(getattr(module, name)(response, answer))
    file = Path(path)
    # Any exception: the file is the user's code, and may even exit.
    with explained(f"{file}:{name} cannot be imported", BaseException):
        function = getattr(import_file(file), name)

    def judged(response: str, answer: str) -> bool:
        # Whatever the user's function raises, also by sys.exit.
        with explained(f"judge {file.name}:{name} fails", BaseException):
            verdict = function(response, answer)
        # A grade between 0 and 1 would count as right.
        is_grade = isinstance(verdict, float) and verdict not in (0.0, 1.0)
        if is_grade or isinstance(verdict, str | tuple | list | dict):
            raise UserError(
                f"judge {file.name}:{name} must say whether a response is right, not {verdict!r}"
            )
        return bool(verdict)

    return judged


def same_number(response: str, answer: str) -> bool:
    """Whether the last numbers of a response and of its answer are equal, as OpenCompass judges
    GSM8K."""
    number = last_number(response)
    gold = last_number(answer)
    if number is None or gold is None:
        return False
    return math.isclose(number, gold, rel_tol=0, abs_tol=1e-6)


def last_number(text: str) -> float | None:
    """The last number of a text, in which commas may group thousands; None if there is none."""
    # The pattern also matches empty text and a lone sign.
    numbers = [match for match in DIGITS.findall(text) if any(sign.isdigit() for sign in match)]
    return float(numbers[-1].replace(",", "")) if numbers else None
