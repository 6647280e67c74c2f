"""The lm-evaluation-harness adapter: the model `fef-dllm`, and lm-eval's command with this model.

    fef-dllm lm-eval --model fef-dllm --model_args path=nano,method=fef,steps=2,gen_length=64
    --tasks gsm8k

Shapes: P prompt, A continuation.
"""

import json
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook
from lm_eval.api.registry import register_model
from torch import Tensor
from tqdm import tqdm

from model_wrappers.api import check_options, check_temperature, decode
from model_wrappers.backbones.model import Backbone
from model_wrappers.batches import MOST_AT_ONCE
from model_wrappers.chat import prompt_tensor, render, text_ids
from model_wrappers.costs import costs_of
from model_wrappers.text_model import TextModel, sampled, stops_of

IDENTITY = "fef-dllm"  # the key, in a file of --use_cache, of the settings that made its answers
# Tasks have any of these names for the length of a response.
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
GENERATION = "generation_kwargs"  # what lm-eval calls a task's settings of generation


@register_model("fef-dllm")
class FefDllm(TextModel, LM):
    """A TextModel as a model of lm-eval, with these further keywords.

    Args:
        pretrained: lm-eval's name for path.
        max_gen_toks: tokens of a response if neither the task nor gen_length sets them.
        batch_size: number of prompts decoded at once, or "auto": as many as memory has room for.
        max_batch_size: not used.
        device: the device that lm-eval passes. Without a GPU the CPU is used instead, and with a
            device_map it is ignored.
        costs: file to which each request's costs are appended, as JSON lines with task and doc_id.

    Raises:
        ValueError: see TextModel.
    """

    LENGTH_KEYWORD = "max_gen_toks"
    default_costs: ClassVar[Path | None] = None  # where costs go if no file is named

    def __init__(
        self,
        path: str | Backbone | None = None,
        *,
        pretrained: str | None = None,
        max_gen_toks: int | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        costs: str | None = None,
        **more: Any,
    ) -> None:
        LM.__init__(self)
        path = pretrained if path is None else path
        if path is None:
            raise ValueError("give the model as path=, or pretrained=")
        self.at_once = MOST_AT_ONCE if str(batch_size).startswith("auto") else int(batch_size)
        has_no_gpu = not torch.cuda.is_available() and str(device).startswith("cuda")
        if has_no_gpu or more.get("device_map") is not None:
            device = None  # lm-eval passes cuda:0 unless the user names a device
        TextModel.__init__(self, path, device=device, **{"max_out_len": max_gen_toks, **more})
        self._device = self.backbone.device
        self.costs = self.default_costs if costs is None else Path(costs)
        settings = more | {"path": self.backbone.name, "max_gen_toks": max_gen_toks}
        self.identity = json.dumps(settings, default=str, sort_keys=True)

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Use a file of lm-eval's --use_cache.

        Raises:
            ValueError: the file has answers of another model, method or options.
        """
        # The file's keys are requests alone, so that the answers of two methods would mix.
        self.cache_hook = cache_hook
        answers = cache_hook.dbdict
        if len(answers) and answers.get(IDENTITY) != self.identity:
            raise ValueError(
                f"--use_cache: the file has answers of {answers.get(IDENTITY)}, and this is"
                f" {self.identity}; give each method and its options a file of its own"
            )
        answers[IDENTITY] = self.identity

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The texts of responses, each up to the first of its task's `until` strings.

        Raises:
            ValueError: a prompt is too long, a length is not known, or generation settings are not
                supported; the message names task and document.
        """
        texts: list[str] = []
        with tqdm(total=len(requests), desc="fef-dllm", disable=disable_tqdm) as bar:
            # Only requests of equal settings, so of equal lengths, can be decoded at once.
            for _, group in groupby(requests, lambda request: request.args[1]):
                batchable = list(group)
                for first in range(0, len(batchable), self.at_once):
                    texts += self._texts(batchable[first : first + self.at_once])
                    bar.update(len(texts) - bar.n)
        return texts

    def _texts(self, requests: list[Instance]) -> list[str]:
        """The texts of responses to requests of equal settings, decoded at once; records costs."""
        model = copy(self)
        prompts = []
        with _named_in_errors(requests[0]):
            settings = dict(requests[0].args[1])
            max_tokens, stops = self._ends(settings)
            model.temperature, truncation = sampled(settings, self.temperature, GENERATION)
            check_temperature(self.decoder, model.temperature)
            model.options = self.options | truncation
            check_options(self.decoder, model.options)
            length, _ = self.lengths(max_tokens)
        for request in requests:
            with _named_in_errors(request):
                prompt_P = prompt_tensor(self.backbone, self._ids(request.args[0]))
                prompts.append(self.fitted(prompt_P, length))
        decoded, costs = model.responses(prompts, max_tokens)
        texts = [self.text(out.tokens, max_tokens, stops) for out in decoded]
        for request, text, cost in zip(requests, texts, costs, strict=True):
            self._note(request, cost)
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts

    def _ends(self, settings: dict[str, Any]) -> tuple[int | None, list[str]]:
        """Take the length and the stop strings out of a task's settings."""
        stops = stops_of(settings.pop("until", None))
        lengths = {settings.pop(name) for name in LENGTHS if name in settings}
        if len(lengths) > 1:
            raise ValueError(f"{GENERATION} must say one length, not {lengths}")
        return next(iter(lengths), None), stops

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Log-likelihoods of continuations in nats, and whether greedy decoding, one token a
        forward, would write them.

        The latter is computed only if a document has one continuation. With several it is False, as
        lm-eval's accuracies do not read it; a line on stderr says that exact_match is then 0.

        Raises:
            ValueError: see `likelihood.log_likelihood`; the message names task and document.
        """
        results = []
        # The same request may come several times; other choices of a document differ in their idx.
        choices = {(request.task_name, request.doc_id, request.idx) for request in requests}
        continuations = Counter((task, document) for task, document, _ in choices)
        if max(continuations.values(), default=0) > 1:
            print(
                "fef-dllm: exact_match of multiple choice is not measured, and is 0",
                file=sys.stderr,
            )
        for request in tqdm(requests, desc="fef-dllm", disable=disable_tqdm):
            with _named_in_errors(request):
                prompt_P, answer_A = self._pair(*request.args)
                likelihood = self.likelihood(prompt_P, answer_A)
                greedy = False
                costs = vars(likelihood) | {"choice": request.idx}
                if continuations[request.task_name, request.doc_id] == 1:
                    greedy, greedy_costs = self._greedy(prompt_P, answer_A)
                    costs |= {
                        f"greedy_{name}": greedy_costs[name] for name in ("seconds", "forwards")
                    }
            self._note(request, costs)
            results.append((likelihood.value, greedy))
            self.cache_hook.add_partial("loglikelihood", request.args, results[-1])
        return results

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Not supported, as a masked model only bounds the likelihood of a text.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "fef-dllm has no loglikelihood_rolling: a masked diffusion model only bounds the"
            " likelihood of a text, so its perplexity cannot be compared; leave perplexity"
            " tasks out"
        )

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer, by which lm-eval tells files of prepared requests apart."""
        return str(self.backbone.text_tokenizer().name_or_path).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The chat template, or "" if lm-eval wants none (False).

        Raises:
            ValueError: the argument is the name of a template, as there is only one.
        """
        if isinstance(chat_template, str):
            raise ValueError(
                f"--apply_chat_template {chat_template}: the tokenizer's own is used; leave the"
                " name out"
            )
        return str(self.backbone.text_tokenizer().chat_template or "") if chat_template else ""

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation through the chat template.

        Args:
            chat_history: messages of {role, content}.
            add_generation_prompt: False leaves the last message, the assistant's, open.

        Raises:
            ValueError: the template cannot be used.
        """
        return render(
            self.backbone.text_tokenizer(),
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            **self.chat_template_kwargs,
        )

    def _ids(self, text: str) -> list[int]:
        """The ids of a text, with one BOS: a chat template may have written it already."""
        tokenizer = self.backbone.text_tokenizer()
        if tokenizer.bos_token is not None and text.startswith(str(tokenizer.bos_token)):
            return list(tokenizer(text, add_special_tokens=False).input_ids)
        return text_ids(tokenizer, text)

    def _pair(self, context: str, continuation: str) -> tuple[Tensor, Tensor]:
        """The ids of context and continuation, LongTensors (P,) and (A,)."""
        ids = self._ids(context + continuation)
        context_ids = self._ids(context)
        # The context's last space may be in the same token as the continuation's first word; that
        # token then belongs to the continuation.
        if ids[: len(context_ids)] != context_ids:
            context_ids = self._ids(context.rstrip())
        # The likelihood without a context is that after BOS, or else after EOS.
        if not context_ids:
            bos_id = self.backbone.text_tokenizer().bos_token_id
            context_ids = [self.backbone.eos_id if bos_id is None else bos_id]
            ids = context_ids + ids
        ids_L = prompt_tensor(self.backbone, ids)
        return ids_L[: len(context_ids)], ids_L[len(context_ids) :]

    def _greedy(self, prompt_P: Tensor, answer_A: Tensor) -> tuple[bool, dict[str, Any]]:
        """Whether greedy decoding, one token a forward, writes the answer, and the decoding's
        costs."""
        # The response must divide into a block model's blocks; what exceeds the answer is ignored.
        blocks = self.backbone.blocks
        block = 1 if blocks is None else blocks.length
        method = "ar" if blocks is not None and blocks.causal else "llada"
        length = -(-len(answer_A) // block) * block
        out = decode(self.backbone, prompt_P, method, gen_length=length)
        is_greedy = torch.equal(out.tokens[: len(answer_A)], answer_A)
        return is_greedy, costs_of(self.backbone, prompt_P, out)

    def _note(self, request: Instance, costs: Mapping[str, Any]) -> None:
        """Append a request's costs to the file of costs, if there is one."""
        if self.costs is None:
            return
        line = {
            "task": request.task_name,
            "doc_id": request.doc_id,
            "request": request.request_type,
            **costs,
        }
        self.costs.parent.mkdir(parents=True, exist_ok=True)
        with self.costs.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@contextmanager
def _named_in_errors(request: Instance) -> Iterator[None]:
    """Name the task and the document of a request in a ValueError of this block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"task {request.task_name}, document {request.doc_id}: {error}") from error


def main(line: list[str]) -> None:
    """Run lm-eval's own command with this model registered; costs go next to its --output_path.

    Args:
        line: the arguments of lm-eval's command.
    """
    # Importing this module has registered the model, before lm-eval reads its arguments.
    from lm_eval.__main__ import cli_evaluate

    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-o", "--output_path", type=Path)
    output = parser.parse_known_args(line)[0].output_path
    if output is not None:
        name = f"costs_{time.strftime('%Y-%m-%dT%H-%M-%S')}.jsonl"
        is_file = output.suffix == ".json"
        FefDllm.default_costs = (
            output.with_name(f"{output.stem}_{name}") if is_file else output / name
        )
    sys.argv = ["lm-eval", *line]
    cli_evaluate()
