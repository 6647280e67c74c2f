"""A response as it is recorded: its numbers, and in a traced run its events with the texts of the
tokens.

Nothing here needs OpenCompass.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from harness.records.files import REFUSED, TraceRecord, packed_columns
from harness.records.schema import Key
from model_wrappers import Backbone
from model_wrappers.trace import EventLog

NO_TEXT = "\ufffd"  # what a tokenizer gives for bytes that are no text by themselves
BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}


@dataclass(frozen=True)
class Response:
    """A finished response: its line of items.jsonl, those of windows.jsonl, and its trace, if the
    run has traces."""

    item: dict[str, Any]
    windows: list[dict[str, Any]]
    trace: TraceRecord | None = None


@dataclass(frozen=True)
class Passes:
    """Seconds of single passes: a line of passes.jsonl."""

    line: dict[str, Any]


Result = Response | Passes


def add_unlogged(log: EventLog, tokens_G: torch.Tensor, mask_id: int) -> None:
    """Log what a decoder wrote without request.commit or request.remask, as committed at the
    end."""
    logged = [mask_id] * len(tokens_G)
    for kind, position, token in zip(log.kind, log.position, log.token, strict=True):
        if kind not in REFUSED and position < len(logged):
            logged[position] = token
    missing = [at for at, token in enumerate(tokens_G.tolist()) if logged[at] != token]
    if missing:
        log.committed(
            missing,
            tokens_G[missing].tolist(),
            [math.nan] * len(missing),
            ["unmasked"] * len(missing),
        )


def trace_of(
    key: Key, backbone: Backbone, length: int, log: EventLog, texts: dict[int, str]
) -> TraceRecord:
    """A response's record with the texts of all its tokens; the recorder keeps those that it does
    not have yet.

    key: method, suite, item. length: its tokens. texts: of tokens of this tokenizer that were met
    before; new ones are added.
    """
    method, suite, item = key
    tokenizer = backbone.text_tokenizer()
    tokens = sorted({*log.token, backbone.mask_id})
    for token in tokens:
        if token not in texts:
            texts[token] = piece_of(tokenizer, token)
    return TraceRecord(
        method=method,
        suite=suite,
        item=item,
        length=length,
        mask=backbone.mask_id,
        ends=[end for end in (backbone.eos_id, backbone.eot_id) if end is not None],
        tokenizer=backbone.name,
        pieces={token: texts[token] for token in tokens},
        columns=packed_columns(log),
    )


def piece_of(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """The text of a token; of one that is a part of a letter its bytes, as <0xE2 0x82>."""
    text = str(tokenizer.decode([token]))
    if NO_TEXT not in text:
        return text
    letters = str(tokenizer.convert_ids_to_tokens(token))
    if not all(letter in BYTE_OF for letter in letters):  # not of a byte-level tokenizer
        return text
    return f"<{' '.join(f'0x{BYTE_OF[letter]:02X}' for letter in letters)}>"
