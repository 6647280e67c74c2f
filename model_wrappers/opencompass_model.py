"""The OpenCompass adapter: chat turns -> ids -> decode -> text, and likelihoods. Scoring happens elsewhere.

In an OpenCompass configuration (docs/usage.md has a whole one):

    models = [dict(type="model_wrappers.opencompass_model.DiffusionModel", abbr="fef-2", path="nano", method="fef",
                   steps=2, gen_length=64, max_out_len=64, batch_size=8, run_cfg=dict(num_gpus=0))]
"""

import hashlib
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from opencompass.models.base import BaseModel
from opencompass.models.base_api import APITemplateParser
from opencompass.openicl.icl_inferencer.icl_base_inferencer import BaseInferencer
from opencompass.utils.prompt import PromptList
from transformers import PreTrainedTokenizerFast

from model_wrappers.api import check_lengths, check_options, check_temperature, decode
from model_wrappers.backbones.model import Backbone, ReadsAt
from model_wrappers.backbones.plain import PlainForward
from model_wrappers.backbones.registry import load_backbone
from model_wrappers.batches import at_once, in_batch
from model_wrappers.chat import content_length, encode_messages, encode_plain
from model_wrappers.costs import costs_of
from model_wrappers.decoders import Method, decoder_named
from model_wrappers.likelihood import DRAWS, Likelihood, log_likelihood
from model_wrappers.options import meant
from model_wrappers.trace import Decoded, FullObserver

ROLES = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}
META_TEMPLATE = {
    "round": [{"role": "HUMAN", "api_role": "HUMAN"}, {"role": "BOT", "api_role": "BOT", "generate": True}],
    "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}],
}
COSTS = ".costs.jsonl"  # in the place of .json, of a data set's predictions
# OpenCompass takes these out of a configuration before it makes the model, and uses them itself.
OPENCOMPASS_OWN = ("abbr", "type", "run_cfg", "batch_size", "summarizer_abbr", "pred_postprocessor")
# Keywords of OpenCompass's other models, and of LLaDA's fork of it, with what stands for them here.
INSTEAD = {
    "model_kwargs": "device= and dtype=",
    "tokenizer_kwargs": "tokenizer_path= or chat_template_kwargs=",
    "peft_path": "an adapter merged into the weights of path=",
    "gen_steps": "steps=",
    "gen_blocksize": "block_length=",
    "diff_confidence_eos_eot_inf": "confidence_eos_eot_inf=",
    "diff_logits_eos_inf": "logits_eos_inf=",
    "cfg": "cfg_scale=",
}


