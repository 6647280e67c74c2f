"""What a traced run records besides: the events of a response with the texts of its tokens, and the prompts."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from harness.records.traces import TraceRecord, packed_columns
from model_wrappers import Backbone
from model_wrappers.events import EventLog

NO_TEXT = "\ufffd"  # what a tokenizer gives for bytes that are no text by themselves
BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}


def trace_of(
    key: tuple[str, str, int], backbone: Backbone, length: int, log: EventLog, known: dict[str, set[int]]
) -> TraceRecord:
    """A response's record. key: method, suite, item. length: its tokens. known: tokens whose texts are recorded."""
    method, suite, item = key
    name, tokenizer = backbone.name, backbone.text_tokenizer()
    new = sorted({*log.token, backbone.mask_id} - known.get(name, set()))
    return TraceRecord(
        method=method,
        suite=suite,
        item=item,
        length=length,
        mask=backbone.mask_id,
        ends=[end for end in (backbone.eos_id, backbone.eot_id) if end is not None],
        tokenizer=name,
        pieces={token: piece_of(tokenizer, token) for token in new},
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


def prompt_text(backbone: Backbone, prompt_P: torch.Tensor) -> str:
    """A prompt, LongTensor (P,), as the model reads it, chat template and all."""
    return str(backbone.text_tokenizer().decode(prompt_P))
