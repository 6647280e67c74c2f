"""Whatever is asked for, configured or read: it is used, or refused in one line; never a traceback from the depths."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from command_lines import resolved_run
from fakes import FixedLogits
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UserError
from model_wrappers import METHODS, decode

NUMBERS = ["0", "1", "-1", "3", "1e-320", "1e400", "nan", "-inf", "0.5", "9" * 30, "x", "", "0x10"]
TEXTS = ["", " ", ",", "nano", "base=", "=", "../..", "\x00", "{}", "[]", "null", "é" * 50, "a=b=c", "gsm8k"]
CALLS = "fef(steps=3) fef(steps=3 fef(steps=) fef(3) fef) fef(steps=[1]) fef(steps='x) llada+dual fef(gen_length=0)"
CALLS += " fef(tau=nan) main(steps=1) x.py:y :llada + () threshold(tau=1e400)"
QUESTIONS = ["a=nowhere.jsonl", "a=b(c=d)", "gsm8k=x.csv", "=(", "a=x.jsonl(judge=y.py:z)", "a=/(prompt=1)"]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 100), st.floats(), st.sampled_from(TEXTS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(TEXTS), inner, max_size=3)),
    max_leaves=6,
)


def refused(error: BaseException) -> bool:
    """Whether an error says in a line of its own what was wrong."""
    return isinstance(error, UserError | ValueError) and bool(str(error).strip())


@contextmanager
def used_or_refused() -> Iterator[None]:
    """What is done meanwhile succeeds, or is refused with what is wrong, by argparse or by an error of its own."""
    try:
        yield
    except SystemExit as error:
        assert error.code == 2
    except Exception as error:
        assert refused(error), repr(error)


@st.composite
def command_line(draw: st.DrawFn) -> list[str]:
    """Options of a run, some of them nonsense."""
    texts = {
        "--suite": ["gsm8k", "gsm8k,math", "lists,lists", "opencompass:", "opencompass:nowhere", *QUESTIONS, *TEXTS],
        "--methods": ["llada", "main", "all", "llada,llada", "fef-2,threshold", *CALLS.split(), *TEXTS],
        "--plugin": ["nowhere.py", "no.such.module", "json:loads", *TEXTS],
        "--model": ["nano", "base=nano,fef=nano-fef", "base=nano,mine=nano", "base=nano,draft=x", "m.json", *TEXTS],
        "--data": ["generated", "generated-dev", "/nowhere", *TEXTS],
        "--dtype": ["float32", "float64", *TEXTS],
        "--device": ["cpu", "cuda", "cuda:99", "meta", "mps", "cpu:0", *TEXTS],
    }
    numbers = ("--limit", "--gen-length", "--block-length", "--temperature", "--seed", "--threads", "--chunk")
    line: list[str] = []
    for name in draw(st.lists(st.sampled_from([*texts, *numbers]), unique=True, max_size=5)):
        line += [f"{name}={draw(st.sampled_from(texts.get(name, NUMBERS)))}"]
    return line


@given(line=command_line())
def test_a_command_line_is_a_configuration_or_refused(line: list[str]) -> None:
    with used_or_refused():
        config = resolved_run(*line).config
        assert config.methods and config.suites


OPTIONS = sorted({each for decoder in METHODS.values() for each in decoder.options.__struct_fields__} | {"role", "x y"})
VALUES = [*NUMBERS, *TEXTS, "true", "null", "[1,2]", "'a'", "'", "'\\ud800'", "-0", "1_0", "0b1", "two-stream", "dual"]


@st.composite
def element(draw: st.DrawFn) -> str:
    """An element of --methods with options, of any decoder or of none, well formed or not."""
    name = draw(st.one_of(st.sampled_from([*METHODS, "main", "nothing"]), st.text(max_size=4)))
    values = st.one_of(st.sampled_from(VALUES), st.text(max_size=6))
    given = draw(st.lists(st.tuples(st.sampled_from(OPTIONS), values), max_size=3))
    cache = draw(st.sampled_from(["", "", "+dual", "+", "+nothing"]))
    arguments = ",".join(f"{option}={value}" for option, value in given)
    return f"{name}{cache}({arguments}){draw(st.sampled_from(['', ')', ';']))}"


@settings(max_examples=4 * settings.default.max_examples if settings.default else 200)
@given(methods=element())
def test_options_of_a_method_are_used_or_refused(methods: str) -> None:
    with used_or_refused():
        config = resolved_run("--suite", "gsm8k", f"--methods={methods}").config
        json.dumps(config.to_json(), ensure_ascii=False).encode()  # what a record can hold


@given(method=st.sampled_from(sorted(METHODS)), options=st.data())
def test_options_of_a_decoder_are_used_or_refused(method: str, options: st.DataObject) -> None:
    names = METHODS[method].options.__struct_fields__
    asked = options.draw(st.dictionaries(st.sampled_from(names), JSON, max_size=3))
    lengths = {"gen_length": options.draw(JSON), "block_length": options.draw(JSON)}
    lengths = {name: value for name, value in lengths.items() if type(value) is not int or value <= 8}
    backbone = FixedLogits(torch.zeros(10, 6))
    with used_or_refused():
        decode(backbone, torch.tensor([1, 2]), method=method, **{"gen_length": 4, **lengths, **asked})
