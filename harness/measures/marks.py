"""Marks on numbers: reasons why numbers do not compare, and why Speed is missing.

A mark is a letter with one meaning in every table. Other peculiarities of settings are in the run
card.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
from msgspec import UNSET

from harness.measures.table import (
    DISTURBED,
    LENGTH,
    MOST_DISTURBED,
    REFERENCE,
    other_tokenizers,
)
from harness.records.schema import Method, Setting
from harness.records.store import Run, problems_of
from harness.suites.published import greedy_report

MARKS = {
    "l": "other length: responses of another length than the baseline's",
    "i": "fewer items than other rows have",
    "t": "other tokenizer: Speed is of seconds a response, Fwd. of calls a response",
    "p": "tuned on these problems",
    "g": "greedy: this model's users report far less than its published accuracy at temperature 0",
    "d": "no Speed: other programs had the cores in more than a tenth of the seconds",
    "e": "more than 5% of its responses are empty",
}
# The largest share of empty responses without a mark.
MOST_EMPTY = 0.05
# Lengths of responses without a mark, in percent of LLaDA's, rounded as they are printed.
SIMILAR = (90, 110)


def setting_of(run: Run, method: str, suite: str) -> Setting:
    """A method's recorded settings on a suite; empty ones if there are none."""
    return run.config.methods.get(method, Method()).suites.get(suite, Setting())


def options_of(run: Run, method: str, suite: str) -> dict[str, Any]:
    """A method's options on a suite, and the run's temperature and prompt, by name."""
    config = run.config
    return {
        **setting_of(run, method, suite).options,
        "temperature": config.temperature or 0.0,
        "prompt": "chat" if config.prompt is UNSET else config.prompt,
    }


def has_other_length(run: Run, reference: str, method: str, suite: str) -> bool:
    """Whether a method's gen_length is not the reference's; False if one is not recorded."""
    lengths = {setting_of(run, name, suite).gen_length for name in (method, reference)}
    return None not in lengths and len(lengths) > 1


def is_greedy(run: Run, method: str, suite: str) -> bool:
    """Whether a model is decoded at temperature 0 although its users report that this fails (see
    `published.greedy_report`)."""
    config = run.config
    decoder = config.methods.get(method, Method())
    model = config.models.get(decoder.role, {}).get(suite, "")
    return bool(greedy_report(model, suite, decoder.method, config.temperature or 0.0))


def with_marks(frame: pd.DataFrame, run: Run, reference: str = REFERENCE) -> pd.DataFrame:
    """The rows of one table with the letters of MARKS on their numbers.

    Args:
        frame: rows of `measure`.
        run: as read.
        reference: the method that others are compared with.

    Returns:
        `frame` with accuracy_marks, speed_marks and forward_marks, texts of letters or "", and
        accuracy_full and speed_full: whether no row of the suite has more items.
    """

    def marked(test: Callable[[str, str], bool]) -> pd.Series:
        flags = [test(*pair) for pair in zip(frame["method"], frame["suite"], strict=True)]
        return pd.Series(flags, frame.index, dtype=bool)

    by_suite = frame.groupby("suite")
    accuracy_full = frame["scored"] == by_suite["scored"].transform("max")
    speed_full = frame["shared_items"] == by_suite["shared_items"].transform("max")
    # Rounded as it is printed, so that no 110% has a mark and another has none.
    percent = (100 * frame[LENGTH]).round()
    set_length = marked(partial(has_other_length, run, reference))
    tuned = marked(
        lambda method, suite: (
            setting_of(run, method, suite).tuned_on == problems_of(run.meta, suite)
        )
    )
    # Speed depends on the length that responses have, accuracy on the length that they may have.
    other_length = set_length | ~(percent.between(*SIMILAR) | percent.isna())
    empty = frame["empty"] > MOST_EMPTY
    tokenizer = frame["method"].isin(other_tokenizers(run))
    greedy = marked(partial(is_greedy, run))
    flags_of = {
        "accuracy_marks": {
            "l": set_length,
            "i": ~accuracy_full,
            "p": tuned,
            "g": greedy,
            "e": empty,
        },
        "speed_marks": {
            "l": other_length,
            "i": ~speed_full,
            "t": tokenizer,
            "p": tuned,
            "d": frame[DISTURBED] > MOST_DISTURBED,
        },
        "forward_marks": {"i": ~speed_full, "t": tokenizer},
    }
    texts = {name: _letters(flags, frame.index) for name, flags in flags_of.items()}
    return frame.assign(**texts, accuracy_full=accuracy_full, speed_full=speed_full)


def _letters(flags: dict[str, pd.Series], index: pd.Index) -> pd.Series:
    """For each row the letters whose flag is set, in the order of `flags`."""
    text = pd.Series("", index)
    for letter, flag in flags.items():
        text = text.where(~flag, text + letter)
    return text


def union(*marks: str) -> str:
    """The letters of several texts, each once, in the order of MARKS."""
    return "".join(letter for letter in MARKS if any(letter in text for text in marks))
