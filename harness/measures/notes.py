"""Notes on the numbers of a method and suite: in what its settings differ, what is missing, what
misjudges it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from string import ascii_lowercase
from typing import Any

import pandas as pd
from msgspec import UNSET

from harness.measures.table import (
    LENGTH,
    MOST_DISTURBED,
    REFERENCE,
    measure,
    method_labels,
    other_tokenizers,
    suite_titles,
)
from harness.records.schema import Method, Setting
from harness.records.store import Run, problems_of
from harness.suites.registry import FOREIGN, SUITES, split_named, suite_named

OTHER_TOKENIZER = "another tokenizer: Speed is of seconds a response, Fwd. of calls a response"
SIMILAR = range(90, 111)  # lengths of responses in percent of LLaDA's, as printed, without a note
# of all methods alike, where they have them
END_OPTIONS = (
    "logits_eos_inf",
    "confidence_eos_eot_inf",
)
COMMIT = 7  # digits of a commit in a note


def against_reference(run: Run, reference: str = REFERENCE) -> dict[tuple[str, str], str]:
    """A note for every method and suite whose settings are not those of a method of the run; ""
    where they are.

    And for those whose block model attends in other blocks than its own.
    """
    other = run.config.methods.get(reference, Method())
    whose = "LLaDA's" if reference == REFERENCE else "the reference's"
    found = {}
    for name, method in run.config.methods.items():
        for suite, own in method.suites.items():
            usual = other.suites.get(suite)
            texts = [*_differences(own, usual, problems_of(run.meta, suite), whose)]
            if usual is not None and stops(method, own) != stops(other, usual):
                option = f"{'with' if stops(method, own) else 'without'} stop_at_eos"
                texts.append("ends at EOS" if method.role == "ar" else option)
            found[name, suite] = ", ".join(texts)
    return found


def stops(method: Method, setting: Setting) -> bool:
    """Whether a method's decoding ends at EOS, as an autoregressive one always does."""
    return method.role == "ar" or bool(setting.options.get("stop_at_eos"))


def _differences(
    own: Setting, reference: Setting | None, data: str, whose: str = "LLaDA's"
) -> Iterator[str]:
    if own.tuned_on == data:
        yield "tuned on these problems"
    elif own.tuned_on and data and not (split_named(own.tuned_on) or split_named(data)):
        yield (
            f"tuned on another file ({own.tuned_on[:COMMIT]}), which may have some of these"
            " problems"
        )
    if own.attends is not UNSET:
        yield f"the model attends in blocks of {own.block_length}, not in its own of {own.attends}"
    if reference is None:
        return
    found = []
    if (
        None not in (own.gen_length, reference.gen_length)
        and own.gen_length != reference.gen_length
    ):
        found.append(f"responses of {own.gen_length} tokens, {whose} of {reference.gen_length}")
    blocks = [_block(setting) for setting in (own, reference)]
    if None not in blocks and blocks[0] != blocks[1]:
        found.append(f"{blocks[0]}, {whose} {blocks[1]}")
    if found and own.published is not UNSET:
        repository, _, commit = own.published.partition("@")
        source = f"{repository}@{commit.split()[0][:COMMIT]}" if commit else own.published
        found.append(f"as published ({source})")
    yield from found
    for option in END_OPTIONS:
        here, there = (bool(setting.options.get(option)) for setting in (own, reference))
        if here != there:
            yield f"{'with' if here else 'without'} {option}"


def _block(setting: Setting) -> str | None:
    """The blocks of a response in words; None where the record does not say."""
    if setting.block_length is None:
        return None
    return (
        "full sequence"
        if setting.block_length == setting.gen_length
        else f"blocks of {setting.block_length}"
    )


