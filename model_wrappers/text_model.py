"""One decoding method on one backbone, as evaluation harnesses ask it: what their adapters share. Needs none of them.

Shapes: P prompt, G response, A answer.
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
from transformers import PreTrainedTokenizerFast

from model_wrappers.api import check_lengths, check_options, check_temperature, decode
from model_wrappers.backbones.model import Backbone, ReadsAt
from model_wrappers.backbones.registry import load_backbone
from model_wrappers.batches import at_once, in_batch
from model_wrappers.chat import content_length
from model_wrappers.costs import costs_of
from model_wrappers.decoders import Method, decoder_named
from model_wrappers.likelihood import DRAWS, Likelihood, log_likelihood
from model_wrappers.options import meant
from model_wrappers.trace import Decoded, FullObserver


class TextModel:
    """One decoding method on one backbone.

    path: nano, a folder or a hub id, or a loaded Backbone; so is `draft`, for methods that take one. The method's
    options stand in `options`, or as keywords of their own (`steps=4`). gen_length: tokens of a response; None takes
    `max_out_len`, rounded up to blocks, and cuts the text there. device, dtype: by default the GPU that is visible and
    bfloat16, else the CPU and float32. max_seq_len: of prompt and response together; a longer prompt is refused, or
    loses its middle with mode="mid". chat_template_kwargs: what the chat template is rendered with. seed: with the
    prompt, and how often that was asked before, it makes the random seed of a response. draws: of a likelihood
    estimate.

    Raises ValueError for an unknown keyword, naming the valid ones, and for whatever `decode` refuses.
    """

    INSTEAD: ClassVar[Mapping[str, str]] = {}  # keywords of other models, and what stands for them here
    THEIRS: ClassVar[Sequence[str]] = ()  # keywords that the harness uses itself
    MOST: ClassVar[str] = "max_out_len"  # what the harness calls the most tokens of a text
    MOST_IS_SET_BY: ClassVar[str] = "its caller"

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
        max_seq_len: int | None = None,
        mode: Literal["none", "mid"] = "none",
        max_out_len: int | None = None,
        draws: int = DRAWS,
        **more: Any,
    ) -> None:
        self.decoder = decoder_named(method)
        self.options = self._options(options or {}, more)
        self.temperature = temperature
        if type(seed) is not int or type(draws) is not int or draws < 1:
            raise ValueError(f"seed={seed!r} and draws={draws!r} must be whole numbers, draws at least 1")
        if mode not in ("none", "mid"):
            raise ValueError(f"mode={mode!r} must be 'none', which refuses a prompt that is too long, or 'mid'")
        check_temperature(self.decoder, temperature)
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
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.longest, self.cut_middle = min(self.backbone.max_length, max_seq_len or sys.maxsize), mode == "mid"
        self.seed, self.draws = seed, draws
        self._asked: Counter[bytes] = Counter()

    def _options(self, options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """The method's options, from `options` and from keywords of their own."""
        known, own = self.decoder.options.__struct_fields__, type(self).__name__
        inits = [each.__init__ for each in type(self).__mro__ if issubclass(each, TextModel)]
        named = dict.fromkeys(name for init in inits for name in inspect.signature(init).parameters)
        valid = [name for name in [*named, *known] if name not in ("self", "common", "more")]
        for name in more:
            if name in self.INSTEAD:
                raise ValueError(f"{own} takes no {name}; give {self.INSTEAD[name]}")
            if name not in known and name not in self.THEIRS:
                raise ValueError(
                    f"unknown keyword {name!r} for {own}(method={self.decoder.name!r}){meant(name, valid, whole=True)}"
                )
            if name in options:
                raise ValueError(f"{name} stands in options and beside it; give it once")
        return dict(options) | {name: value for name, value in more.items() if name in known}

    @property
    def gen_length(self) -> int:
        """Tokens of a response. Raises ValueError where they are not known before they are asked for."""
        return self.lengths()[0]

    @property
    def block_length(self) -> int:
        """Tokens of a block. Raises ValueError as `gen_length` does."""
        return self.lengths()[1]

    def lengths(self, max_out_len: int | None = None) -> tuple[int, int]:
        """Tokens of a response and of its blocks. Raises ValueError where they are not known, or disagree.

        max_out_len: the harness's, of the data set or the model's configuration.
        """
        given, wanted = self._given, self._most if max_out_len is None else max_out_len
        if given is not None and wanted not in (None, given):
            raise ValueError(
                f"gen_length={given} and {self.MOST}={wanted} disagree, and a response has one length: leave one out, "
                f"or make them the same ({self.MOST_IS_SET_BY} may set {self.MOST})"
            )
        length = wanted if given is None else given
        if length is None:
            raise ValueError(f"the length of a response is not known: give gen_length, or {self.MOST}")
        check_lengths(length, length)
        block = length if self._block is None else self._block
        if given is None and block > 0:
            length = -(-length // block) * block
        check_lengths(length, block)
        return length, block

    def fitted(self, prompt_P: torch.Tensor, length: int) -> torch.Tensor:
        """A prompt, LongTensor (P,), with room for a response of `length` tokens. Raises ValueError if it is too long.

        With mode="mid" it loses its middle instead.
        """
        room = self.longest - length
        if len(prompt_P) > room > 1 and self.cut_middle:
            return torch.cat([prompt_P[: room // 2], prompt_P[len(prompt_P) - (room - room // 2) :]])
        if len(prompt_P) > room:
            raise ValueError(
                f"prompt of {len(prompt_P)} tokens and response of {length} exceed the limit of {self.longest} tokens "
                "(max_seq_len, or the model's); mode='mid' cuts prompts in the middle"
            )
        return prompt_P

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

    def responses(
        self, prompts: Sequence[torch.Tensor], max_out_len: int | None = None
    ) -> tuple[list[Decoded], list[dict[str, Any]]]:
        """Responses to encoded prompts, decoded at once where the model's calls can be packed, and what each cost.

        The seconds of responses decoded at once are each one's share of them all, and `batch` says how many they were.
        """
        packed = len(prompts) > 1 and self.backbone.can_pack

        def job(number: int, seed: int) -> tuple[int, Decoded]:
            return number, (self.batched() if packed else self).respond(prompts[number], seed, max_out_len=max_out_len)

        seeds = [*map(self._seed, prompts)]
        jobs = [partial(job, number, seed) for number, seed in enumerate(seeds)]
        begun = time.perf_counter()
        decoded = dict(at_once(jobs, len(jobs)) if packed else (each() for each in jobs))
        shared = {"seconds": (time.perf_counter() - begun) / len(jobs), "batch": len(jobs)} if packed else {}
        found, costs = [decoded[number] for number in range(len(jobs))], []
        for prompt_P, out in zip(prompts, found, strict=True):
            windows = {"windows": [vars(window) for window in out.trace.windows]}
            costs.append(costs_of(self.backbone, prompt_P, out) | windows | shared)
        return found, costs

    def batched(self) -> Self:
        """This model for one response of `batches.at_once`. Raises ValueError where its calls cannot be packed."""
        waiting = copy(self)
        waiting.backbone = in_batch(self.backbone)
        draft = self.options.get("draft")
        if draft is not None:
            waiting.options = self.options | {"draft": waiting.backbone if draft is self.backbone else in_batch(draft)}
        return waiting

    def likelihood(self, prompt_P: torch.Tensor, answer_A: torch.Tensor) -> Likelihood:
        """The log-likelihood of an answer, as `likelihood.log_likelihood` has it; its masks are drawn by its ids."""
        if (length := len(prompt_P) + len(answer_A)) > self.longest:
            raise ValueError(
                f"a text of {length} tokens exceeds the limit of {self.longest} (max_seq_len, or the model's)"
            )
        digest = hashlib.sha256(str((self.seed, prompt_P.tolist(), answer_A.tolist())).encode()).digest()
        return log_likelihood(self.backbone, prompt_P, answer_A, int.from_bytes(digest[:6], "big"), draws=self.draws)

    def text(self, tokens_G: torch.Tensor, most: int | None, stops: Sequence[str]) -> str:
        """The text of a response, LongTensor (G,): of `most` tokens at most, up to the first of the stops."""
        content = tokens_G[: min(content_length(self.backbone, tokens_G), most or sys.maxsize)]
        text = str(self.backbone.text_tokenizer().decode(content, skip_special_tokens=True))
        return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)]

    def _seed(self, prompt_P: torch.Tensor) -> int:
        """The random seed of a response: a new one each time that a prompt is asked, the same in every process."""
        prompt = str(prompt_P.tolist()).encode()
        self._asked[prompt] += 1
        digest = hashlib.sha256(f"{self.seed} {self._asked[prompt]} ".encode() + prompt).digest()
        return int.from_bytes(digest[:6], "big")


def sampled(settings: Mapping[str, Any], usual: float, what: str) -> float:
    """The temperature that do_sample and temperature ask for, as transformers has them; `usual` where none is said.

    Raises ValueError for any other setting. what: holds them, for the message.
    """
    if not isinstance(settings, Mapping):
        raise ValueError(f"{what}={settings!r} must be a dict of temperature and do_sample")
    others = [name for name in settings if name not in ("temperature", "do_sample")]
    if others:
        raise ValueError(f"{what} takes temperature and do_sample, not {', '.join(others)}")
    sample, temperature = settings.get("do_sample"), settings.get("temperature", usual)
    if sample not in (None, True, False):
        raise ValueError(f"{what}: do_sample={sample!r} must be true or false")
    if sample and not temperature:
        raise ValueError(f"{what}: do_sample needs a temperature above 0")
    return 0.0 if sample is False else temperature


def stops_of(given: str | Sequence[str] | None, what: str) -> list[str]:
    """The texts before which a text ends, of one or several. Raises ValueError for what is none, and an empty one."""
    found = [given] if isinstance(given, str) else list(given or ())
    if not all(isinstance(stop, str) and stop for stop in found):
        raise ValueError(f"{what}={given!r} must be texts that are not empty")
    return found


def _loaded(model: str | Backbone, device: str | None, **how: Any) -> Backbone:
    """A model on a device, by default on the GPU that is visible. Without one a line on stderr says so."""
    if isinstance(model, Backbone):
        given = {"device": device, **how}.items()
        if dropped := [name for name, value in given if value is not None and value is not False]:
            raise ValueError(f"{', '.join(dropped)}: the model is loaded already; give its path, or load it with these")
        return model
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            print(f"{model} decodes on the CPU, as no GPU is visible", file=sys.stderr)
    return load_backbone(model, device, **how)
