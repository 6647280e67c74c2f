"""Files of questions, and of prompts and responses: read, judged in four ways, refused with their
line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.suites.questions import Questions, judge_of, last_number, questions_of, read_questions
from harness.suites.registry import SUITES, Exchange, read_exchanges, suites_named
from harness.suites.spec import BOXED
from model_wrappers.options import note

GOOD = [{"question": "2 + 3?", "gold": "5"}, {"question": "2 + 4?", "gold": 6}]
EXPECTED = [{"answer": "5", "prompt": "2 + 3?"}, {"answer": "6", "prompt": "2 + 4?"}]


def written(folder: Path, rows: list[Any] | str, name: str = "q.jsonl") -> Path:
    """A file of rows, or of text."""
    path = folder / name
    text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(element: str) -> list[dict[str, str]]:
    """The questions of an element of --suite."""
    return read_questions(questions_of(element)[1])


@pytest.mark.parametrize(
    "names",
    [
        ("prompt", "answer"),
        ("question", "answer"),
        ("problem", "solution"),
        ("input", "output"),
        ("prompt", "target"),
    ],
)
def test_the_usual_columns_need_no_names(tmp_path: Path, names: tuple[str, str]) -> None:
    rows = [dict(zip(names, (row["question"], row["gold"]), strict=True)) for row in GOOD]
    assert rows_of(f"mine={written(tmp_path, rows)}") == EXPECTED


def test_columns_may_be_named(tmp_path: Path) -> None:
    rows = [{"q": row["question"], "a": row["gold"], "answer": "other"} for row in GOOD]
    assert rows_of(f"mine={written(tmp_path, rows)}(prompt=q,answer=a)") == EXPECTED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.csv", 'prompt,answer\n"2 + 3?",5\n2 + 4?,6\n'),
        ("Q.CSV", "prompt,answer\r\n2 + 3?,5\r\n2 + 4?,6\r\n"),
        ("q.tsv", "prompt\tanswer\n2 + 3?\t5\n2 + 4?\t6\n"),
        ("q.json", json.dumps(GOOD, indent=1)),
        ("q.jsonl", "\ufeff" + "\n\n".join(map(json.dumps, GOOD))),
    ],
)
def test_a_file_may_be_of_any_usual_format(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, text, name)
    assert rows_of(f"mine={path}") == EXPECTED
    packed = path.with_name(f"{name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows_of(f"mine={packed}") == EXPECTED


def test_an_answer_that_is_no_text_is_as_json_has_it(tmp_path: Path) -> None:
    golds = [True, 0.10, ["a", "b"], "25°C"]
    path = written(tmp_path, [{"prompt": "?", "answer": gold} for gold in golds])
    assert [row["answer"] for row in rows_of(f"mine={path}")] == [
        "true",
        "0.1",
        '["a", "b"]',
        "25°C",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no questions"),
        ("{broken\n", "line 1: Expecting property name"),
        ("[1]\n", r"line 1: a JSON object was expected, not \[1\]"),
        ([{"prompt": "a"}], "no column of answers among prompt; name it"),
        ([{"text": "a", "answer": "b"}], "no column of prompts among text, answer; name it"),
        (
            [{"prompt": {"0": "a"}, "answer": {"0": "b"}}],
            'of a table of pandas\' write orient="records"',
        ),
        (
            [{"prompt": "a", "answer": "b"}, {"prompt": None, "answer": "b"}],
            "line 2: prompt is missing or empty",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, content: list[Any] | str, says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        questions_of(f"mine={written(tmp_path, content)}")
    assert "q.jsonl" in str(caught.value) and "\n" not in str(caught.value)


def test_a_response_with_holes_is_read_with_its_question(tmp_path: Path) -> None:
    row = {"prompt": "Where?", "answer": "It is in Rome.", "given": "It is in ___."}
    (read,) = rows_of(f"mine={written(tmp_path, [row])}")
    assert read == {"answer": "It is in Rome.", "prompt": "Where?", "given": "It is in ___."}
    path = written(tmp_path, [{"prompt": "a", "answer": "b"}, row])
    with pytest.raises(UserError, match="line 1: given is missing or empty"):
        questions_of(f"mine={path}")


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ("mine=nowhere.jsonl", "No such file"),
        ("mine=", "write NAME=FILE.jsonl"),
        ("mine=q.jsonl(gold=x)", "unknown argument gold"),
        ("mine=q.jsonl(judge=nearly)", "unknown judge nearly; "),
    ],
)
def test_an_element_that_is_none_is_refused(
    element: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=says):
        questions_of(element)


@pytest.mark.parametrize(
    ("judge", "response", "answer", "right"),
    [
        ("exact", " The\n Cat ", "the cat", True),
        ("exact", "the cats", "the cat", False),
        ("exact", "caf\u00e9", "cafe\u0301", True),
        ("number", "First 3, then 3 + 2 = 5.", "5", True),
        ("number", "It costs $1,250.50", "#### 1250.5", True),
        ("number", "It is -4", "4", False),
        ("number", "5", "5 apples", True),
        ("number", "no number", "5", False),
        ("math", r"so \boxed{\frac12}", r"\frac{1}{2}", True),
        ("math", r"so \boxed{0.5}", r"the solution \boxed{2}", False),
    ],
)
def test_judges(judge: str, response: str, answer: str, right: bool) -> None:
    assert judge_of(judge)(response, answer) is right


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234,567 in all", 1234567),
        ("3, 4", 4),
        ("(-.5)", -0.5),
        ("10-4", 4),
        ("25°C", 25),
        ("5.", 5),
        ("none", None),
    ],
)
def test_the_last_number_of_a_text(text: str, number: float | None) -> None:
    assert last_number(text) == number


def test_an_answer_that_its_judge_calls_wrong_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judge.py").write_text(
        "def right(response, answer): return response == answer.split('A: ')[1]"
    )
    path = written(tmp_path, [{"prompt": "a", "answer": "A: A: "}, {"prompt": "a", "answer": "b"}])
    questions_of(f"mine={path}(judge={tmp_path}/judge.py:right)")
    assert (
        "2 of 2 answers wrong as responses (question 1: 'A: A: ', question 2: 'b')"
        in capsys.readouterr().err
    )


def test_a_judge_that_fails_on_answers_is_named_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judge.py").write_text("def right(response, answer): return answer[9]")
    path = written(tmp_path, [{"prompt": "a", "answer": "b"}])
    questions_of(f"mine={path}(judge={tmp_path}/judge.py:right)")
    warning = capsys.readouterr().err
    assert "1 of 1 answers wrong" in warning
    assert warning.endswith("judge judge.py:right fails: IndexError: string index out of range\n")


def test_an_unknown_argument_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [{"prompt": "a", "answer": "b"}])
    with pytest.raises(UserError, match="unknown argument jugde; did you mean judge"):
        questions_of(f"mine={path}(jugde=number)")


def test_columns_that_are_not_read_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note.cache_clear()
    path = written(
        tmp_path,
        [{"prompt": "a", "answer": "b"}, {"prompt": "a", "answer": "b", "level": 1, "id": 2}],
    )
    for _ in range(2):
        questions_of(f"mine={path}")
    assert capsys.readouterr().err == "mine: the judge exact does not read the columns level, id\n"


JUDGES = """
import re
import numpy as np

