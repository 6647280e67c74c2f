"""The OpenCompass adapter: chat turns -> ids -> decode -> text, and likelihoods. Scoring happens
elsewhere.

In an OpenCompass configuration (docs/usage.md has a whole one):

    models = [dict(type="model_wrappers.opencompass_model.DiffusionModel", abbr="fef-2",
    path="nano", method="fef",
                   steps=2, gen_length=64, max_out_len=64, batch_size=8, run_cfg=dict(num_gpus=0))]
"""

import inspect
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from opencompass.models.base import BaseModel
from opencompass.models.base_api import APITemplateParser
from opencompass.openicl.icl_inferencer.icl_base_inferencer import BaseInferencer
from opencompass.utils.prompt import PromptList

from model_wrappers.api import check_temperature
from model_wrappers.backbones.model import Backbone
from model_wrappers.chat import encode_messages, encode_plain, prompt_tensor
from model_wrappers.options import note
from model_wrappers.text_model import TextModel, sampled, stops_of
from model_wrappers.trace import SIDE_FILE

ROLES = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}
META_TEMPLATE = {
    "round": [
        {"role": "HUMAN", "api_role": "HUMAN"},
        {"role": "BOT", "api_role": "BOT", "generate": True},
    ],
    "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}],
}
# OpenCompass takes these out of a configuration before it makes the model, and uses them itself.
OPENCOMPASS_OWN = (
    "abbr",
    "type",
    "run_cfg",
    "batch_size",
    "batch_padding",
    "summarizer_abbr",
    "pred_postprocessor",
)


