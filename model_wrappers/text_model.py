"""What the adapters of evaluation harnesses share: one decoding method on one backbone.

This module imports none of the harnesses. Shapes: P prompt, G response, A answer.
"""

import hashlib
import inspect
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from model_wrappers.api import check_lengths, check_options, check_temperature, decode
from model_wrappers.backbones.model import Backbone, ReadsAt
from model_wrappers.backbones.placement import DeviceMap
from model_wrappers.backbones.registry import load_backbone
from model_wrappers.batches import at_once, in_batch
from model_wrappers.chat import response_text
from model_wrappers.costs import costs_of
from model_wrappers.decoders import Method, decoder_and_settings
from model_wrappers.likelihood import DRAWS, Likelihood, log_likelihood
from model_wrappers.options import meant, note
from model_wrappers.trace import Decoded, Observer

SAMPLING = ("top_p", "top_k", "min_p")  # settings that change nothing at temperature 0
TRUNCATION = ("top_p", "top_k")  # those of SAMPLING that decoders have as options
# Settings of other models, and the values at which they change nothing: configurations written for
# those models are accepted as long as they ask for nothing that decoders here do not have.
NEUTRAL: Mapping[str, Sequence[Any]] = {
    "top_p": [1],
    "top_k": [0, -1],
    "min_p": [0],
    "num_beams": [1],
    "repetition_penalty": [1],
    "length_penalty": [1],
    "presence_penalty": [0],
    "frequency_penalty": [0],
    "no_repeat_ngram_size": [0],
    "min_new_tokens": [0, 1],
    "num_return_sequences": [1],
    "early_stopping": [False],
    "parallelize": [False],
    "revision": ["main"],
    "attn_implementation": ["sdpa", "eager"],
}
UNUSED = ("use_cache", "pad_token_id")  # settings that change nothing at any value


