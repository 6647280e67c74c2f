"""The timed part of a run: items through the methods, interleaved, each item judged and recorded.

OpenCompass loads the problems, builds the prompts and judges the answers; a prompt is encoded once for all methods.
Chunks of items pass through all methods before the next chunk, in alternating order (ABBA), so that a machine that
drifts drifts for all alike. What is timed is `decode` alone.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import datasets
import torch
from mmengine.config import ConfigDict
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.registry import ICL_PROMPT_TEMPLATES, ICL_RETRIEVERS
from opencompass.utils.build import build_dataset_from_cfg

from harness.errors import UserError
from harness.records.schema import SCHEMA, RunConfig
from harness.records.store import Recorder
from harness.runs.judging import Judge
from harness.suites.registry import SUITES
from model_wrappers import Backbone, Decoded
from model_wrappers.chat import content_length, response_text
from model_wrappers.opencompass_model import DiffusionModel, encode_chat

datasets.disable_progress_bars()
Finished = Callable[[str, str, bool | None], None]  # suite, method, verdict


def item_seed(seed: int, suite: str, item: int) -> int:
    """The random seed of an item: a hash of (seed, suite, item), so that the order of work changes nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed} {suite} {item}".encode()).digest()[:6], "big")


@dataclass
class SuiteJob:
    """One suite of a run, ready: prompts (ids), references, a judge, and one OpenCompass model per method.

    judge: None for suites whose judging runs model-written code; these are scored after the run.
    """

    suite: str
    prompts: list[torch.Tensor]
    golds: list[str]
    judge: Judge | None
    models: dict[str, DiffusionModel]


def models_for(config: RunConfig, suite: str, backbones: dict[str, Backbone]) -> dict[str, DiffusionModel]:
    """One OpenCompass model per method of a run's configuration, for one suite."""
    models = {}
    for name, method in config.methods.items():
        setting, draft_role = method.suites[suite], method.draft_role
        models[name] = DiffusionModel(
            backbones[config.models[method.role][suite]],
            method.method,
            setting.options,
            setting.gen_length or 0,
            setting.block_length,
            config.temperature or 0.0,
            draft=None if draft_role is None else backbones[config.models[draft_role][suite]],
        )
    return models


def prepare(suite: str, config: dict[str, Any], models: dict[str, DiffusionModel], limit: int | None) -> SuiteJob:
    """Load a suite through OpenCompass and encode its prompts. config: OpenCompass's, of the dataset.

    Raises UserError for a malformed data file, and for a prompt that does not fit the model with its response.
    """
    try:
        dataset = build_dataset_from_cfg(ConfigDict(config))
        test = dataset.reader.dataset["test"]
        dataset.reader.dataset["test"] = test.select(range(min(len(test), limit or len(test))))
    except Exception as error:  # whatever a loader makes of a broken file
        raise UserError(f"data file of {suite} is malformed: {config['path']}: {error}") from error
    turns = _conversations(dataset, config, next(iter(models.values())))
    prompts: list[torch.Tensor] = []
    for model in {id(model.backbone): model for model in models.values()}.values():  # its tokenizer and limit decide
        prompts = [encode_chat(model.backbone, each) for each in turns]
        _check_fit(suite, prompts, model)
    golds = [str(gold) for gold in dataset.test[config["reader_cfg"]["output_column"]]]
    judge = None if SUITES[suite].executes else Judge(config["eval_cfg"], dataset.test, golds)
    return SuiteJob(suite, prompts, golds, judge, models)


def _conversations(dataset: Any, config: dict[str, Any], model: DiffusionModel) -> list[Any]:
    """The prompt of every item as chat turns, as OpenCompass's own inferencer makes it."""
    template = ICL_PROMPT_TEMPLATES.build(ConfigDict(config["infer_cfg"]["prompt_template"]))
    retriever = ICL_RETRIEVERS.build({**config["infer_cfg"]["retriever"], "dataset": dataset})
    with tempfile.TemporaryDirectory() as folder:  # the inferencer makes its output folder on the spot, used or not
        inferencer = GenInferencer(model, max_out_len=model.gen_length, output_json_filepath=folder)
    entries = inferencer.get_generation_prompt_list_from_retriever_indices(
        retriever.retrieve(), retriever, "", max_seq_len=None, ice_template=None, prompt_template=template
    )
    return list(model.parse_template(entries, mode="gen"))


def _check_fit(suite: str, prompts: list[torch.Tensor], model: DiffusionModel) -> None:
    for item, prompt_P in enumerate(prompts):
        if len(prompt_P) + model.gen_length > model.backbone.max_length:
            raise UserError(
                f"{suite}, item {item}: prompt of {len(prompt_P)} tokens and response of {model.gen_length} exceed "
                f"the limit of {model.backbone.name}, {model.backbone.max_length} tokens"
            )


def run_suite(job: SuiteJob, recorder: Recorder, seed: int, chunk: int, finished: Finished) -> None:
    """Decode, judge and record every item that is not recorded yet; `finished(suite, method, verdict)` after each."""
    methods = list(job.models)
    warm: set[str] = set()
    for number, first in enumerate(range(0, len(job.prompts), chunk)):
        items = range(first, min(first + chunk, len(job.prompts)))
        for method in methods if number % 2 == 0 else methods[::-1]:
            pending = [item for item in items if not recorder.done(method, job.suite, item)]
            if pending and method not in warm:
                warm_up(job, method, pending[0])
                warm.add(method)
            for item in pending:
                record, windows = decode_item(job, method, item, item_seed(seed, job.suite, item))
                recorder.add(record, windows)
                finished(job.suite, method, record["correct"])


def warm_up(job: SuiteJob, method: str, item: int) -> float:
    """Decode an item without recording it; returns its seconds."""
    return job.models[method].respond(job.prompts[item], seed=0).trace.seconds


def decode_item(job: SuiteJob, method: str, item: int, seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One item by one method: its line of items.jsonl, and those of windows.jsonl.

    `correct` is null where the suite is scored after the run.
    """
    model, prompt_P = job.models[method], job.prompts[item]
    out = model.respond(prompt_P, seed)
    text = response_text(model.backbone, out.tokens)
    key = {"method": method, "suite": job.suite, "item": item}
    windows = [{**key, **vars(window)} for window in out.trace.windows]
    verdict = None if job.judge is None else job.judge(item, text)
    return _record(key, seed, model, prompt_P, out) | {
        "text": text,
        "gold": job.golds[item],
        "correct": verdict,
    }, windows


def _record(
    key: dict[str, Any], seed: int, model: DiffusionModel, prompt_P: torch.Tensor, out: Decoded
) -> dict[str, Any]:
    """What an item cost, and its tokens in numbers."""
    windows = out.trace.windows
    costs = {name: value for name, value in vars(out.trace).items() if name != "windows"}
    content, eos = content_length(model.backbone, out.tokens), int((out.tokens == model.backbone.eos_id).sum())
    return {
        "schema": SCHEMA,
        **key,
        "seed": seed,
        "prompt_tokens": len(prompt_P),
        "prompt_hash": _hash(prompt_P),
        "content_tokens": content,
        "eos_tokens": eos,
        "post_stop_tokens": len(out.tokens) - content - eos,  # behind the end, and no EOS
        "tokens_hash": _hash(out.tokens),
        **costs,
        "proposed": sum(w.proposed for w in windows),
        "accepted": sum(w.accepted for w in windows),
        "rejected": sum(w.accepted < w.proposed for w in windows),
        "committed": sum(w.committed for w in windows),
    }


def _hash(ids: torch.Tensor) -> str:
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()[:16]
