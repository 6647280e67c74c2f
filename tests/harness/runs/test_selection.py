"""Methods of a command line: how lists are cut and read; keys and labels, options and caches, what
is refused."""

from typing import Any, Literal

import pytest
from command_lines import config_of
from hypothesis import given
from hypothesis import strategies as st

from harness.elements import alternatives, elements_of, format_call, parse_call
from harness.errors import UserError
from harness.methods.presets import GROUPS
from harness.runs.selection import methods_named
from model_wrappers import register
from model_wrappers.options import Options
from model_wrappers.request import Request


class CachedOptions(Options, frozen=True, kw_only=True):
    """Those of a decoder with a cache."""

    cache: Literal["none", "prefix", "dual"] = "none"
    k: int = 1


def decode_cached(request: Request, options: CachedOptions) -> None:
    """Nothing."""


@pytest.fixture
def cached(registries: None) -> None:
    """A decoder with a cache."""
    register("cached", label="Cached")(decode_cached)


def one(text: str) -> tuple[str, str, dict[str, Any]]:
    """Key, label and what was asked of one method."""
    ((key, preset),) = methods_named(text).items()
    return key, preset.row, dict(preset.given)


@pytest.mark.parametrize(
    ("text", "key", "label"),
    [
        ("llada", "llada", "LLaDA"),
        ("fef(steps=3,window=12)", "fef(steps=3,window=12)", "FeF-DLLM (steps=3, window=12)"),
        ("fef(window=12, steps=3)", "fef(steps=3,window=12)", "FeF-DLLM (steps=3, window=12)"),
        ("fef-2(window=12)", "fef-2(window=12)", "FeF-DLLM (step=2, window=12)"),
        ("fef-2(steps=3)", "fef-2(steps=3)", "FeF-DLLM (steps=3)"),
        ("threshold(tau=1)", "threshold(tau=1.0)", "Threshold (tau=1.0)"),
        ("fef(speculative=False)", "fef(speculative=false)", "FeF-DLLM (speculative=false)"),
        ("llada(remasking='random')", "llada(remasking=random)", "LLaDA (remasking=random)"),
        ("fef", "fef", "FeF-DLLM"),
        (
            "threshold(gen_length=32,block_length=8)",
            "threshold(block_length=8,gen_length=32)",
            None,
        ),
    ],
)
def test_the_key_is_canonical_and_the_label_says_what_was_set(
    text: str, key: str, label: str | None
) -> None:
    found = one(text)
    assert found[0] == key and label in (None, found[1])
    assert one(key)[:2] == found[:2]  # the key stands for the same method


@pytest.mark.parametrize(
    ("text", "key", "label", "asked"),
    [
        ("cached+dual", "cached+dual", "Cached, dual cache", {"cache": "dual"}),
        (
            "cached+prefix(k=2)",
            "cached+prefix(k=2)",
            "Cached, prefix cache (k=2)",
            {"cache": "prefix", "k": 2},
        ),
        ("cached(cache=dual)", "cached+dual", "Cached, dual cache", {"cache": "dual"}),
    ],
)
def test_a_cache_is_an_option(
    cached: None, text: str, key: str, label: str, asked: dict[str, Any]
) -> None:
    assert one(text) == (key, label, asked)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fef-3", "fef-3: unknown method; did you mean fef-[24] or fef-[124]"),
        ("fef(steps=0)", "option steps=0 for fef must be a whole number in .1, 1000."),
        (
            "fef(step=3)",
            r"unknown option 'step' for fef; did you mean steps\?; valid: steps",
        ),
        ("treshold", r"treshold: unknown method; did you mean threshold\?$"),
        ("gsm8k-hard", "gsm8k-hard: unknown method; gsm8k-hard is a suite, for --suite$"),
        ("fef(steps=3), fef(steps=3)", r"twice: fef\(steps=3\)"),
        ("main(steps=3)", "main is a group"),
        ("fef+dual", "unknown option 'cache' for fef"),
        ("llada+slow", "option cache='slow' for llada must be"),
        ("llada(gen_length=0)", "gen_length=0 must be a whole number of at least 1"),
        ("fef(draft=nano)", "draft is no option of a method; with --model base=...,draft=..."),
        ("fef(reuse_drafts=true,verify=two-stream)", "reuse_drafts needs verify='full'"),
        (" , ", "names no method"),
    ],
)
def test_what_is_no_method_is_refused(text: str, says: str) -> None:
    with pytest.raises((UserError, ValueError), match=says) as caught:
        methods_named(text)
    assert "\n" not in str(caught.value)


