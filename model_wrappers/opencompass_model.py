"""The OpenCompass adapter: chat turns -> ids -> decode -> text, and likelihoods, without scoring.

In an OpenCompass configuration (docs/usage.md has a whole one):

    models = [dict(type="model_wrappers.opencompass_model.DiffusionModel", abbr="fef-2",
                   path="nano", method="fef", steps=2, gen_length=64, max_out_len=64,
                   batch_size=8, run_cfg=dict(num_gpus=0))]
"""

import inspect
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from opencompass.models.base import BaseModel
from opencompass.models.base_api import APITemplateParser
from opencompass.openicl.icl_inferencer.icl_base_inferencer import BaseInferencer
from opencompass.utils.prompt import PromptList
from torch import Tensor

from model_wrappers.api import check_options, check_temperature
from model_wrappers.backbones.model import Backbone
from model_wrappers.chat import encode_messages, encode_plain, prompt_tensor, text_ids
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


class DiffusionModel(TextModel, BaseModel):
    """A TextModel as a model of OpenCompass, with these further keywords.

    The costs of what OpenCompass requests are written to a file next to its predictions.

    Args:
        plain: whether prompts are encoded without the chat template, as base models read them.
        meta_template: OpenCompass's roles (default: META_TEMPLATE).
        generation_kwargs: generation settings in transformers' names.
        stop_words: a text ends before the first of these.

    Raises:
        ValueError: see TextModel.
    """

    # OpenCompass uses these itself. It takes some out of a configuration before it makes the model.
    HARNESS_KEYWORDS = (
        "abbr",
        "type",
        "run_cfg",
        "batch_size",
        "batch_padding",
        "summarizer_abbr",
        "pred_postprocessor",
    )

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
        # Bad settings are refused here, before the model is loaded.
        sampled(settings, 0.0, "generation_kwargs")
        BaseModel.__init__(self, path=str(path))
        TextModel.__init__(self, path, *common, **more)
        self.template_parser = APITemplateParser(
            META_TEMPLATE if meta_template is None else meta_template
        )
        self.temperature, truncation = sampled(settings, self.temperature, "generation_kwargs")
        check_temperature(self.decoder, self.temperature)
        self.options |= truncation
        check_options(self.decoder, self.options)
        self.plain = plain
        self.stop_words = stops_of(stop_words)
        self._start_time = time.time()

    def generate(
        self,
        inputs: list[Any],
        max_out_len: int | None = None,
        min_out_len: int | None = None,
        stopping_criteria: str | Sequence[str] | None = (),
    ) -> list[str]:
        """The texts of responses to conversations, decoded at once if the model's calls can be
        packed.

        Args:
            inputs: conversations.
            max_out_len: the most tokens of a text.
            min_out_len: not used, as nothing makes a response longer.
            stopping_criteria: a text ends before the first of these, or of `stop_words`.

        Raises:
            ValueError: a prompt is too long.
        """
        length, _ = self.lengths(max_out_len)
        decoded, costs = self.responses(
            [self.fitted(self._encoded(turns), length) for turns in inputs], max_out_len
        )
        self._note(costs)
        stops = [*self.stop_words, *stops_of(stopping_criteria)]
        return [self.text(out.tokens, max_out_len, stops) for out in decoded]

    def get_ppl(
        self, inputs: list[Any], mask_length: list[int] | None = None
    ) -> np.ndarray[Any, Any]:
        """The negative log-likelihood of each text, in nats a token, (N,).

        Args:
            inputs: texts.
            mask_length: the number of tokens at the beginning of each text that are its prompt, and
                not counted (None: the first token is the prompt, but is counted).
        """
        pairs = []
        counts = []
        for number, text in enumerate(inputs):
            ids = text_ids(self.backbone.text_tokenizer(), _flat(text))
            ids_L = prompt_tensor(self.backbone, ids)
            prompt_length = 1 if mask_length is None else mask_length[number]
            pairs.append((ids_L[:prompt_length], ids_L[prompt_length:]))
            # Without mask_length OpenCompass divides by all tokens, the first one among them.
            counts.append(len(ids) if mask_length is None else len(ids) - prompt_length)
        return -self._likelihoods(pairs) / np.array(counts)

    def get_loglikelihood(self, inputs: list[Any], conts: list[str]) -> np.ndarray[Any, Any]:
        """The log-likelihood of each text's continuation, in nats, (N,).

        Args:
            inputs: texts, each with its continuation at the end.
            conts: the continuations.

        Raises:
            ValueError: a text does not end with its continuation.
        """
        pairs = []
        tokenizer = self.backbone.text_tokenizer()
        for text, continuation in zip(map(_flat, inputs), conts, strict=True):
            if not continuation or not text.endswith(continuation):
                raise ValueError(f"the text does not end with its continuation {continuation!r}")
            prompt_length = len(text_ids(tokenizer, text.removesuffix(continuation)))
            ids_L = prompt_tensor(self.backbone, text_ids(tokenizer, text))
            pairs.append((ids_L[:prompt_length], ids_L[prompt_length:]))
        return self._likelihoods(pairs)

    def _likelihoods(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> np.ndarray[Any, Any]:
        """Log-likelihoods of answers to prompts, (N,); records their costs."""
        likelihoods = [self.likelihood(prompt_P, answer_A) for prompt_P, answer_A in pairs]
        self._note(map(vars, likelihoods))
        return np.array([likelihood.value for likelihood in likelihoods])

    def _note(self, costs: Iterable[dict[str, Any]]) -> None:
        """Append costs to the file next to OpenCompass's predictions, if an inferencer called."""
        caller = _caller()
        if caller is None:
            return
        shared: dict[str, Any] = {"began": self._start_time}
        # The label of the choice, if a likelihood is computed for one.
        if caller.get("label") is not None:
            shared["label"] = str(caller["label"])
        predictions = Path(caller["output_json_filepath"], caller["output_json_filename"])
        with predictions.with_suffix(SIDE_FILE).open("a", encoding="utf-8") as file:
            for number, cost in enumerate(costs, caller.get("index", 0)):
                file.write(json.dumps({"item": number} | shared | cost) + "\n")

    def parse_template(self, prompt_template: Any, mode: str) -> Any:
        """Conversations for generation ("gen"), or texts for likelihoods, as PPL inferencers record
        them."""
        parsed = self.template_parser.parse_template(prompt_template, mode)
        if mode == "gen":
            return parsed
        if isinstance(prompt_template, list) and not isinstance(prompt_template, PromptList):
            return [_flat(text) for text in parsed]
        return _flat(parsed)

    def get_token_len(self, prompt: Any) -> int:
        """Tokens of a text, or of a conversation through the chat template."""
        if not isinstance(prompt, str):
            return len(self._encoded(prompt))
        return len(self.backbone.text_tokenizer()(prompt, add_special_tokens=False).input_ids)

    def _encoded(self, turns: Any) -> Tensor:
        """The ids of a conversation, LongTensor (P,)."""
        return encode_chat(self.backbone, turns, self.plain, self.chat_template_kwargs)


def _caller() -> dict[str, Any] | None:
    """The local variables of the inferencer that is calling; None if none is."""
    # OpenCompass passes a model neither the data set nor the item, so that both are read from the
    # inferencer, further up the stack.
    frame = inspect.currentframe()
    while frame is not None:
        scope = frame.f_locals
        if isinstance(scope.get("self"), BaseInferencer) and "output_json_filename" in scope:
            return scope
        frame = frame.f_back
    return None


def encode_chat(
    backbone: Backbone, turns: Any, plain: bool = False, template: Mapping[str, Any] | None = None
) -> Tensor:
    """Encode a conversation through the chat template: LongTensor (P,).

    Args:
        backbone: the model, with its tokenizer.
        turns: a string, or OpenCompass's list of {role, prompt}.
        plain: whether to encode without the template (`chat.encode_plain`).
        template: arguments for rendering the template.

    Raises:
        ValueError: the chat template cannot be used, or the text contains the mask token, which the
            model would take for a position to fill.
    """
    if isinstance(turns, str):
        turns = [{"role": "HUMAN", "prompt": turns}]
    messages = [
        {"role": ROLES.get(turn["role"], turn["role"]), "content": turn["prompt"]} for turn in turns
    ]
    tokenizer = backbone.text_tokenizer()
    if plain:
        return prompt_tensor(backbone, encode_plain(tokenizer, messages))
    return prompt_tensor(backbone, encode_messages(tokenizer, messages, **(template or {})))


def _flat(text: Any) -> str:
    """A conversation as one text, for likelihoods."""
    return text if isinstance(text, str) else "\n".join(turn["prompt"] for turn in text)