class TextModel:
    """One decoding method on one backbone.

    Args:
        path: "nano", a folder, a hub id, or a loaded Backbone.
        method: a name, a function, "FILE.py:name", or a plugin's preset.
        options: the method's options; they may also be given as keywords (`steps=4`).
        gen_length: tokens of a response, whatever the harness sets. None takes `max_out_len`,
            rounded up to whole blocks, and cuts the text to it.
        block_length: as in `decode`.
        temperature: the temperature if the harness sets none.
        seed: a response's random seed is made from this, the prompt, and the number of times that
            the prompt was decoded before.
        draft: the draft model, as path, for methods that have one.
        device: default: the visible GPU, or else the CPU.
        dtype: default: bfloat16 on a GPU, float32 on a CPU.
        device_map: as in `load_backbone`; it replaces device.
        trust_remote_code: as in `load_backbone`.
        reads_at: as in `load_backbone`.
        tokenizer_path: path of another tokenizer.
        chat_template_kwargs: arguments for rendering the chat template.
        max_seq_len: the most tokens of prompt and response together.
        mode: what happens to a longer prompt: "none" refuses it, "mid" takes out its middle.
        max_out_len: the most tokens of a text if the harness sets none.
        draws: number of random masks of a likelihood estimate.

    Raises:
        ValueError: a keyword is unknown (the message lists the valid ones), or `decode` would
            refuse the settings.
    """

    HARNESS_KEYWORDS: ClassVar[Sequence[str]] = ()  # keywords that the harness itself uses
    LENGTH_KEYWORD: ClassVar[str] = "max_out_len"  # the harness's keyword for the text's length

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
        device_map: DeviceMap | None = None,
        trust_remote_code: bool = False,
        reads_at: ReadsAt | None = None,
        tokenizer_path: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        max_seq_len: int | None = None,
        mode: Literal["none", "mid"] = "none",
        max_out_len: int | None = None,
        draws: int = DRAWS,
        **more: Any,
    ) -> None:
        self.decoder, preset = decoder_and_settings(method)
        gen_length = _or_default(gen_length, preset.pop("gen_length", None))
        block_length = _or_default(block_length, preset.pop("block_length", None))
        # The names that lm-eval and transformers have for the same settings.
        max_seq_len = more.pop("max_length", max_seq_len)
        tokenizer_path = more.pop("tokenizer", tokenizer_path)
        dtype = more.pop("torch_dtype", dtype)
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        if "enable_thinking" in more:
            self.chat_template_kwargs["enable_thinking"] = more.pop("enable_thinking")
        self.options = preset | self._options(options or {}, more)
        self.temperature = temperature
        check_temperature(self.decoder, temperature)
        if mode not in ("none", "mid"):
            raise ValueError(
                f"mode={mode!r} must be 'none', which refuses a prompt that is too long, or 'mid'"
            )
        settings = {
            "dtype": dtype,
            "device_map": device_map,
            "trust_remote_code": trust_remote_code,
            "reads_at": reads_at,
        }
        self.backbone = _loaded(path, device, **settings)
        if tokenizer_path is not None:
            self.backbone = copy(self.backbone)
            self.backbone.tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_path)
        if draft is not None:
            self.options["draft"] = _loaded(draft, device, **settings)
        check_options(self.decoder, self.options)
        if self.backbone.blocks is not None and block_length is None:
            block_length = self.backbone.blocks.length
        self._gen_length = gen_length
        self._block_length = block_length
        self._max_out_len = max_out_len
        # Bad lengths are refused here if they are known, not at the first prompt.
        if gen_length is not None or max_out_len is not None:
            self.lengths()
        self.longest = min(self.backbone.max_length, max_seq_len or sys.maxsize)
        self.cut_middle = mode == "mid"
        self.seed = seed
        self.draws = draws
        self._prompt_counts: Counter[str] = Counter()

    def _options(self, options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """The method's options from `options` and from keywords."""
        option_names = self.decoder.options.__struct_fields__
        for name, value in more.items():
            if name in (*option_names, *self.HARNESS_KEYWORDS) or is_neutral(name, value):
                continue
            valid = [
                *inspect.signature(TextModel.__init__).parameters,
                *inspect.signature(type(self).__init__).parameters,
                *option_names,
            ]
            raise ValueError(
                f"unknown keyword {name!r} for {type(self).__name__}(method={self.decoder.name!r})"
                f"{meant(name, valid, whole=True)}"
            )
        named = {
            name: value
            for name, value in more.items()
            if name in option_names and value not in NEUTRAL.get(name, ())
        }
        return dict(options) | named

    @property
    def gen_length(self) -> int:
        """Tokens of a response. Raises ValueError if only the harness's requests set them."""
        return self.lengths()[0]

    @property
    def block_length(self) -> int:
        """Tokens of a block. Raises ValueError as `gen_length` does."""
        return self.lengths()[1]

    def lengths(self, max_out_len: int | None = None) -> tuple[int, int]:
        """Tokens of a response and of its blocks.

        Args:
            max_out_len: the harness's length, from a data set or the model's configuration. If
                gen_length is set too, that is taken, and a note says so.

        Raises:
            ValueError: the lengths are not known, or do not fit each other.
        """
        requested = self._max_out_len if max_out_len is None else max_out_len
        length = requested if self._gen_length is None else self._gen_length
        if length is None:
            raise ValueError(
                f"the length of a response is not known: give gen_length, or {self.LENGTH_KEYWORD}"
            )
        if requested not in (None, length):
            note(
                f"responses have gen_length={length} tokens, not {self.LENGTH_KEYWORD}={requested}"
            )
        check_lengths(length, length)
        block = length if self._block_length is None else self._block_length
        if self._gen_length is None and block > 0:
            length = -(-length // block) * block  # rounded up to whole blocks
        check_lengths(length, block)
        return length, block

    def fitted(self, prompt_P: Tensor, length: int) -> Tensor:
        """The prompt, cut so that a response fits behind it if mode is "mid".

        Args:
            prompt_P: LongTensor (P,).
            length: tokens of the response.

        Raises:
            ValueError: the prompt is too long and may not be cut.
        """
        room = self.longest - length
        if len(prompt_P) <= room:
            return prompt_P
        if self.cut_middle and room > 1:
            head = room // 2
            return torch.cat([prompt_P[:head], prompt_P[len(prompt_P) - (room - head) :]])
        raise ValueError(
            f"prompt of {len(prompt_P)} tokens and response of {length} exceed the limit of"
            f" {self.longest} tokens (max_seq_len, or the model's); mode='mid' cuts prompts in"
            " the middle"
        )

    def respond(
        self,
        prompt_P: Tensor,
        seed: int,
        observer: Observer | None = None,
        max_out_len: int | None = None,
        given: Tensor | None = None,
    ) -> Decoded:
        """Decode one response to an encoded prompt.

        The observer may see the response twice (`FullObserver.began`), as a response during which
        CUDA graphs were captured is decoded again.

        Args:
            prompt_P: LongTensor (P,).
            seed: seed of all randomness.
            observer: as in `decode`.
            max_out_len: as in `lengths`.
            given: LongTensor (G,), a response to complete.
        """
        length, block = self.lengths(max_out_len)
        decode_once = partial(
            decode,
            self.backbone,
            prompt_P,
            method=self.decoder,
            gen_length=length,
            block_length=block,
            temperature=self.temperature,
            seed=seed,
            observer=observer,
            given=given,
            **self.options,
        )
        graphs = self.backbone.graphs
        out = decode_once()
        # Its seconds include the capture of graphs; decoded again it has the same tokens.
        return decode_once() if self.backbone.graphs > graphs else out

    def responses(
        self, prompts: Sequence[Tensor], max_out_len: int | None = None
    ) -> tuple[list[Decoded], list[dict[str, Any]]]:
        """Decode responses to encoded prompts, all at once if the model's calls can be packed.

        Returns:
            The responses, and the costs of each. For responses decoded at once, `batch` is their
            number and `seconds` an equal share of the seconds of all.
        """
        count = len(prompts)
        packed = count > 1 and self.can_batch()
        model = self.batched() if packed else self
        seeds = [self._seed(prompt_P) for prompt_P in prompts]

        def respond(number: int) -> tuple[int, Decoded]:
            return number, model.respond(prompts[number], seeds[number], max_out_len=max_out_len)

        jobs = [partial(respond, number) for number in range(count)]
        start = time.perf_counter()
        decoded = dict(at_once(jobs, count)) if packed else dict(job() for job in jobs)
        shared: dict[str, Any] = {}
        if packed:
            shared = {"seconds": (time.perf_counter() - start) / count, "batch": count}
        responses = [decoded[number] for number in range(count)]
        costs = []
        for prompt_P, out in zip(prompts, responses, strict=True):
            windows = {"windows": [vars(window) for window in out.trace.windows]}
            costs.append(costs_of(self.backbone, prompt_P, out) | windows | shared)
        return responses, costs

    def can_batch(self) -> bool:
        """Whether this model can be `batched`; if not, a note says so."""
        models = (self.backbone, self.options.get("draft"))
        unpacked = [model.name for model in models if model is not None and not model.can_pack]
        if unpacked:
            note(
                f"{unpacked[0]} decodes one response at a time: its calls go through CUDA graphs,"
                " several devices or layers that are unknown here, and cannot be made together"
            )
        return not unpacked

    def batched(self) -> Self:
        """A copy of this model for responses of `batches.at_once`, if it `can_batch`."""
        batched = copy(self)
        batched.backbone = in_batch(self.backbone)
        draft = self.options.get("draft")
        if draft is not None:
            # If draft and target are one model they must stay one object: decoders compare them.
            batched.options = self.options | {
                "draft": batched.backbone if draft is self.backbone else in_batch(draft)
            }
        return batched

    def likelihood(self, prompt_P: Tensor, answer_A: Tensor) -> Likelihood:
        """The log-likelihood of an answer (see `likelihood.log_likelihood`); the seed of its masks
        is made from the ids of prompt and answer."""
        length = len(prompt_P) + len(answer_A)
        if length > self.longest:
            raise ValueError(
                f"a text of {length} tokens exceeds the limit of {self.longest} (max_seq_len, or"
                " the model's)"
            )
        seed = _seed_of(str((self.seed, prompt_P.tolist(), answer_A.tolist())))
        return log_likelihood(self.backbone, prompt_P, answer_A, seed, draws=self.draws)

    def text(self, tokens_G: Tensor, max_tokens: int | None, stops: Sequence[str]) -> str:
        """The text of a response.

        Args:
            tokens_G: LongTensor (G,).
            max_tokens: the most tokens of the text, unless gen_length is set.
            stops: the text ends before the first of these that it contains.
        """
        # Without gen_length the response was rounded up to blocks; the text was not asked for so
        # long.
        if self._gen_length is None:
            tokens_G = tokens_G[:max_tokens]
        text = response_text(self.backbone, tokens_G)
        return min((text.partition(stop)[0] for stop in stops), key=len, default=text)

    def _seed(self, prompt_P: Tensor) -> int:
        """The random seed of a response: another one each time that a prompt is decoded, and the
        same in every process."""
        prompt = str(prompt_P.tolist())
        self._prompt_counts[prompt] += 1
        return _seed_of(f"{self.seed} {self._prompt_counts[prompt]} {prompt}")


def _seed_of(text: str) -> int:
    """A random seed of 48 bits, the hash of a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def is_neutral(name: str, value: Any) -> bool:
    """Whether a setting that decoders here do not have changes nothing at this value."""
    return value is None or name in UNUSED or value in NEUTRAL.get(name, ())


def sampled(
    settings: Mapping[str, Any], default: float, source: str
) -> tuple[float, dict[str, float]]:
    """The temperature and truncation of generation settings in transformers' names.

    Args:
        settings: generation settings by name.
        default: the temperature if the settings have none.
        source: the argument that the settings come from, for messages.

    Returns:
        The temperature, and those of top_p and top_k that change something.

    Raises:
        ValueError: another setting would change something.
    """
    sample = settings.get("do_sample")
    temperature = settings.get("temperature", default)
    is_greedy = not temperature or sample is False
    ignored = ["temperature", "do_sample", *(SAMPLING if is_greedy else ())]
    options = {}
    for name, value in settings.items():
        if name in ignored or is_neutral(name, value):
            continue
        if name not in TRUNCATION:
            raise ValueError(
                f"{source} has {name}={value!r}, and decoders here take temperature, do_sample,"
                " top_p and top_k"
            )
        options[name] = value
    if sample and not temperature:
        raise ValueError(f"{source}: do_sample needs a temperature above 0")
    return 0.0 if is_greedy else temperature, options


def stops_of(stops: str | Sequence[str] | None) -> list[str]:
    """Stop strings as a list, without empty ones; the argument is one, several or None."""
    several = [stops] if isinstance(stops, str) else stops or ()
    return [stop for stop in several if stop]


def _or_default(length: int | None, default: int | None) -> int | None:
    return default if length is None else length


def _loaded(model: str | Backbone, device: str | None, **settings: Any) -> Backbone:
    """A loaded model, or the model of a path on a device: by default on the visible GPU, or else,
    with a line on stderr, on the CPU."""
    if isinstance(model, Backbone):
        arguments = {"device": device, **settings}
        dropped = [
            name for name, value in arguments.items() if value is not None and value is not False
        ]
        if dropped:
            raise ValueError(
                f"{', '.join(dropped)}: the model is loaded already; give its path, or load it with"
                " these"
            )
        return model
    if device is None and settings["device_map"] is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            print(f"{model} decodes on the CPU, as no GPU is visible", file=sys.stderr)
    return load_backbone(model, device or "cpu", **settings)