class DiffusionModel(BaseModel):
    """One decoding method on one backbone, as OpenCompass sees a model.

    path: nano, a folder or a hub id, or a loaded Backbone; so is `draft`, for methods that take one. The method's
    options stand in `options`, or as keywords of their own (`steps=4`). gen_length: tokens of a response; None takes
    OpenCompass's `max_out_len`, rounded up to blocks, and cuts the text there. device, dtype: by default the GPU that
    is visible and bfloat16, else the CPU and float32. max_seq_len: of prompt and response together; a longer prompt is
    refused, or loses its middle with mode="mid". stop_words: a text ends before the first of them. plain: prompts
    without the chat template, as base models read them; chat_template_kwargs: what the template is rendered with.
    generation_kwargs: temperature and do_sample, as transformers has them. seed: with the prompt, and how often that
    was asked before, it makes the random seed of a response. draws: of a likelihood estimate. What OpenCompass asks
    leaves its costs beside the predictions (`Asked`).

    Raises ValueError for an unknown keyword, naming the valid ones, and for whatever `decode` refuses.
    """

    def __init__(
        self,
        path: str | Backbone,
        method: Method = "fef",
        options: Mapping[str, Any] | None = None,
        gen_length: int | None = None,
        block_length: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        draft: str | Backbone | None = None,
        device: str | None = None,
        dtype: str | None = None,
        *,
        trust_remote_code: bool = False,
        reads_at: ReadsAt | None = None,
        tokenizer_path: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        plain: bool = False,
        max_seq_len: int | None = None,
        mode: Literal["none", "mid"] = "none",
        meta_template: dict[str, Any] | None = None,
        generation_kwargs: Mapping[str, Any] | None = None,
        stop_words: Sequence[str] = (),
        max_out_len: int | None = None,
        draws: int = DRAWS,
        **more: Any,
    ) -> None:
        super().__init__(path=str(path))
        self.template_parser = APITemplateParser(META_TEMPLATE if meta_template is None else meta_template)
        self.decoder = decoder_named(method)
        self.options = self._options(options or {}, more)
        sampling = dict(generation_kwargs or {})
        self.temperature = sampling.pop("temperature", temperature) if sampling.pop("do_sample", True) else 0.0
        if sampling:
            raise ValueError(f"generation_kwargs takes temperature and do_sample, not {', '.join(sampling)}")
        if mode not in ("none", "mid"):
            raise ValueError(f"mode={mode!r} must be 'none', which refuses a prompt that is too long, or 'mid'")
        check_temperature(self.decoder, self.temperature)
        self._given, self._block, self._most = gen_length, block_length, max_out_len
        how = {"dtype": dtype, "trust_remote_code": trust_remote_code, "reads_at": reads_at}
        self.backbone = _loaded(path, device, **how)
        if tokenizer_path is not None:
            self.backbone = copy(self.backbone)
            self.backbone.tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_path)
        if draft is not None:
            self.options["draft"] = _loaded(draft, device, **how)
        check_options(self.decoder, self.options)
        if self.backbone.blocks is not None and block_length is None:
            self._block = self.backbone.blocks.length
        if gen_length is not None or max_out_len is not None:
            self.lengths()
        self.plain, self.chat_template_kwargs = plain, dict(chat_template_kwargs or {})
        self.longest, self.cut_middle = min(self.backbone.max_length, max_seq_len or sys.maxsize), mode == "mid"
        self.seed, self.stop_words, self.draws = seed, tuple(stop_words), draws
        self._asked: Counter[bytes] = Counter()
        self._began = time.time()

    def _options(self, options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """The method's options, from `options` and from keywords of their own."""
        known = self.decoder.options.__struct_fields__
        for name in more:
            own = [each for each in inspect.signature(DiffusionModel).parameters if each != "more"]
            if name in INSTEAD:
                raise ValueError(f"DiffusionModel takes no {name}; give {INSTEAD[name]}")
            if name not in known and name not in OPENCOMPASS_OWN:
                valid = [*own, *known]
                raise ValueError(
                    f"unknown keyword {name!r} for DiffusionModel(method={self.decoder.name!r}); valid: "
                    f"{', '.join(valid)}{meant(name, valid)}"
                )
            if name in options:
                raise ValueError(f"{name} stands in options and beside it; give it once")
        return dict(options) | {name: value for name, value in more.items() if name in known}

    @property
    def gen_length(self) -> int:
        """Tokens of a response. Raises ValueError where they are not known before OpenCompass says them."""
        return self.lengths()[0]

    @property
    def block_length(self) -> int:
        """Tokens of a block. Raises ValueError as `gen_length` does."""
        return self.lengths()[1]

    def lengths(self, max_out_len: int | None = None) -> tuple[int, int]:
        """Tokens of a response and of its blocks. Raises ValueError where they are not known, or disagree.

        max_out_len: OpenCompass's, of the data set or the model's configuration.
        """
        given, wanted = self._given, self._most if max_out_len is None else max_out_len
        if given is not None and wanted not in (None, given):
            raise ValueError(
                f"gen_length={given} and max_out_len={wanted} disagree, and a response has one length: leave one out, "
                "or make them the same (a data set's inferencer may set max_out_len)"
            )
        length = wanted if given is None else given
        if length is None:
            raise ValueError("the length of a response is not known: give gen_length, or max_out_len")
        block = length if self._block is None else self._block
        if given is None and block > 0:
            length = -(-length // block) * block
        check_lengths(length, block)
        return length, block

    def generate(
        self,
        inputs: list[Any],
        max_out_len: int | None = None,
        min_out_len: int | None = None,
        stopping_criteria: Sequence[str] = (),
    ) -> list[str]:
        """The texts of responses to conversations, decoded at once where the model's calls can be packed.

        max_out_len: most tokens of a text. stopping_criteria: a text ends before the first of these. Raises ValueError
        for min_out_len, as nothing makes a response write longer, and for a prompt that is too long.
        """
        if min_out_len:
            raise ValueError(f"min_out_len={min_out_len}: a diffusion response has a fixed length; leave it out")
        length, _ = self.lengths(max_out_len)
        packed = len(inputs) > 1 and isinstance(self.backbone._run, PlainForward)
        prompts = [self._fitted(turns, length) for turns in inputs]

        def job(number: int, seed: int) -> tuple[int, Decoded]:
            return number, (self.batched() if packed else self).respond(prompts[number], seed, max_out_len=max_out_len)

        jobs = [partial(job, number, self._seed(prompt_P)) for number, prompt_P in enumerate(prompts)]
        begun = time.perf_counter()
        decoded = dict(at_once(jobs, len(jobs)) if packed else (each() for each in jobs))
        # Of responses decoded at once, each one's share.
        shared = {"seconds": (time.perf_counter() - begun) / len(jobs), "batch": len(jobs)} if packed else {}
        self._note(
            costs_of(self.backbone, prompts[number], decoded[number])
            | {"windows": [vars(window) for window in decoded[number].trace.windows]}
            | shared
            for number in range(len(inputs))
        )
        stops = (*self.stop_words, *stopping_criteria)
        return [self._text(decoded[number].tokens, max_out_len, stops) for number in range(len(inputs))]

    def respond(
        self, prompt_P: torch.Tensor, seed: int, observer: FullObserver | None = None, max_out_len: int | None = None
    ) -> Decoded:
        """Decode one response to an encoded prompt, LongTensor (P,); an observer may be told of it twice."""
        length, block = self.lengths(max_out_len)
        once = partial(
            decode,
            self.backbone,
            prompt_P,
            method=self.decoder,
            gen_length=length,
            block_length=block,
            temperature=self.temperature,
            seed=seed,
            observer=observer,
            **self.options,
        )
        graphs = self.backbone.graphs
        out = once()
        return once() if self.backbone.graphs > graphs else out  # its seconds held a compilation: the same tokens again

    def batched(self) -> "DiffusionModel":
        """This model for one response of `batches.at_once`. Raises ValueError where its calls cannot be packed."""
        own, draft = copy(self), self.options.get("draft")
        own.backbone = in_batch(self.backbone)
        if draft is not None:
            own.options = self.options | {"draft": own.backbone if draft is self.backbone else in_batch(draft)}
        return own

    def get_ppl(self, inputs: list[Any], mask_length: list[int] | None = None) -> np.ndarray[Any, Any]:
        """Mean negative log-likelihood of a token of each text, in nats, (N,).

        mask_length: how many tokens at the beginning of each text are only read; without it the first one is.
        """
        pairs, scored = [], []
        for number, text in enumerate(inputs):
            ids_L = torch.tensor(self.backbone.text_tokenizer()(_flat(text)).input_ids)
            read = 1 if mask_length is None else mask_length[number]
            pairs.append((ids_L[:read], ids_L[read:]))
            scored.append(len(ids_L) - (0 if mask_length is None else read))
        return -self._likelihoods(pairs) / np.array(scored)

    def get_loglikelihood(self, inputs: list[Any], conts: list[str]) -> np.ndarray[Any, Any]:
        """Log-likelihood in nats of the continuation that each text ends with, (N,).

        Raises ValueError for a text that does not end with its continuation.
        """
        pairs, tokenizer = [], self.backbone.text_tokenizer()
        for text, continuation in zip(map(_flat, inputs), conts, strict=True):
            if not continuation or not text.endswith(continuation):
                raise ValueError(f"the text does not end with its continuation {continuation!r}")
            context = tokenizer(text.removesuffix(continuation)).input_ids
            whole = tokenizer(text).input_ids
            pairs.append((torch.tensor(whole[: len(context)]), torch.tensor(whole[len(context) :])))
        return self._likelihoods(pairs)

    def likelihood(self, prompt_P: torch.Tensor, answer_A: torch.Tensor) -> Likelihood:
        """The log-likelihood of an answer, as `likelihood.log_likelihood` has it; its masks are drawn by its ids."""
        digest = hashlib.sha256(str((self.seed, prompt_P.tolist(), answer_A.tolist())).encode()).digest()
        return log_likelihood(self.backbone, prompt_P, answer_A, int.from_bytes(digest[:6], "big"), draws=self.draws)

    def _likelihoods(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> np.ndarray[Any, Any]:
        """Log-likelihoods of answers to prompts, (N,); their costs are noted."""
        found = [self.likelihood(prompt_P, answer_A) for prompt_P, answer_A in pairs]
        self._note(vars(each) for each in found)
        return np.array([each.value for each in found])

    def _note(self, costs: Iterable[dict[str, Any]]) -> None:
        """Append what was asked last to the file beside OpenCompass's predictions, if it was OpenCompass that asked."""
        asked = Asked.of_caller()
        if asked is not None:
            head = {"began": self._began} | ({} if asked.label is None else {"label": str(asked.label)})
            lines = [json.dumps({"item": asked.item + number} | head | each) for number, each in enumerate(costs)]
            with asked.file.open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def parse_template(self, prompt_template: Any, mode: str) -> Any:
        """Conversations to generate from; texts where likelihoods are asked for, as PPL inferencers write them down."""
        parsed = self.template_parser.parse_template(prompt_template, mode)
        if mode == "gen":
            return parsed
        many = isinstance(prompt_template, list) and not isinstance(prompt_template, PromptList)
        return [_flat(each) for each in parsed] if many else _flat(parsed)

    def get_token_len(self, prompt: str) -> int:
        """Tokens of a text."""
        return len(self.backbone.text_tokenizer()(prompt, add_special_tokens=False).input_ids)

    def _fitted(self, turns: Any, length: int) -> torch.Tensor:
        """The ids of a conversation, LongTensor (P,), with room for a response of `length` tokens."""
        prompt_P, room = encode_chat(self.backbone, turns, self.plain, self.chat_template_kwargs), self.longest - length
        if len(prompt_P) > room > 1 and self.cut_middle:
            return torch.cat([prompt_P[: room // 2], prompt_P[len(prompt_P) - (room - room // 2) :]])
        if len(prompt_P) > room:
            raise ValueError(
                f"prompt of {len(prompt_P)} tokens and response of {length} exceed the limit of {self.longest} tokens "
                "(max_seq_len, or the model's); mode='mid' cuts prompts in the middle"
            )
        return prompt_P

    def _seed(self, prompt_P: torch.Tensor) -> int:
        """The random seed of a response: a new one each time that a prompt is asked, the same in every process."""
        prompt = str(prompt_P.tolist()).encode()
        self._asked[prompt] += 1
        digest = hashlib.sha256(f"{self.seed} {self._asked[prompt]} ".encode() + prompt).digest()
        return int.from_bytes(digest[:6], "big")

    def _text(self, tokens_G: torch.Tensor, most: int | None, stops: Sequence[str]) -> str:
        content = tokens_G[: min(content_length(self.backbone, tokens_G), most or sys.maxsize)]
        text = str(self.backbone.text_tokenizer().decode(content, skip_special_tokens=True))
        return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)]


class Asked(NamedTuple):
    """What an inferencer asks about: the file of costs beside its predictions, its first item, a choice's label."""

    file: Path
    item: int
    label: Any

    @staticmethod
    def of_caller() -> "Asked | None":
        """What the inferencer asks that called, None without one."""
        # OpenCompass tells a model neither the data set nor the item; both are variables of the inferencer.
        frame = inspect.currentframe()
        while frame is not None:
            own = frame.f_locals
            if isinstance(own.get("self"), BaseInferencer) and "output_json_filename" in own:
                predictions = Path(own["output_json_filepath"], own["output_json_filename"])
                return Asked(predictions.with_suffix(COSTS), own.get("index", 0), own.get("label"))
            frame = frame.f_back
        return None


def encode_chat(
    backbone: Backbone, turns: Any, plain: bool = False, template: Mapping[str, Any] | None = None
) -> torch.Tensor:
    """A conversation (a string, or OpenCompass's list of {role, prompt}) through the chat template: LongTensor (P,).

    plain: without the template (`chat.encode_plain`). template: what it is rendered with.

    Raises ValueError for a chat template that cannot be used, and for text that holds the mask token: the model would
    take it for a position to fill.
    """
    if isinstance(turns, str):
        turns = [{"role": "HUMAN", "prompt": turns}]
    messages = [{"role": ROLES.get(turn["role"], turn["role"]), "content": turn["prompt"]} for turn in turns]
    tokenizer = backbone.text_tokenizer()
    ids = encode_plain(tokenizer, messages) if plain else encode_messages(tokenizer, messages, **(template or {}))
    if backbone.mask_id in ids:
        mask = tokenizer.decode([backbone.mask_id])
        raise ValueError(f"the text of the prompt holds the mask token {mask}; take it out")
    return torch.tensor(ids, dtype=torch.long)


def _loaded(model: str | Backbone, device: str | None, **how: Any) -> Backbone:
    """A model on a device, by default on the GPU that is visible. Without one a line on stderr says so."""
    if isinstance(model, Backbone):
        return model
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            print(f"{model} decodes on the CPU, as no GPU is visible", file=sys.stderr)
    return load_backbone(model, device, **how)


def _flat(text: Any) -> str:
    """A conversation as one text, as likelihoods are taken of it."""
    return text if isinstance(text, str) else "\n".join(turn["prompt"] for turn in text)
