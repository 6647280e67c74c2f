"""The text before and after decoding: conversations become ids, responses become text."""

import re
from datetime import date
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from model_wrappers.backbones.model import Backbone
from model_wrappers.options import note

# Today's date for templates that write it, so that tokens are the same every day. Llama 3's
# templates have this date as their default.
TODAY = date(2024, 7, 26)
ALWAYS_VALID = ("chat_template", "continue_final_message")  # arguments of every template
DEFAULTS = {"add_generation_prompt": True, "enable_thinking": False, "thinking": False}
HOLE = re.compile(r"( ?_{3,})")  # a hole in a response to complete
STRFTIME_NOW = re.compile(r"""strftime_now\(\s*(['"])(.*?)\1\s*\)""")


def encode_messages(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], /, **template: Any
) -> list[int]:
    """Ids of a conversation of {role, content} through the chat template, up to the response's
    beginning.

    Raises:
        ValueError: see `render`.
    """
    # Without special tokens, as the template writes BOS itself.
    return list(
        tokenizer(render(tokenizer, messages, **template), add_special_tokens=False).input_ids
    )


def render(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], /, **template: Any
) -> str:
    """The text of a conversation through the chat template, up to the response's beginning.

    Unless `template` says otherwise, thinking is switched off. The date is TODAY. A note is printed
    for arguments that the template does not read, and if it changes the last message.

    Args:
        tokenizer: the model's tokenizer.
        messages: messages of {role, content}.
        template: arguments for rendering the chat template.

    Raises:
        ValueError: the tokenizer has no chat template, or the template fails.
    """
    model = tokenizer.name_or_path
    if tokenizer.chat_template is None:
        raise ValueError(
            f"the tokenizer of {model} has no chat template; a run takes --prompt plain for a base"
            " model"
        )
    arguments: dict[str, Any] = DEFAULTS | template
    source = str(arguments.get("chat_template") or tokenizer.get_chat_template())
    # Jinja ignores unknown arguments silently: a misspelled one would change nothing.
    for name, value in template.items():
        if name not in ALWAYS_VALID and name not in source and DEFAULTS.get(name) != value:
            note(f"the chat template of {model} does not read {name}")
    arguments["chat_template"] = STRFTIME_NOW.sub(
        lambda call: repr(TODAY.strftime(call[2])), source
    )
    try:
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, **arguments))
    except Exception as error:  # whatever a template raises
        raise ValueError(f"the chat template of {model} fails: {error}") from error
    if messages and messages[-1]["content"].strip() not in text:
        note(f"the chat template of {model} leaves out or changes the last message")
    return text


def encode_plain(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[int]:
    """Ids of the contents of a conversation of {role, content}, one a line, as a base model reads
    text."""
    return text_ids(tokenizer, "\n".join(message["content"] for message in messages) + "\n")


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of a text, with the tokenizer's BOS but without EOS.

    Some tokenizers append EOS, after which a model would begin another text.
    """
    # The text's own ids end where the ids without special tokens do; what follows is cut off.
    bare = list(tokenizer(text, add_special_tokens=False).input_ids)
    ids = list(tokenizer(text).input_ids)
    for end in range(len(ids), len(bare), -1):
        if ids[end - len(bare) : end] == bare:
            return ids[:end]
    return ids


def encode_question(tokenizer: PreTrainedTokenizerBase, question: str) -> list[int]:
    """Ids of a single user turn through the chat template.

    Raises:
        ValueError: the tokenizer has no chat template.
    """
    return encode_messages(tokenizer, [{"role": "user", "content": question}])


def encode_template(backbone: Backbone, template: str, length: int) -> Tensor:
    """Encode a response with holes, followed by its end of turn and EOS.

    Three underscores are a hole of one token (`______` is two tokens). A space before a hole
    belongs to it, as the tokens of words begin with a space.

    Args:
        backbone: the model that will fill the holes.
        template: the text with holes.
        length: tokens of the response.

    Returns:
        LongTensor (length,), with masks in the holes.

    Raises:
        ValueError: the text has no hole or is longer than the response, or the model has no mask.
    """
    if backbone.mask_id not in range(backbone.vocab_size):
        raise ValueError(f"{backbone.name} has no mask, so it completes no given response")
    ids: list[int] = []
    for part in HOLE.split(template):
        if HOLE.fullmatch(part):
            tokens = part.count("___")
            ids += [backbone.mask_id] * tokens
        else:
            ids += backbone.text_tokenizer()(part, add_special_tokens=False).input_ids
    if backbone.mask_id not in ids or len(ids) > length:
        raise ValueError(
            f"given {template!r} must have a hole, ___, and at most {length} tokens; it has"
            f" {len(ids)}"
        )
    end = [] if backbone.eot_id is None else [backbone.eot_id]
    return torch.tensor((ids + end + [backbone.eos_id] * length)[:length])


def prompt_tensor(backbone: Backbone, ids: list[int]) -> Tensor:
    """The ids of a prompt as a LongTensor (P,).

    Raises:
        ValueError: the ids contain the mask, which a decoder would fill.
    """
    if backbone.mask_id in ids:
        mask = backbone.text_tokenizer().decode([backbone.mask_id])
        raise ValueError(f"the text of the prompt holds the mask token {mask}; take it out")
    return torch.tensor(ids, dtype=torch.long)


def content_length(backbone: Backbone, tokens_G: Tensor) -> int:
    """The number of tokens before the first EOS or EoT."""
    ends = torch.isin(
        tokens_G, torch.tensor([i for i in (backbone.eos_id, backbone.eot_id) if i is not None])
    )
    return int(ends.nonzero()[0]) if bool(ends.any()) else len(tokens_G)


def response_text(backbone: Backbone, tokens_G: Tensor) -> str:
    """The text of a response: the ids before the first EOS or EoT, without special tokens."""
    content = tokens_G[: content_length(backbone, tokens_G)]
    return str(backbone.text_tokenizer().decode(content, skip_special_tokens=True))
