"""The runs of a report as one book, and its data files for a page that is opened from disk.

A book numbers all series (pairs of a run and a method) and all suites. Data files are scripts of
one call each, because a browser lets no page from disk read other files. `rows` has a few numbers
of every item; texts and traces, which are large, are in compressed files of some hundred responses,
loaded when a reader opens one of them.
"""

import base64
import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.measures.table import REFERENCE, floats_of, method_labels, suite_titles
from harness.records.files import TraceRecord, each_frame, read_prompts
from harness.records.store import Run
from harness.suites.registry import SUITES, drawn, split_named

RESPONSES = 100  # about how many a data file holds
# Costs that older records lack, with their decimals; a page has those that some response has.
COSTS = {"draw_seconds": 4, "flop": 0, "peak_bytes": 0, "joules": 2}


@dataclass(frozen=True)
class Series:
    """A method of a run.

    Attributes:
        run: the run's number in the book.
        method: its name in the run.
        name: as pages show it.
        reference: the number of LLaDA's series in the same run, or None.
    """

    run: int
    method: str
    name: str
    reference: int | None


@dataclass(frozen=True)
class ShownSuite:
    """A suite with certain problems; under one name runs may have different problems, which then
    count as different suites."""

    key: str
    title: str


Suites = dict[tuple[str, str], ShownSuite]  # by key and the SHA-256 of the problems