class DiffusionModel(TextModel, BaseModel):
    """One decoding method on one backbone, as OpenCompass sees a model: a TextModel, with its
    keywords and these.

    stop_words: a text ends before the first of them. plain: prompts without the chat template, as
    base models read them. generation_kwargs: temperature and do_sample, as transformers has them.
    meta_template: OpenCompass's roles. What OpenCompass asks leaves its costs beside the
    predictions (`Asked`).

    Raises ValueError as TextModel does.
    """

    THEIRS = OPENCOMPASS_OWN

    def __init__(
        self,
        path: str | Backbone,
        *common: Any,
        plain: bool = False,
        meta_template: dict[str, Any] | None = None,
        generation_kwargs: Mapping[str, Any] | None = None,
        stop_words: str | Sequence[str] | None = (),
        **more: Any,
    ) -> None:
        settings = generation_kwargs or {}
        sampled(settings, 0.0, "generation_kwargs")  # refused before anything is loaded
        BaseModel.__init__(self, path=str(path))
        TextModel.__init__(self, path, *common, **more)
        self.template_parser = APITemplateParser(
            META_TEMPLATE if meta_template is None else meta_template
        )
        self.temperature = sampled(settings, self.temperature, "generation_kwargs")
        check_temperature(self.decoder, self.temperature)
        self.plain = plain
        self.stop_words = stops_of(stop_words)
        self._began = time.time()

    def generate(
        self,
        inputs: list[Any],
        max_out_len: int | None = None,
        min_out_len: int | None = None,
        stopping_criteria: str | Sequence[str] | None = (),
    ) -> list[str]:
        """The texts of responses to conversations, decoded at once where the model's calls can be
        packed.

        max_out_len: most tokens of a text. stopping_criteria: a text ends before the first of
        these. Raises ValueError for a prompt that is too long. Nothing makes a response write
        longer: min_out_len is not used.
        """
        if min_out_len is not None and min_out_len > 1:
            note(f"min_out_len={min_out_len} is not used: a response may end at any token")
        length, _ = self.lengths(max_out_len)
        decoded, costs = self.responses(
            [self._fitted(turns, length) for turns in inputs], max_out_len
        )
        self._note(costs)
        stops = [*self.stop_words, *stops_of(stopping_criteria)]
        return [self.text(out.tokens, max_out_len, stops) for out in decoded]

    def get_ppl(
        self, inputs: list[Any], mask_length: list[int] | None = None
    ) -> np.ndarray[Any, Any]:
        """Mean negative log-likelihood of a token of each text, in nats, (N,).

        mask_length: how many tokens at the beginning of each text are only read; without it the
        first one is.
        """
        pairs = []
        scored = []
        begun = [1] * len(inputs) if mask_length is None else mask_length
        for text, read in zip(inputs, begun, strict=True):
            ids_L = prompt_tensor(
                self.backbone, self.backbone.text_tokenizer()(_flat(text)).input_ids
            )
            pairs.append((ids_L[:read], ids_L[read:]))
            scored.append(len(ids_L) - (0 if mask_length is None else read))
        return -self._likelihoods(pairs) / np.array(scored)

    def get_loglikelihood(self, inputs: list[Any], conts: list[str]) -> np.ndarray[Any, Any]:
        """Log-likelihood in nats of the continuation that each text ends with, (N,).

        Raises ValueError for a text that does not end with its continuation.
        """
        pairs = []
        tokenizer = self.backbone.text_tokenizer()
        for text, continuation in zip(map(_flat, inputs), conts, strict=True):
            if not continuation or not text.endswith(continuation):
                raise ValueError(f"the text does not end with its continuation {continuation!r}")
            context = tokenizer(text.removesuffix(continuation)).input_ids
            whole = tokenizer(text).input_ids
            ids_L = prompt_tensor(self.backbone, whole)
            pairs.append((ids_L[: len(context)], ids_L[len(context) :]))
        return self._likelihoods(pairs)

    def _likelihoods(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> np.ndarray[Any, Any]:
        """Log-likelihoods of answers to prompts, (N,); their costs are noted."""
        found = [self.likelihood(prompt_P, answer_A) for prompt_P, answer_A in pairs]
        self._note(vars(each) for each in found)
        return np.array([each.value for each in found])

    def _note(self, costs: Iterable[dict[str, Any]]) -> None:
        """Append what was asked last to the file beside OpenCompass's predictions, if it was
        OpenCompass that asked."""
        asked = Asked.of_caller()
        if asked is not None:
            head = {"began": self._began} | (
                {} if asked.label is None else {"label": str(asked.label)}
            )
            lines = [
                json.dumps({"item": asked.item + number} | head | each)
                for number, each in enumerate(costs)
            ]
            with asked.file.open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def parse_template(self, prompt_template: Any, mode: str) -> Any:
        """Conversations to generate from; texts where likelihoods are asked for, as PPL inferencers
        write them down."""
        parsed = self.template_parser.parse_template(prompt_template, mode)
        if mode == "gen":
            return parsed
        many = isinstance(prompt_template, list) and not isinstance(prompt_template, PromptList)
        return [_flat(each) for each in parsed] if many else _flat(parsed)

    def get_token_len(self, prompt: Any) -> int:
        """Tokens of a text, or of a conversation through the chat template."""
        if not isinstance(prompt, str):
            return len(encode_chat(self.backbone, prompt, self.plain, self.chat_template_kwargs))
        return len(self.backbone.text_tokenizer()(prompt, add_special_tokens=False).input_ids)

    def _fitted(self, turns: Any, length: int) -> torch.Tensor:
        """The ids of a conversation, LongTensor (P,), with room for a response of `length`
        tokens."""
        return self.fitted(
            encode_chat(self.backbone, turns, self.plain, self.chat_template_kwargs), length
        )


class Asked(NamedTuple):
    """What an inferencer asks about: the file of costs beside its predictions, its first item, a
    choice's label."""

    file: Path
    item: int
    label: Any

    @staticmethod
    def of_caller() -> "Asked | None":
        """What the inferencer asks that called, None without one."""
        # OpenCompass tells a model neither the data set nor the item; both are variables of the
        # inferencer.
        frame = inspect.currentframe()
        while frame is not None:
            own = frame.f_locals
            if isinstance(own.get("self"), BaseInferencer) and "output_json_filename" in own:
                predictions = Path(own["output_json_filepath"], own["output_json_filename"])
                return Asked(
                    predictions.with_suffix(SIDE_FILE), own.get("index", 0), own.get("label")
                )
            frame = frame.f_back
        return None


def encode_chat(
    backbone: Backbone, turns: Any, plain: bool = False, template: Mapping[str, Any] | None = None
) -> torch.Tensor:
    """A conversation (a string, or OpenCompass's list of {role, prompt}) through the chat template:
    LongTensor (P,).

    plain: without the template (`chat.encode_plain`). template: what it is rendered with.

    Raises ValueError for a chat template that cannot be used, and for text that holds the mask
    token: the model would take it for a position to fill.
    """
    if isinstance(turns, str):
        turns = [{"role": "HUMAN", "prompt": turns}]
    messages = [
        {"role": ROLES.get(turn["role"], turn["role"]), "content": turn["prompt"]} for turn in turns
    ]
    tokenizer = backbone.text_tokenizer()
    ids = (
        encode_plain(tokenizer, messages)
        if plain
        else encode_messages(tokenizer, messages, **(template or {}))
    )
    return prompt_tensor(backbone, ids)


def _flat(text: Any) -> str:
    """A conversation as one text, as likelihoods are taken of it."""
    return text if isinstance(text, str) else "\n".join(turn["prompt"] for turn in text)
