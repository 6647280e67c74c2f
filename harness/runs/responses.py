"""A response as it is recorded: its numbers, and in a traced run its events with the texts of the
tokens.

Nothing here imports OpenCompass.
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

# U+FFFD, which a tokenizer returns for bytes that are no text by themselves.
NO_TEXT = "\ufffd"
# GPT-2's byte-level tokenizers write each byte as a printable letter; this is the way back.
BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}


@dataclass(frozen=True)
class Response:
    """A finished response.

    Attributes:
        item: its line of items.jsonl.
        windows: its lines of windows.jsonl.
        trace: its events, in a traced run.
    """

    item: dict[str, Any]
    windows: list[dict[str, Any]]
    trace: TraceRecord | None = None


# A finished response, or a line of passes.jsonl: seconds of single passes.
Result = Response | dict[str, Any]


def add_unlogged(log: EventLog, tokens_G: torch.Tensor, mask_id: int) -> None:
    """Complete a log: tokens that a decoder wrote without request.commit or request.remask are
    logged as committed at the end.

    Args:
        log: of the response's events; it is changed in place.
        tokens_G: LongTensor (G,), the response.
        mask_id: the mask's id.
    """
    logged = [mask_id] * len(tokens_G)
    for kind, position, token in zip(log.kind, log.position, log.token, strict=True):
        if kind not in REFUSED and position < len(logged):
            logged[position] = token
    missing = [
        position for position, token in enumerate(tokens_G.tolist()) if logged[position] != token
    ]
    # Their probs are unknown, hence NaN.
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
    """A response's trace with the texts of all its tokens. The recorder leaves out texts that an
    earlier trace has.

    Args:
        key: method, suite, item.
        backbone: the model that decoded, for its tokenizer and special tokens.
        length: tokens of the response.
        log: of its events.
        texts: texts by token id, of this tokenizer; those of new tokens are added.
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
    """The text of a token; for a token that is a part of a letter its bytes, as <0xE2 0x82>."""
    text = str(tokenizer.decode([token]))
    if NO_TEXT not in text:
        return text
    letters = str(tokenizer.convert_ids_to_tokens(token))
    # The tokenizer is not byte-level: its letters are no bytes.
    if not all(letter in BYTE_OF for letter in letters):
        return text
    return f"<{' '.join(f'0x{BYTE_OF[letter]:02X}' for letter in letters)}>"