def with_notes(
    measured: pd.DataFrame, run: Run, settings: Mapping[tuple[str, str], str] | None = None
) -> pd.DataFrame:
    """`measured` with notes, texts or "": accuracy_note, speed_note and forward_note, and
    seconds_note, of seconds that are not beside LLaDA's.

    settings: notes on settings, of `against_reference` if they are not given. accuracy_full and
    speed_full: whether no row has more items.
    """
    by_suite = measured.groupby("suite")
    most = by_suite["items"].transform("max")
    not_scored = run.meta.scoring.get("not_scored") or {}
    reasons = {suite: f"not scored: {reason}" for suite, reason in not_scored.items()}
    settings = against_reference(run) if settings is None else settings

    def settings_note(row: Any) -> str:
        return settings.get((str(row.method), str(row.suite)), "")

    def accuracy_note(row: Any) -> str:
        if row.scored == 0:
            return str(reasons.get(row.suite, "not scored"))
        notes = [f"accuracy over {row.scored} of {row.most} items"] if row.scored < row.most else []
        known = row.suite in SUITES or row.suite.startswith(FOREIGN)
        misjudged = suite_named(row.suite).misjudged(run.config.prompt) if known else ""
        return joined(*notes, misjudged, settings_note(row))

    def forward_note(row: Any) -> str:
        if row.shared_items == 0:
            if REFERENCE not in run.config.methods:
                return (
                    f"no speedup: the run has no method {REFERENCE}; --against compares with"
                    " another"
                )
            return "no speedup: LLaDA has no record of these items"
        short = row.shared_items < row.most and row.method != REFERENCE
        return f"speedups over the {row.shared_items} items shared with LLaDA" if short else ""

    def length_note(row: Any) -> str:
        ratio = getattr(row, LENGTH)
        similar = pd.isna(ratio) or round(100 * ratio) in SIMILAR
        return "" if similar else f"responses are {round(100 * ratio)}% as long as LLaDA's"

    shares = measured.set_index(["method", "suite"])["disturbed_share"].to_dict()
    other = other_tokenizers(run)

    def tokenizer_note(row: Any) -> str:
        return OTHER_TOKENIZER if row.method in other else ""

    rows = list(measured.assign(most=most).itertuples())
    return measured.assign(
        accuracy_note=[accuracy_note(row) for row in rows],
        speed_note=[
            joined(
                forward_note(row),
                _disturbed_note(row, shares),
                tokenizer_note(row),
                length_note(row),
                settings_note(row),
            )
            for row in rows
        ],
        forward_note=[joined(forward_note(row), tokenizer_note(row)) for row in rows],
        seconds_note=[
            joined(
                _disturbed_note(row, shares),
                tokenizer_note(row),
                length_note(row),
                settings_note(row),
            )
            for row in rows
        ],
        accuracy_full=(measured["scored"] == by_suite["scored"].transform("max")),
        speed_full=(measured["shared_items"] == by_suite["shared_items"].transform("max")),
        acceptance_percent=100 * measured["acceptance"],
    )


def _disturbed_note(row: Any, shares: Mapping[Any, float]) -> str:
    """What to say of seconds while other programs had the cores; shares: of them by method and
    suite."""
    for method, possessive in ((str(row.method), "its"), (REFERENCE, "LLaDA's")):
        share = shares.get((method, str(row.suite)), 0.0)
        if share > MOST_DISTURBED:
            percent = f"{100 * share:.0f}%"
            return f"no Speed: other programs had the cores in {percent} of {possessive} seconds"
    if not row.disturbed:
        return ""
    responses = f"{row.disturbed:.0f} of {row.items} responses"
    return f"{responses} were timed while other programs had the cores"


def notes_of(
    run: Run, numbers: Iterable[tuple[str, str, str]], reference: str = REFERENCE
) -> list[str]:
    """The notes of numbers, each (method, suite, note of `with_notes`), in lines: of which methods
    and suites, what."""
    settings = against_reference(run, reference)
    texts = with_notes(measure(run), run, settings).set_index(["method", "suite"]).to_dict("index")
    labels = method_labels(run)
    titles = suite_titles(run)
    found = dict[str, dict[str, None]]()
    for method, suite, name in numbers:
        if text := texts.get((method, suite), {}).get(name):
            found.setdefault(text, {})[f"{labels[method]} on {titles[suite]}"] = None
    return [f"{', '.join(where)}: {text}." for text, where in found.items()]


def joined(*texts: str) -> str:
    """Notes of one cell as one text, each once."""
    return "; ".join(dict.fromkeys(text for text in texts if text))


def lettered(texts: Iterable[str]) -> dict[str, str]:
    """Each distinct text with the letter of its note: a, b, ... z, aa, bb, ..."""
    letters = (letter * times for times in count(1) for letter in ascii_lowercase)
    return dict(zip(dict.fromkeys(texts), letters, strict=False))