def test_groups_and_single_methods_share_rows() -> None:
    named = methods_named("main, llada(steps=12), llada")
    assert list(named) == [*GROUPS["main"], "llada(steps=12)"]


def test_what_was_asked_goes_before_all_else() -> None:
    line = [
        "--suite",
        "gsm8k",
        "--methods",
        "llada, threshold(gen_length=24,block_length=8), llada(steps=12)",
    ]
    methods = config_of(*line, "--gen-length", "48", "--block-length", "16")["methods"]
    settings = {name: method["suites"]["gsm8k"] for name, method in methods.items()}
    assert settings["llada"] == {"gen_length": 48, "block_length": 16, "options": {"steps": 48}}
    assert settings["threshold(block_length=8,gen_length=24)"] == {
        "gen_length": 24,
        "block_length": 8,
        "options": {},
    }
    assert settings["llada(steps=12)"]["options"] == {"steps": 12}


def test_a_decoder_by_name_has_the_role_of_its_presets() -> None:
    methods = config_of("--methods", "fef(steps=2), fef(verify=two-stream)")["methods"]
    # nano has one checkpoint for both
    assert [method["role"] for method in methods.values()] == [
        "fef",
        "fef",
    ]
    untrained = config_of("--model", "base=nano", "--methods", "fef(steps=2)")["methods"][
        "fef(steps=2)"
    ]
    assert untrained["label"] == "FeF-DLLM w/o train (steps=2)" and untrained["role"] == "base"


def test_equal_labels_are_made_distinct() -> None:
    methods = config_of("--model", "base=nano", "--methods", "fef-2, fef-2-untrained")["methods"]
    labels = [method["label"] for method in methods.values()]
    assert labels == [
        "FeF-DLLM w/o train (step=2)",
        "FeF-DLLM w/o train (step=2) [fef-2-untrained]",
    ]


# Lists with arguments: how they are cut, read and written
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("llada,llada/2,fef-2", ["llada", "llada/2", "fef-2"]),
        (
            "llada; fef(steps=3,window=12); ./mine.py:mine(k=2)",
            ["llada", "fef(steps=3,window=12)", "./mine.py:mine(k=2)"],
        ),
        (" a ,, b ;", ["a", "b"]),
        ('a(b="x,;)y"),c', ['a(b="x,;)y")', "c"]),
        ("", []),
    ],
)
def test_elements_are_cut_outside_brackets(text: str, elements: list[str]) -> None:
    assert elements_of(text) == elements


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("a(b=1|2.5)", ["a(b=1)", "a(b=2.5)"]),
        ("p:a+dual(b=1|2,c=x|y)", [f"p:a+dual(b={b},c={c})" for b in "12" for c in "xy"]),
        ('a(b="x|y", c=[1,2])', ['a(b="x|y",c=[1,2])']),
    ],
)
def test_several_values_of_an_argument_are_several_elements(text: str, elements: list[str]) -> None:
    assert alternatives(text) == elements


@pytest.mark.parametrize("text", ["a(b=1", "a)b", "a(b=[1)", "a(b='x)"])
def test_brackets_and_quotes_that_do_not_match_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"closed|closes"):
        elements_of(text)


@pytest.mark.parametrize(
    ("text", "head", "arguments"),
    [
        ("fef(steps=3, window = 12)", "fef", {"steps": 3, "window": 12}),
        ("a(b=true,c=False,d=null,e=None)", "a", {"b": True, "c": False, "d": None, "e": None}),
        ("a(b=0.9,c=1e-3,d=-2)", "a", {"b": 0.9, "c": 1e-3, "d": -2}),
        (
            """a(b='x, y',c="z",d=./q.json,e=[1, 2])""",
            "a",
            {"b": "x, y", "c": "z", "d": "./q.json", "e": [1, 2]},
        ),
        ("mine=./q (1).jsonl(answer=gold)", "mine=./q (1).jsonl", {"answer": "gold"}),
    ],
)
def test_arguments_are_read_as_literals_or_bare_text(
    text: str, head: str, arguments: dict[str, Any]
) -> None:
    assert parse_call(text) == (head, arguments)


@pytest.mark.parametrize("text", ["a(3)", "a(b)", "a(b=)", "a(=1)", "a(b c=1)", "a(b=1,b=2)"])
def test_what_is_no_argument_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"no argument|twice"):
        parse_call(text)


@given(arguments=st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES))
def test_an_element_is_read_as_it_was_written(arguments: dict[str, Any]) -> None:
    text = format_call("x", arguments)
    head, read = parse_call(text)
    assert elements_of(text) == [text] and (head, read) == ("x", arguments)
    assert [type(read[name]) for name in arguments] == list(map(type, arguments.values()))
