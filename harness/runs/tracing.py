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
    key: tuple[str, str, int], backbone: Backbone, length: int, log: EventLog, texts: dict[int, str]
) -> TraceRecord:
    """A response's record with the texts of all its tokens; the recorder keeps those that it does not have yet.

    key: method, suite, item. length: its tokens. texts: of tokens of this tokenizer that were met before; new ones are
    added.
    """
    method, suite, item = key
    tokenizer, tokens = backbone.text_tokenizer(), sorted({*log.token, backbone.mask_id})
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


def prompt_text(backbone: Backbone, prompt_P: torch.Tensor) -> str:
    """A prompt, LongTensor (P,), as the model reads it, chat template and all."""
    return str(backbone.text_tokenizer().decode(prompt_P))