def right(response, answer): return answer in response
def number(response, answer): return 1
def numpy(response, answer): return np.bool_(answer in response)
def match(response, answer): return re.search(answer, response)
def pair(response, answer): return False, "no"
def nothing(response, answer): return None
def grade(response, answer): return 0.5
def fails(response, answer): return response[99]
"""


def test_the_truth_of_what_a_judge_returns_counts(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text(JUDGES)
    names = ("right", "number", "numpy", "match", "nothing")
    assert [judge_of(f"{path}:{name}")("it is 5", "5") for name in names] == [
        True,
        True,
        True,
        True,
        False,
    ]
    with pytest.raises(
        UserError, match=r"must say whether a response is right, not \(False, 'no'\)"
    ):
        judge_of(f"{path}:pair")("", "")
    with pytest.raises(UserError, match=r"must say whether a response is right, not 0\.5"):
        judge_of(f"{path}:grade")("", "")
    with pytest.raises(
        UserError, match=r"judge judge\.py:fails fails: IndexError: string index out of range"
    ):
        judge_of(f"{path}:fails")("", "")
    with pytest.raises(UserError, match=r"judge\.py:missing cannot be imported: AttributeError"):
        judge_of(f"{path}:missing")


def test_a_file_is_a_suite_beside_others_and_may_change(registries: None, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert suites_named(f"gsm8k,mine={path}(prompt=question,answer=gold)").keys() == {
        "gsm8k",
        "mine",
    }
    assert suites_named(f"mine={path}(answer=gold,judge=number)").keys() == {"mine"}
    questions = SUITES["mine"].questions
    assert questions is not None and questions.judge == "number"
    with pytest.raises(UserError, match="a suite gsm8k is there already"):
        suites_named(f"gsm8k={path}(answer=gold)")
    with pytest.raises(UserError, match="twice"):
        suites_named(f"mine={path}(answer=gold);mine={path}(answer=gold)")
    for name in ("Mean", "all", "Checkpoint", "speed", "GSM8K"):
        with pytest.raises(
            UserError, match=f"{name}=.*: tables have a column {name.lower()} already"
        ):
            suites_named(f"gsm8k;{name}={path}(answer=gold)")


# Prompts and responses of a file


HELLO = {"prompt": "Say hello.", "response": "hello"}


def lines_file(folder: Path, *rows: object) -> Path:
    path = folder / "train.jsonl"
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def test_prompts_and_responses_are_taken_as_they_are(tmp_path: Path) -> None:
    path = lines_file(tmp_path, HELLO, HELLO, "{never read")
    assert read_exchanges(path, "--data", "mbpp", 2) == [Exchange("Say hello.", "hello")] * 2


@pytest.mark.parametrize(
    ("suite", "line", "question", "answer"),
    [
        (
            "gsm8k",
            {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 24"},
            "How many?",
            "48/2 = 24 clips.\n#### 24",  # without annotations
        ),
        (
            "math",
            {"problem": "Find $x$.", "solution": r"\boxed{1}", "level": "Level 1"},
            "Find $x$.",
            r"\boxed{1}",
        ),
    ],
)
def test_a_suites_own_lines_get_its_prompt(
    tmp_path: Path, suite: str, line: dict[str, str], question: str, answer: str
) -> None:
    assert read_exchanges(lines_file(tmp_path, line), "--data", suite, 1) == [
        Exchange(question + BOXED, answer)
    ]


@pytest.mark.parametrize(
    "bad", ["{broken", {"prompt": "only"}, {"problem": "x", "solution": "of another suite"}]
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, bad: object) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl[,:] line 2: ") as caught:
        read_exchanges(lines_file(tmp_path, HELLO, bad, HELLO), "--data", "gsm8k", 3)
    assert "\n" not in str(caught.value)


def test_a_mark_blank_lines_and_other_line_ends_are_as_in_files_of_questions(
    tmp_path: Path,
) -> None:
    row = json.dumps({"prompt": "a\u2028b", "response": "c\x85d"}, ensure_ascii=False)
    path = tmp_path / "train.jsonl"
    path.write_text(f"\ufeff{row}\n\n{row}\r\n", encoding="utf-8")
    assert read_exchanges(path, "--data", count=2) == [Exchange("a\u2028b", "c\x85d")] * 2
    path.write_text("\n\n{broken", encoding="utf-8")
    with pytest.raises(UserError, match=r"train\.jsonl: line 3: "):
        read_exchanges(path, "--data")


def test_a_file_with_too_few_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 1 lines; at least 2 are needed"):
        read_exchanges(lines_file(tmp_path, HELLO), "--data", "gsm8k", 2)
    with pytest.raises(UserError, match="cannot be read"):
        read_exchanges(tmp_path, "--data", "gsm8k", 1)


def test_training_takes_every_line_of_any_known_format(tmp_path: Path) -> None:
    path = lines_file(
        tmp_path, HELLO, {"question": "a", "answer": "b"}, {"problem": "c", "solution": "d"}
    )
    assert [exchange.response for exchange in read_exchanges(path, "--data")] == ["hello", "b", "d"]


def test_a_file_of_another_encoding_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes("prompt,answer\nWie groß?,Größer\n".encode("latin-1"))
    with pytest.raises(UserError, match="save the file as UTF-8"):
        read_questions(Questions(path))
