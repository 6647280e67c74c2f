"""Files of questions, and of prompts and responses: read, judged in three ways, refused with their line."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.suites.numbers import last_number, only_number
from harness.suites.questions import Questions, judge_of, questions_of, read_questions
from harness.suites.registry import SUITES, Exchange, read_exchanges, suites_named
from harness.suites.spec import BOXED

GOOD = [{"question": "2 + 3?", "gold": "5"}, {"question": "2 + 4?", "gold": 6}]


def written(folder: Path, rows: list[Any] | str, name: str = "q.jsonl") -> Path:
    """A file of rows, or of text."""
    path = folder / name
    path.write_text(
        rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def rows_of(element: str) -> list[dict[str, str]]:
    """The questions of an element of --suite."""
    return read_questions(questions_of(element)[1])


def test_columns_are_named_or_the_usual_ones(tmp_path: Path) -> None:
    expected = [{"answer": "5", "prompt": "2 + 3?"}, {"answer": "6", "prompt": "2 + 4?"}]
    path = written(tmp_path, GOOD)
    assert rows_of(f"mine={path}(answer=gold)") == rows_of(f"mine={path}(prompt=question,answer=gold)") == expected
    usual = written(tmp_path, [{"prompt": row["question"], "answer": row["gold"]} for row in GOOD], "usual.jsonl")
    assert rows_of(f"mine={usual}") == expected
    for name in ("q.csv", "Q.CSV"):
        table = written(tmp_path, 'prompt,answer\n"2 + 3?",5\n2 + 4?,6\n', name)
        assert rows_of(f"mine={table}(judge=number)") == expected


def test_signs_that_some_take_for_line_ends_stay(tmp_path: Path) -> None:
    row = {"prompt": "one\u2028two\x85three", "answer": "5"}
    path = written(tmp_path, json.dumps(row, ensure_ascii=False) + "\n\n")
    assert rows_of(f"mine={path}") == [{"answer": "5", "prompt": row["prompt"]}]


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        ("", "", "holds no questions"),
        ("\n\n", "", "holds no questions"),
        ("{broken\n", "", "line 1: Expecting property name"),
        ("[1]\n", "", r"line 1: a JSON object was expected, not \[1\]"),
        ('{"prompt": ' + "[" * 9000 + "]" * 9000 + "}", "", "line 1: "),
        ([{"prompt": "a", "answer": "5 apples"}], "judge=number", "line 1: the answer '5 apples' is not one number"),
        ([{"prompt": "a", "question": "b", "answer": "c"}], "", "has columns prompt and question: name the one to ask"),
        ([{"prompt": "a"}], "", "line 1: answer must be text, not None; the columns are prompt; name them"),
        ([{"text": "a", "answer": "b"}], "", "line 1: prompt must be text, not None; the columns are text, answer"),
        (
            [{"prompt": "a", "answer": "b"}, {"prompt": None, "answer": "b"}],
            "",
            "line 2: prompt must be text, not None",
        ),
        ('{"prompt": "a", "answer": "5", "answer": "6"}', "", "line 1: the name answer is there twice"),
        ([{"prompt": " ", "answer": "b"}], "", "line 1: prompt must be text, not ' '"),
        ([{"prompt": "a", "answer": ["b"]}], "", r"line 1: answer must be text, not \['b'\]"),
        ([{"prompt": "a", "answer": True}], "", "line 1: answer must be text, not True"),
        ('{"prompt": "a", "answer": NaN}', "", "line 1: "),
        ('[{"prompt": "a"},\n{"prompt": "b"}]', "", "a line is one JSON object; CSV is in a file named .csv"),
        (
            [{"prompt": "a", "answer": "b"}],
            "judge=number",
            "line 1: the answer 'b' is not one number; judge=number reads",
        ),
        *(
            ([{"prompt": "a", "answer": gold}], "judge=number", r"line 1: the answer '.*' is not one number")
            for gold in ("1.234,56", "9 500", "3:2", "2024-05-03", "1 1/2", "10\u00b2", "0x10", "1/0", "12:30")
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, content: list[Any] | str, arguments: str, says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        questions_of(f"mine={written(tmp_path, content)}({arguments})")
    assert "q.jsonl" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["prompt,answer\na,b,c\n", 'prompt,answer\n"a', "prompt,answer\na\n"])
def test_a_damaged_table_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"q\.csv"):
        questions_of(f"mine={written(tmp_path, content, 'q.csv')}")


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ("mine=nowhere.jsonl", "No such file"),
        ("mine=loop.jsonl", "symbolic links"),
        ("mine=q.jsonl(judge=loop.py:right)", "cannot be imported"),
        ("mine=", "write NAME=FILE.jsonl"),
        ("=q.jsonl", "write NAME=FILE.jsonl"),
        ("my mine=q.jsonl", "write NAME=FILE.jsonl"),
        ("a/b=q.jsonl", "write NAME=FILE.jsonl"),
        ("mine=q.jsonl(gold=x)", "write NAME=FILE.jsonl"),
        ("mine=q.jsonl(judge=nearly)", "unknown judge nearly; "),
        ("mine=q.jsonl(judge=nowhere.py:right)", "cannot be imported: No such file"),
    ],
)
def test_an_element_that_is_none_is_refused(
    element: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("loop.jsonl", "loop.py"):
        Path(name).symlink_to(name)
    with pytest.raises(UserError, match=says):
        questions_of(element)


@pytest.mark.parametrize(
    ("judge", "response", "answer", "right"),
    [
        ("exact", " The\n Cat ", "the cat", True),
        ("exact", "the cats", "the cat", False),
        ("exact", "\u0390", "\u03aa\u0301", True),
        ("exact", "STRASSE", "Straße", True),
        ("number", "First 3, then 3 + 2 = 5.", "5", True),
        ("number", "It costs $1,250.50", "#### 1250.5", True),
        ("number", "It is -4", "4", False),
        ("number", "10-4", "4", True),
        ("number", "no number", "5", False),
        ("number", "9" * 5000, "9" * 5000, True),
    ],
)
def test_judges(judge: str, response: str, answer: str, right: bool) -> None:
    assert judge_of(judge)(response, answer) is right


NUMBERS = {
    **{"1,234,567 in all": 1234567, "a 1.5x": 1.5, "(-3)": -3, "3, 4": 4, "-.5": -0.5, "7/4 cups": 1.75, "1e22": 1e22},
    **{
        "\u22127": -7,
        "½": 0.5,
        "\uff17\uff10": 70,
        r"\boxed{70{,}000}": 70000,
        r"\frac{3}{4}": 0.75,
        "It is 5.": 5,
        "3 eggs": 3,
    },
    **{
        "-$5": -5,
        "- \\$5": -5,
        "\u20135": -5,
        "1\u202f234": 1234,
        "1 / 2": 0.5,
        "6 ÷ 3 = 2": 2,
        "1'234": 1234,
        r"\cfrac{ -1 }{2}": -0.5,
        r"1\,000": 1000,
        "is minus 5": -5,
        "**12** 3": 3,
        r"\frac12": 0.5,
        "5\u20137": 7,
        "20 / 4 = 5": 5,
    },
    **{"x = - 7": -7, r"\boxed{- 7}": -7, "foo-7": 7, r"\frac{1}2": 0.5, r"{3 \over 4}": 0.75, "5\n3/4": 0.75},
    **{"12\u200b5": 125, "5\u2007000": 5000, "1\u22152": 0.5, r"\nicefrac{1}{2}": 0.5, "Minus 5": -5, "negative 5": -5},
    **{
        "10-3=7": 7,
        "**70,000**": 70000,
        "v2.0 has 3": 3,
        "It is 5 in v2.0": 5,
        "It is 42!": 42,
        "5\nB is next": 5,
        "300 K": 300,
        "#### 1e-05": 1e-5,
    },
}


def test_numbers_are_read_as_what_they_are() -> None:
    found = {text: last_number(text) for text in NUMBERS}
    assert {text: number and float(number.value) for text, number in found.items()} == NUMBERS


NONE = ["1,2345", "1.234,56", "3:2", "2024-05-03", "10^2", "10²", "1/2/3", "0x10", "none", "3½", "3 ½", "2\\frac{1}{2}"]
NONE += [
    "10^{5}",
    "10^{-5}",
    "1 234",
    "101₂",
    "√2",
    "2π",
    r"\sqrt{2}",
    r"2\pi",
    "5k",
    "5G",
    "5T",
    "1.5 million",
    "2 dozen",
    "2 Dozens",
    "5 squared",
    "1B",
    "10⁻⁵",
]
NONE += ["5:-.5", "(5,-7)", "5...7", "is.5", "Rs.500", "5_{2}", "5万", r"\frac{5}{-3}", r"\frac{5}{x}", r"\frac{1}{2"]
NONE += [r"\frac{\sqrt{2}}{3}", r"\sqrt[3]{8}", r"0.\overline{3}"]
NONE += ["2 Dozens", "5 squared", "1B"]
NONE += ["2 1/2", "5①", "10**5", "±5", "1.5M", r"\frac{x}{2}", r"3\times 10^{5}"]


BEFORE = [
    "",
    "Answer:",
    "the answer is...",
    "= $",
    "(",
    "**",
    "5, then,",
    "5;",
    "5\n",
    "x=",
    r"\boxed{",
    r"\approx",
    "是",
]


@pytest.mark.parametrize(
    "gold",
    [
        *(
            "- 5",
            "-US$5",
            "-₩5",
            "-(5)",
            "(1,234)",
            "1234-",
            "5-Mar",
            "1 Million",
            "1 K",
            "$1B",
        ),
        *("5 Mio", "5 dozens", "5 and a half", "3 quarters", "5 squared", "5!", "5‰", "√(16)", "5 apples", "= 5", "5x"),
    ],
)
def test_a_reference_with_more_than_a_number_is_none(gold: str) -> None:
    assert only_number(gold) is None


@pytest.mark.parametrize(
    "gold", ["5", " 5.", "$5", "-$5", "+5", r"$\frac{3}{4}$", "1,234.50", "12%", "so 4 + 1 #### 5"]
)
def test_a_reference_that_is_a_number_is_read(gold: str) -> None:
    assert only_number(gold) is not None


AFTER = ("", ".", ",", "...", ")", "}$", "**", " km", "\n", r"\text{ cm}", "。", "</b>", " - done")
ALONE = {"7": 7, "-7": -7, "\u22127": -7, "-1,234.5": -1234.5, "1e-5": 1e-5, "-3/4": -0.75, r"\frac{3}{4}": 0.75}


@pytest.mark.parametrize("before", BEFORE)
def test_a_number_is_the_same_whatever_stands_before_and_after_it(before: str) -> None:
    for text, after in product(ALONE, AFTER):
        number = last_number(before + text + after)
        assert number is not None and float(number.value) == ALONE[text], before + text + after


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number_in_full_is_none(text: str) -> None:
    assert last_number(f"5, and then {text}") is None or text == "none"
    assert only_number(text) is None


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("12.5%", "12.5 percent", True),
        ("0.5", "50%", True),
        ("50%", "50", True),
        ("50%", "0.5", True),
        ("5%", "50", False),
        ("12%", r"$12\%$", True),
    ],
)
def test_a_percent_sign_may_be_left_out(gold: str, response: str, right: bool) -> None:
    assert judge_of("number")(response, gold) is right


def test_numbers_and_texts_of_json_are_kept_as_written(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "a", "answer": 0.10}\n{"prompt": "b", "answer": 1e-7}\n')
    assert [row["answer"] for row in read_questions(Questions(path))] == ["0.10", "1e-7"]
    assert judge_of("exact")("caf\u00e9", "cafe\u0301")


def test_an_answer_that_its_own_judge_refuses_is_refused_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text("def right(response, answer): return response == answer.removeprefix('A: ')")
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "a", "answer": "A: b"}\n')
    with pytest.raises(UserError, match=r"question 2: by judge=.*its own answer 'A: b' is not a right"):
        questions_of(f"mine={path}(judge={tmp_path}/judge.py:right)")


JUDGES = """
from dataclasses import dataclass

