"""The timed part of a run: an item through a method, judged, as a record. What is timed is `decode` alone."""

from contextlib import nullcontext
from typing import Any

import torch

from harness.errors import UserError, explained
from harness.plugins import blame
from harness.records.schema import judged_hash
from harness.runs.problems import SuiteJob
from harness.runs.responses import cost_and_tokens
from harness.runs.watch import check_shared, shared_by, unchanged
from model_wrappers import Decoded
from model_wrappers.chat import response_text
from model_wrappers.trace import EventLog


def warm_up(job: SuiteJob, method: str, item: int) -> float:
    """Decode what is as long as an item, and none; its seconds. Raises UserError as `decode_item` does.

    An item itself would be measured with all that a decoder keeps of prompts that it has seen.
    """
    return _respond(job, method, item, job.prompt(method, item).roll(1), seed=0).trace.seconds


def _respond(
    job: SuiteJob,
    method: str,
    item: int,
    prompt_P: torch.Tensor,
    seed: int,
    log: EventLog | None = None,
    among: bool = False,
) -> Decoded:
    model = job.models[method]
    outside = not isinstance(model.decoder.source, str)
    who = f"{method} on {job.suite}, item {item}" + (", or one decoded at the same time" if among else "")
    if among:
        shared = shared_by(model.decoder.function, job.backbones) if outside else {}
        model = model.batched()
    try:
        with unchanged(job.backbones, who) if outside else nullcontext():
            out = model.respond(prompt_P, seed, log)
        if among and outside:
            check_shared(shared, who, model.decoder.function, job.backbones)
        return out
    except BaseException as error:  # a decoder may call sys.exit, or be cancelled
        if isinstance(error, KeyboardInterrupt):
            raise
        message = blame(model.decoder, error)
        if isinstance(error, UserError) or (message is None and not isinstance(error, ValueError)):
            raise
        alone = "; in a batch responses take turns at each call of the model, --batch 1 decodes them one by one"
        said = f"{message or error}{alone if among and outside else ''}"
        raise UserError(f"{method} on {job.suite}, item {item}: {said}") from error


def decode_item(
    job: SuiteJob, method: str, item: int, seed: int, log: EventLog | None = None, among: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One item by one method: its line of items.jsonl, and those of windows.jsonl.

    log: what receives the events of the response. among: others, as a job of `batches.at_once`. `correct` is null where
    the suite is scored after the run. Raises UserError, naming method, suite and item, if the model's logits are not
    finite, a decoder from outside fails, or the judge does.
    """
    model = job.models[method]
    prompt_P = job.prompt(method, item)
    out = _respond(job, method, item, prompt_P, seed, log, among)
    text = response_text(model.backbone, out.tokens)
    key = {"method": method, "suite": job.suite, "item": item}
    windows = [{**key, **vars(window)} for window in out.trace.windows]
    verdict, why = None, ""
    if job.judge is not None:  # whatever an evaluator from outside makes of a text
        with explained(f"{method} on {job.suite}, item {item}: its evaluator fails", Exception):
            verdict, why = job.judge.explained(job.draw(item)[0], text)
    judged = {"text": text, "gold": job.golds[item], "correct": verdict} | ({"why": why} if why else {})
    judged |= {} if verdict is None else {"judged": judged_hash(text, job.golds[item], verdict)}
    return cost_and_tokens(key, seed, model.backbone, prompt_P, out) | judged, windows
