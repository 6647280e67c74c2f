"""What a record must look like to be read: run.json, a line of items.jsonl, a line of windows.jsonl (msgspec).

What is needed to say whose record it is must be there; the rest may be missing, for other tools write records too, but
what is there must have its type and range. Fields that are not named here are allowed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

SCHEMA = 1
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Part = dict[str, Any] | None


class MetaRecord(Struct):
    """run.json. scoring and sittings come while the run goes on; `config` names suites, methods and models."""

    schema: Literal[1]
    config: dict[str, Any]
    name: str = ""
    created: str = ""
    config_hash: str | None = None
    environment: Part = None
    weights: Part = None
    data: Part = None
    sittings: list[dict[str, Any]] | None = None
    scoring: Part = None


class ItemRecord(Struct):
    """One response: whose it is, what it says, whether it is right, what it cost."""

    method: str
    suite: str
    item: Count
    schema: Literal[1] = 1
    seed: int | None = None
    prompt_tokens: Count | None = None
    prompt_hash: str | None = None
    content_tokens: Count | None = None
    eos_tokens: Count | None = None
    post_stop_tokens: Count | None = None
    tokens_hash: str | None = None
    text: str | None = None
    gold: str | None = None
    correct: bool | None = None
    forwards: Count | None = None
    rows: Count | None = None
    token_forwards: Count | None = None
    draft_forwards: Count | None = None
    draft_rows: Count | None = None
    draft_token_forwards: Count | None = None
    seconds: Seconds | None = None
    proposed: Count | None = None
    accepted: Count | None = None
    rejected: Count | None = None
    committed: Count | None = None


class WindowRecord(Struct):
    """One speculative window of a response."""

    method: str
    suite: str
    item: Count
    step: Count | None = None
    round: Count | None = None
    start: Count | None = None
    proposed: Count | None = None
    accepted: Count | None = None
    committed: Count | None = None


Record = type[MetaRecord] | type[ItemRecord] | type[WindowRecord]


def what_is_wrong(record: Record, row: Any) -> str:
    """Why a parsed row is no such record, in a few words naming the field; "" if it is one."""
    try:
        msgspec.convert(row, record)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
