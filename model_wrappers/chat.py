"""Text on both sides of a decoder: conversations become ids, responses become text."""

import re
from datetime import date
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from model_wrappers.backbones.model import Backbone
from model_wrappers.options import note

# for templates that write it; Llama 3's have this one where they know none
TODAY = date(2024, 7, 26)
ANY = ("chat_template", "continue_final_message")  # what any template may be rendered with
USUAL = {"add_generation_prompt": True, "enable_thinking": False, "thinking": False}
HOLE = re.compile(r"( ?_{3,})")  # of a response to complete
NOW = re.compile(r"""strftime_now\(\s*(['"])(.*?)\1\s*\)""")


def encode_messages(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], /, **template: Any
) -> list[int]:
    """Ids of a conversation of {role, content} through the chat template, up to where the response
    begins.

    Raises:
        ValueError: as `render`.
    """
    # The template writes BOS itself.
    return list(
        tokenizer(render(tokenizer, messages, **template), add_special_tokens=False).input_ids
    )


def render(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], /, **template: Any
) -> str:
    """The text of a conversation of {role, content} through the chat template, up to where the
    response begins.

    Unless `template` says otherwise the model is not asked to think, and today is TODAY, so that
    tokens are the same tomorrow. A note says what the template does not read, or leaves out of the
    last message.

    Args:
        tokenizer: of the model.
        messages: of {role, content}.
        template: what the chat template is rendered with.

    Raises:
        ValueError: a tokenizer without a chat template, and one that fails.
    """
    model = tokenizer.name_or_path
    if tokenizer.chat_template is None:
        raise ValueError(
            f"the tokenizer of {model} has no chat template; a run takes --prompt plain for a base"
            " model"
        )
    how: dict[str, Any] = USUAL | template
    written = str(how.get("chat_template") or tokenizer.get_chat_template())
    for name, value in template.items():
        if name not in ANY and name not in written and USUAL.get(name) != value:
            note(f"the chat template of {model} does not read {name}")
    how["chat_template"] = NOW.sub(lambda call: repr(TODAY.strftime(call[2])), written)
    try:
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, **how))
    except Exception as error:  # whatever a template raises
        raise ValueError(f"the chat template of {model} fails: {error}") from error
    if messages and messages[-1]["content"].strip() not in text:
        note(
            f"the chat template of {model} leaves out or changes what the {messages[-1]['role']}"
            " says last"
        )
    return text


def encode_plain(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[int]:
    """Ids of what a conversation of {role, content} says, line by line, as a base model reads
    text."""
    return text_ids(tokenizer, "\n".join(message["content"] for message in messages) + "\n")


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of a text with what its tokenizer puts before it, BOS, and without what some append, EOS:
    after that a model begins another text."""
    bare = list(tokenizer(text, add_special_tokens=False).input_ids)
    ids = list(tokenizer(text).input_ids)
    for end in range(len(ids), len(bare), -1):
        if ids[end - len(bare) : end] == bare:
            return ids[:end]
    return ids


def encode_question(tokenizer: PreTrainedTokenizerBase, question: str) -> list[int]:
    """Ids of one user turn through the chat template.

    Raises:
        ValueError: a tokenizer without one.
    """
    return encode_messages(tokenizer, [{"role": "user", "content": question}])


def encode_template(backbone: Backbone, template: str, length: int) -> Tensor:
    """A response to complete, with its end of turn and EOS after it.

    A hole is three underscores for each of its tokens (`______`: two). A space before a hole
    belongs to it, for tokens of words begin with one.

    Args:
        backbone: the model that is to fill the holes.
        template: text with holes.
        length: tokens of the response.

    Returns:
        LongTensor (length,), the mask in every hole.

    Raises:
        ValueError: the text has no hole, or is longer than the response; a model without a mask.
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
        ValueError: a mask, which a decoder would fill.
    """
    if backbone.mask_id in ids:
        mask = backbone.text_tokenizer().decode([backbone.mask_id])
        raise ValueError(f"the text of the prompt holds the mask token {mask}; take it out")
    return torch.tensor(ids, dtype=torch.long)


def content_length(backbone: Backbone, tokens_G: Tensor) -> int:
    """How many tokens stand before the first EOS or EoT."""
    ends = torch.isin(
        tokens_G, torch.tensor([i for i in (backbone.eos_id, backbone.eot_id) if i is not None])
    )
    return int(ends.nonzero()[0]) if bool(ends.any()) else len(tokens_G)


def response_text(backbone: Backbone, tokens_G: Tensor) -> str:
    """The text of a response: the ids before the first EOS or EoT, without special tokens."""
    content = tokens_G[: content_length(backbone, tokens_G)]
    return str(backbone.text_tokenizer().decode(content, skip_special_tokens=True))