@dataclass(frozen=True)
class Book:
    """Runs that are shown together.

    Attributes:
        runs, names: in the order of the command line.
        series, suites: of all runs; a number of either is its index here.
        suite_numbers: for every run, the number of a suite by its key.
    """

    runs: tuple[Run, ...]
    names: tuple[str, ...]
    series: tuple[Series, ...]
    suites: tuple[ShownSuite, ...]
    suite_numbers: tuple[dict[str, int], ...]

    @cached_property
    def series_numbers(self) -> dict[tuple[int, str], int]:
        """The number of each series by run and method."""
        return {(series.run, series.method): number for number, series in enumerate(self.series)}

    @property
    def items_a_file(self) -> int:
        """How many items of a suite share a data file."""
        return max(1, RESPONSES // len(self.series))

    @cached_property
    def items(self) -> pd.DataFrame:
        """All items of all runs, sorted by suite, item and series: the records' columns, with the
        numbers of `series` and `suite`."""
        frames = [self.numbered(number, run.items) for number, run in enumerate(self.runs)]
        items = pd.concat(frames, ignore_index=True)
        return items.sort_values(["suite", "item", "series"], kind="stable", ignore_index=True)

    def numbered(self, run: int, frame: pd.DataFrame) -> pd.DataFrame:
        """A run's items or windows, with the numbers of `series` and `suite` in place of names."""
        if frame.empty:
            return pd.DataFrame(columns=["series", "suite", "item"])
        series = [self.series_numbers[run, method] for method in frame["method"]]
        suites = frame["suite"].map(self.suite_numbers[run])
        return frame.drop(columns="method").assign(series=series, suite=suites)


def open_book(runs: Sequence[Run]) -> Book:
    """The book of runs, in their order. Raises UserError for a run without items."""
    for run in runs:
        if run.items.empty:
            raise UserError(f"{run.folder} holds no items yet; there is nothing to show")
    names = _distinct([run.meta.name or run.folder.name for run in runs])
    series: list[Series] = []
    suites: Suites = {}
    numbers = []
    for number, run in enumerate(runs):
        # A run that is not finished may have methods without items, which are not shown.
        present = set(run.items["method"].unique())
        labels = {name: label for name, label in method_labels(run).items() if name in present}
        reference = len(series) + list(labels).index(REFERENCE) if REFERENCE in labels else None
        for method, label in labels.items():
            name = label if len(runs) == 1 else f"{label} ({names[number]})"
            series.append(Series(number, method, name, reference))
        numbers.append(_number_suites(run, names[number], suites))
    return Book(tuple(runs), tuple(names), tuple(series), tuple(suites.values()), tuple(numbers))


def _number_suites(run: Run, name: str, suites: Suites) -> dict[str, int]:
    """The number of each suite of a run; suites that no run before has are added to `suites`."""
    numbers = {}
    present = set(run.items["suite"].unique())
    for key, title in suite_titles(run).items():
        if key not in present:
            continue
        identity = (key, str(run.meta.files.get(key, {}).get("sha256", "")))
        if identity not in suites:
            name_taken = any(suite.key == key for suite in suites.values())
            suites[identity] = ShownSuite(key, f"{title} ({name})" if name_taken else title)
        # A suite's number is its place in `suites`.
        numbers[key] = list(suites).index(identity)
    return numbers


def _distinct(names: list[str]) -> list[str]:
    """The names, with #2, #3, ... after the second and later ones of several equal names."""
    numbers = [names[: index + 1].count(name) for index, name in enumerate(names)]
    pairs = zip(names, numbers, strict=True)
    return [name if number == 1 else f"{name} #{number}" for name, number in pairs]


def json_column(frame: pd.DataFrame, name: str, digits: int = 0) -> list[Any]:
    """A column as a list for JSON, rounded to `digits` decimals (0: integers); None for NaN."""
    rounded = np.round(floats_of(frame, name), digits)
    kind = int if digits == 0 else float
    return [None if np.isnan(value) else kind(value) for value in rounded]


PROB_PARTS = 10_000  # probabilities of a trace are whole numbers, in parts of this


def script(name: str, value: Any, packed: bool = False) -> str:
    """A script that hands a value to the page under a name; packed: compressed."""
    # ASCII throughout (json's default): a model's text may hold half a surrogate pair, which no
    # encoding of a file could have.
    text = json.dumps(value, separators=(",", ":"))
    if packed:
        text = json.dumps(base64.b64encode(zlib.compress(text.encode())).decode())
    return f"Report.{'unpack' if packed else 'receive'}({json.dumps(name)},{text});\n"


def rows(book: Book) -> dict[str, Any]:
    """The numbers of all items, in groups by suite and series, with items ascending.

    Every field of a group has a value per item. right: a character, 1, 0, or - if not scored. same:
    series with the same number decoded the same tokens for that item; -1 without recorded tokens.
    Fields of COSTS are there only if some response has them.
    """
    items = book.items
    hashes = items.reindex(columns=["tokens_hash"])["tokens_hash"]
    by_item = hashes.groupby([items["suite"], items["item"]], sort=False)
    verdicts = items.reindex(columns=["correct"])["correct"]
    items = items.assign(
        same=by_item.transform(lambda same: pd.factorize(same)[0]),
        right=verdicts.map({True: "1", False: "0"}).fillna("-"),
    )
    known = items.columns[items.notna().any()]
    costs = {name: digits for name, digits in COSTS.items() if name in known}
    groups = []
    for pair, group in items.groupby(["suite", "series"], sort=True):
        suite, series = cast("tuple[int, int]", pair)
        names = ("disturbed", "forwards", "proposed", "accepted", "same")
        groups.append(
            {
                "suite": int(suite),
                "series": int(series),
                "item": group["item"].tolist(),
                "right": "".join(group["right"]),
                "seconds": json_column(group, "seconds", 4),
                "tokens": json_column(group, "content_tokens"),
                **{name: json_column(group, name) for name in names},
                **{name: json_column(group, name, digits) for name, digits in costs.items()},
            }
        )
    return {"groups": groups, "itemsAFile": book.items_a_file}


def texts(book: Book) -> Iterator[tuple[str, dict[int, Any]]]:
    """Name and content of every file of texts, about RESPONSES responses each.

    The content is item -> {"prompt", "gold", "said"}. prompt, gold: of the first run that recorded
    it, or None. said: series -> [text, why it is right or wrong, windows], with each window as
    [step, start, proposed, accepted, committed].
    """
    prompts = [read_prompts(run.folder) or generated_prompts(run) for run in book.runs]
    windows = _windows(book)
    names = ["suite", "item", "series", "text", "why", "gold"]
    columns = book.items.reindex(columns=names).astype(object)
    files: dict[tuple[int, int], dict[int, Any]] = {}
    for suite, item, series, *recorded in columns.to_numpy().tolist():
        text, why, gold = (part if isinstance(part, str) else None for part in recorded)
        entries = files.setdefault((suite, item // book.items_a_file), {})
        entry = entries.setdefault(item, {"prompt": None, "gold": None, "said": {}})
        # Some of the runs may have recorded neither: the first that did gives them.
        known = prompts[book.series[series].run].get((book.suites[suite].key, item))
        entry["prompt"] = entry["prompt"] or known
        entry["gold"] = entry["gold"] or gold
        entry["said"][series] = [text, why, windows.get((series, suite, item), [])]
    for (suite, number), entries in files.items():
        yield f"text/{suite}-{number}", entries


def generated_prompts(run: Run) -> dict[tuple[str, int], str]:
    """The prompts of a run that recorded none, by suite and item, without the chat template.

    They are generated again; suites that are not generated have none, nor has one whose problems
    no longer have the recorded SHA-256.
    """
    data = run.config.data
    prompts: dict[tuple[str, int], str] = {}
    draws = len(run.config.draws)
    for suite in run.config.suites:
        generator = SUITES[suite].generator if suite in SUITES else None
        if generator is None or not isinstance(data, str) or split_named(data) is None:
            continue
        problems = drawn(SUITES[suite], data, run.config.limit)
        content = generator.content([problem.row for problem in problems]).encode()
        recorded = run.meta.files.get(suite, {}).get("sha256")
        # Older records have no hash: the problems are then taken to be the same.
        if recorded in (None, hashlib.sha256(content).hexdigest()):
            # Items count on through all draws of the same problems.
            prompts |= {
                (suite, item): problem.question for item, problem in enumerate(problems * draws)
            }
    return prompts


def _windows(book: Book) -> dict[tuple[int, int, int], list[list[int | None]]]:
    """The windows of every response in the order of decoding, by series, suite and item."""
    windows: dict[tuple[int, int, int], list[list[int | None]]] = defaultdict(list)
    for number, run in enumerate(book.runs):
        frame = book.numbered(number, run.windows)
        keys = zip(frame["series"], frame["suite"], frame["item"], strict=True)
        names = ("step", "start", "proposed", "accepted", "committed")
        columns = zip(*(json_column(frame, name) for name in names), strict=True)
        for key, window in zip(keys, columns, strict=True):
            windows[key].append(list(window))
    return windows


def traces(book: Book) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of every file of traces.

    The content has `pieces`, the texts of tokens, and `of`, by item and series a trace as `_trace`
    makes it.
    """
    # Records stay packed until their file is written, which bounds the memory that they take.
    files: dict[tuple[int, int], list[tuple[int, TraceRecord]]] = defaultdict(list)
    vocabularies: dict[tuple[int, str], dict[int, str]] = defaultdict(dict)
    for number, run in enumerate(book.runs):
        for _, trace in each_frame(run.folder):
            vocabularies[number, trace.tokenizer].update(trace.pieces)
            series = book.series_numbers.get((number, trace.method))
            suite = book.suite_numbers[number].get(trace.suite)
            if series is not None and suite is not None:
                files[suite, trace.item // book.items_a_file].append((series, trace))
    for suite, number in sorted(files):
        pieces: dict[str, int] = {}
        items: dict[int, dict[int, Any]] = defaultdict(dict)
        for series, trace in files[suite, number]:
            vocabulary = vocabularies[book.series[series].run, trace.tokenizer]
            items[trace.item][series] = _trace(trace, vocabulary, pieces)
        yield f"trace/{suite}-{number}", {"pieces": list(pieces), "of": items}


def _trace(
    trace: TraceRecord, text_by_id: dict[int, str], pieces: dict[str, int]
) -> dict[str, Any]:
    """A trace for the page; probabilities are in parts of PROB_PARTS, -1 for none.

    Args:
        trace: as recorded.
        text_by_id: the text of each token id.
        pieces: text -> its number in the file; changed: texts of this trace are added.
    """

    def piece(token: int) -> int:
        return pieces.setdefault(text_by_id.get(token, f"<{token}>"), len(pieces))

    # A trace has the same few tokens over and over: each is looked up once.
    distinct, inverse = np.unique(trace.column("token"), return_inverse=True)
    numbers = np.array([piece(int(token)) for token in distinct], dtype=np.int64)
    return {
        "length": trace.length,
        "mask": piece(trace.mask),
        "ends": [piece(end) for end in trace.ends],
        "kind": "".join(map(str, trace.column("kind").tolist())),
        **{name: trace.column(name).tolist() for name in ("forward", "step", "window", "position")},
        "token": numbers[inverse].tolist(),
        "prob": _parts(trace.column("prob")),
        "target": _parts(trace.column("target_prob")),
    }


def _parts(probs: Any) -> list[int]:
    parts = np.where(np.isnan(probs), -1, np.round(probs.astype(float) * PROB_PARTS))
    return [int(part) for part in parts.tolist()]
