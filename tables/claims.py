"""The claims of this repository's pages, compared from its records.

    python tables/claims.py results/reference/claims.toml

Writes claims.md and claims.csv beside the file: for every claim the two methods, the difference in
points of accuracy or the ratio of speed, its interval after correction for all claims of the file,
and the word that it deserves (docs/measuring.md); then the records' cards. The same records give
the same bytes. Exit code 1 if a goal is not shown.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.errors import one_line_errors
from harness.measures.against import NOT_SHOWN, compare, read_claims, records_of
from harness.measures.card import Card, card_of
from harness.measures.table import measure
from harness.options import option, parsed
from harness.records.store import Run, write_atomically
from tables.output import card_list, csv, escape_markdown, markdown
from tables.sheets import COLUMNS
from tables.table import Record, Table, listed_rows

CAPTION = (
    "Claims, from records, their intervals corrected for all of them; speeds over several suites"
    " are geometric means (docs/measuring.md)."
)


def claims_table(compared: pd.DataFrame) -> Table:
    """The frame of `measures.against.compare` as a table, a row per claim."""
    # A claim is of points of accuracy or of a ratio of speeds, which print differently.
    points = compared["measure"] == "points"
    records = compared.to_dict("records")
    texts = [
        _texts(record, 1, "+", "") if is_points else _texts(record, 2, "", "x")
        for record, is_points in zip(records, points, strict=True)
    ]
    frame = pd.concat([compared, pd.DataFrame(texts)], axis=1)
    columns = COLUMNS["claims"]
    rows = listed_rows(frame, columns, compared["claim"])
    numbers = compared.drop(columns="marks")
    return Table("claims", CAPTION, columns, rows, numbers=numbers, heading="Claim")


def _texts(record: Record, decimals: int, sign: str, unit: str) -> dict[str, str]:
    """A difference, its interval and what it shows, as printed."""
    ends = [f"{record[end]:.{decimals}f}" for end in ("low", "high")]
    return {
        "difference": f"{record['value']:{sign}.{decimals}f}{unit}",
        "interval": " to ".join(ends),
        "shown": record["word"] + (f"; goal {record['goal']}" if record["goal"] else ""),
    }


def card_of_sessions(sessions: Sequence[Run]) -> Card:
    """The card of a record, and the entries in which its further timed sessions differ.

    Args:
        sessions: the record's, from `measures.seconds.timed_sessions`.
    """
    card, *others = (card_of(run, measure(run)) for run in sessions)
    for number, other in enumerate(others, 2):
        card |= {
            f"{key}, session {number}": value
            for key, value in other.items()
            if card.get(key) != value
        }
    return card


def page(table: Table, cards: Mapping[str, Card]) -> str:
    """The claims in Markdown, then the card of each record."""
    parts = [markdown(table)]
    parts += [f"**{escape_markdown(name)}**\n\n{card_list(card)}\n" for name, card in cards.items()]
    return "\n".join(parts)


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """Which claims are compared."""

    claims: Path = option(
        "the claims, each with its record and methods", positional=True, metavar="FILE.toml"
    )


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a goal is not shown."""
    path = parsed(ClaimOptions, line, __doc__).claims
    claims = read_claims(path)
    runs = records_of(claims, path.parent)
    compared = compare(claims, runs)
    table = claims_table(compared)
    cards = {record: card_of_sessions(sessions) for record, sessions in runs.items()}
    text = page(table, cards)
    write_atomically(path.with_suffix(".md"), text)
    write_atomically(path.with_suffix(".csv"), csv(table))
    print(text)
    return int(compared["goal"].eq(NOT_SHOWN).any())


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