def right(response, answer): return answer in response
def fails(response, answer): return response[99]
def number(response, answer): return 1
def ends(response, answer): raise GeneratorExit("enough")
"""


def test_a_judge_may_be_a_function(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text(JUDGES)
    assert judge_of(f"{path}:right")("it is 5", "5") is True
    with pytest.raises(UserError, match=r"judge judge\.py:fails fails: IndexError: string index out of range"):
        judge_of(f"{path}:fails")("", "")
    with pytest.raises(UserError, match=r"judge judge\.py:ends fails: GeneratorExit: enough"):
        judge_of(f"{path}:ends")("", "")
    with pytest.raises(UserError, match=r"judge judge\.py:number must return True or False, not 1"):
        judge_of(f"{path}:number")("", "")
    with pytest.raises(UserError, match=r"judge\.py:nothing cannot be imported: AttributeError"):
        judge_of(f"{path}:nothing")
    path.write_text("x = \n")
    with pytest.raises(UserError, match=r"judge\.py:right cannot be imported: SyntaxError"):
        judge_of(f"{path}:right")


def test_a_file_is_a_suite_beside_others_and_may_change(registries: None, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert suites_named(f"gsm8k,mine={path}(prompt=question,answer=gold)").keys() == {"gsm8k", "mine"}
    assert suites_named(f"mine={path}(answer=gold,judge=number)").keys() == {"mine"}
    questions = SUITES["mine"].questions
    assert questions is not None and questions.judge == "number"
    with pytest.raises(UserError, match="a suite gsm8k is there already"):
        suites_named(f"gsm8k={path}(answer=gold)")
    with pytest.raises(UserError, match="twice"):
        suites_named(f"mine={path}(answer=gold);mine={path}(answer=gold)")
    for name in ("Mean", "all", "Checkpoint", "speed", "GSM8K"):
        with pytest.raises(UserError, match=f"{name}=.*: tables have a column {name.lower()} already"):
            suites_named(f"gsm8k;{name}={path}(answer=gold)")


# Prompts and responses of a file


HELLO = {"prompt": "Say hello.", "response": "hello"}


def lines_file(folder: Path, *rows: object) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_prompts_and_responses_are_taken_as_they_are(tmp_path: Path) -> None:
    path = lines_file(tmp_path, HELLO, HELLO, "{never read")
    assert read_exchanges(path, "--data", "mbpp", 2) == [Exchange("Say hello.", "hello")] * 2


def test_a_device_is_no_file_of_questions() -> None:
    with pytest.raises(UserError, match="questions /dev/zero: it is no plain file"):
        questions_of("mine=/dev/zero(judge=number)")


def test_a_file_that_memory_may_not_hold_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "q.jsonl").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError, match="it has more than 512 MiB"):
        questions_of(f"mine={tmp_path}/q.jsonl")


def test_two_csv_files_that_were_joined_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "prompt,answer\na,b\nprompt,answer\nc,d\n", "q.csv")
    with pytest.raises(UserError, match="line 3 is the header again: two files were joined"):
        questions_of(f"mine={path}")


@pytest.mark.parametrize(
    ("suite", "line", "question", "answer"),
    [
        (
            "gsm8k",
            {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 24"},
            "How many?",
            "48/2 = 24 clips.\n#### 24",  # without annotations
        ),
        ("math", {"problem": "Find $x$.", "solution": r"\boxed{1}", "level": "Level 1"}, "Find $x$.", r"\boxed{1}"),
    ],
)
def test_a_suites_own_lines_get_its_prompt(
    tmp_path: Path, suite: str, line: dict[str, str], question: str, answer: str
) -> None:
    assert read_exchanges(lines_file(tmp_path, line), "--data", suite, 1) == [Exchange(question + BOXED, answer)]


@pytest.mark.parametrize(
    "bad",
    [
        "{broken",
        "",
        "[]",
        "null",
        {"prompt": "only"},
        {"prompt": "x", "response": " "},
        {"prompt": "x", "response": 3},
        {"question": "x"},
        {"problem": "x", "solution": "of another suite"},
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, bad: object) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl, line 2: ") as caught:
        read_exchanges(lines_file(tmp_path, HELLO, bad, HELLO), "--data", "gsm8k", 3)
    assert "\n" not in str(caught.value)


def test_what_a_line_must_hold_is_named(tmp_path: Path) -> None:
    path = lines_file(tmp_path, {})
    with pytest.raises(UserError, match='"prompt" and "response" or "question" and "answer"'):
        read_exchanges(path, "--data", "gsm8k", 1)


def test_a_file_with_too_few_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 1 lines; at least 2 are needed"):
        read_exchanges(lines_file(tmp_path, HELLO), "--data", "gsm8k", 2)
    with pytest.raises(UserError, match="cannot be read"):
        read_exchanges(tmp_path, "--data", "gsm8k", 1)


def test_training_takes_every_line_of_any_known_format(tmp_path: Path) -> None:
    path = lines_file(tmp_path, HELLO, {"question": "a", "answer": "b"}, {"problem": "c", "solution": "d"})
    assert [exchange.response for exchange in read_exchanges(path, "--data")] == ["hello", "b", "d"]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_of_another_encoding_is_named_with_what_to_do(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes("prompt,answer\nWie groß?,Größer\n".encode(encoding))
    with pytest.raises(UserError, match="save the file as UTF-8"):
        read_questions(Questions(path))
