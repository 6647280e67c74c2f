"""The timed part of a run: items through OpenCompass's inferencer, methods interleaved, each item recorded.

Chunks of items pass through all methods before the next chunk, in alternating order (ABBA), so that a machine that
drifts drifts for all alike. What is timed is `decode` alone.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from mmengine.config import ConfigDict
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.registry import ICL_PROMPT_TEMPLATES, ICL_RETRIEVERS
from opencompass.utils.build import build_dataset_from_cfg

from harness.errors import UserError
from harness.record_schema import SCHEMA
from harness.records import Recorder
from model_wrappers import Backbone, Decoded
from model_wrappers.chat import content_length
from model_wrappers.opencompass_model import DiffusionModel, encode_chat

datasets.disable_progress_bars()


def item_seed(seed: int, suite: str, item: int) -> int:
    """The random seed of an item: a hash of (seed, suite, item), so that the order of work changes nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed} {suite} {item}".encode()).digest()[:6], "big")


class ItemInferencer(GenInferencer):  # type: ignore[misc]
    """OpenCompass's inferencer, telling its caller which item comes next; it writes no files of its own."""

    def __init__(self, model: DiffusionModel, before_item: Callable[[int], None]) -> None:
        # The base class makes its output folder on the spot, used or not: not in the user's.
        folder = tempfile.mkdtemp(prefix="inferencer-")
        super().__init__(model=model, max_out_len=model.gen_length, batch_size=1, output_json_filepath=folder)
        Path(folder).rmdir()
        self.is_main_process = False  # records are kept by the harness, item by item
        self._before_item = before_item

    def run(self, dataset: Any, template: Any, items: list[int]) -> None:
        """Infer these items of a dataset."""
        chosen = copy(dataset)
        chosen.reader = copy(dataset.reader)
        chosen.reader.dataset = {**dataset.reader.dataset, "test": dataset.reader.dataset["test"].select(items)}
        self._items = items
        self.inference(_retriever(chosen), prompt_template=template)

    def get_dataloader(self, datalist: list[Any], batch_size: int) -> Iterator[list[Any]]:
        for item, entry in zip(self._items, datalist, strict=True):
            self._before_item(item)
            yield [entry]


def _retriever(dataset: Any) -> Any:
    return ICL_RETRIEVERS.build({"type": "opencompass.openicl.icl_retriever.ZeroRetriever", "dataset": dataset})


@dataclass
class SuiteJob:
    """One suite of a run, ready: its dataset, prompts (ids) and one OpenCompass model per method."""

    suite: str
    config: dict[str, Any]
    dataset: Any
    template: Any
    prompts: list[torch.Tensor]
    models: dict[str, DiffusionModel]

    @property
    def golds(self) -> list[str]:
        """The references, as the dataset gives them."""
        column = self.config["reader_cfg"]["output_column"]
        return [str(gold) for gold in self.dataset.test[column]]


def models_for(config: dict[str, Any], suite: str, backbones: dict[str, Backbone]) -> dict[str, DiffusionModel]:
    """One OpenCompass model per method of a run's configuration, for one suite."""
    roles = config["models"]
    models = {}
    for name, method in config["methods"].items():
        settings = method["suites"][suite]
        draft_role = method["draft_role"]
        models[name] = DiffusionModel(
            backbones[roles[method["role"]][suite]],
            method["method"],
            settings["options"],
            settings["gen_length"],
            settings["block_length"],
            config["temperature"],
            draft=None if draft_role is None else backbones[roles[draft_role][suite]],
        )
    return models


def prepare(suite: str, config: dict[str, Any], models: dict[str, DiffusionModel], limit: int | None) -> SuiteJob:
    """Load a suite through OpenCompass and encode its prompts.

    Raises UserError for a malformed data file, and for a prompt that does not fit the model with its response.
    """
    try:
        dataset = build_dataset_from_cfg(ConfigDict(config))
        test = dataset.reader.dataset["test"]
        count = min(len(test), limit or len(test))
        dataset.reader.dataset["test"] = test.select(range(count))
    except Exception as error:  # whatever a loader makes of a broken file
        raise UserError(f"data file of {suite} is malformed: {config['path']}: {error}") from error
    template = ICL_PROMPT_TEMPLATES.build(ConfigDict(config["infer_cfg"]["prompt_template"]))
    job = SuiteJob(suite, config, dataset, template, [], models)
    for model in {id(model.backbone): model for model in models.values()}.values():  # its tokenizer and limit decide
        job.prompts = _encode(job, model)
    return job


def _encode(job: SuiteJob, model: DiffusionModel) -> list[torch.Tensor]:
    inferencer = ItemInferencer(model, lambda item: None)
    retriever = _retriever(job.dataset)
    entries = inferencer.get_generation_prompt_list_from_retriever_indices(
        retriever.retrieve(), retriever, "", max_seq_len=None, ice_template=None, prompt_template=job.template
    )
    prompts = [encode_chat(model.backbone, turns) for turns in model.parse_template(entries, mode="gen")]
    for item, prompt_P in enumerate(prompts):
        if len(prompt_P) + model.gen_length > model.backbone.max_length:
            raise UserError(
                f"{job.suite}, item {item}: prompt of {len(prompt_P)} tokens and response of {model.gen_length} exceed "
                f"the limit of {model.backbone.name}, {model.backbone.max_length} tokens"
            )
    return prompts


def run_suite(
    job: SuiteJob, recorder: Recorder, seed: int, chunk: int, finished: Callable[[str, int, str], None]
) -> None:
    """Decode and record every item that is not recorded yet; `finished(method, item, text)` after each one."""
    methods = list(job.models)
    warm: set[str] = set()
    for number, first in enumerate(range(0, len(job.prompts), chunk)):
        items = range(first, min(first + chunk, len(job.prompts)))
        for method in methods if number % 2 == 0 else methods[::-1]:
            pending = [item for item in items if not recorder.done(method, job.suite, item)]
            if not pending:
                continue
            if method not in warm:
                job.models[method].on_response = None
                job.models[method].generate([_turns(job, pending[0], job.models[method])])
                warm.add(method)
            _infer(job, method, pending, recorder, seed, finished)


def _turns(job: SuiteJob, item: int, model: DiffusionModel) -> Any:
    return model.parse_template(
        job.template.generate_item(job.dataset.test[item], output_field=job.config["reader_cfg"]["output_column"]),
        "gen",
    )


def _infer(
    job: SuiteJob,
    method: str,
    items: list[int],
    recorder: Recorder,
    seed: int,
    finished: Callable[[str, int, str], None],
) -> None:
    model = job.models[method]
    golds = job.golds
    current = -1

    def before(item: int) -> None:
        nonlocal current
        current = item
        model.seed = item_seed(seed, job.suite, item)

    def respond(prompt_P: torch.Tensor, out: Decoded, text: str) -> None:
        key = {"method": method, "suite": job.suite, "item": current}
        windows = [{**key, **vars(window)} for window in out.trace.windows]
        recorder.add(_item(key, model, prompt_P, out, text, golds[current]), windows)
        finished(method, current, text)

    model.on_response = respond
    ItemInferencer(model, before).run(job.dataset, job.template, items)


def _item(
    key: dict[str, Any], model: DiffusionModel, prompt_P: torch.Tensor, out: Decoded, text: str, gold: str
) -> dict[str, Any]:
    """One line of items.jsonl; `correct` comes with scoring."""
    trace, windows = out.trace, out.trace.windows
    costs = {name: value for name, value in vars(trace).items() if name != "windows"}
    content, eos = content_length(model.backbone, out.tokens), int((out.tokens == model.backbone.eos_id).sum())
    return {
        "schema": SCHEMA,
        **key,
        "seed": model.seed,
        "prompt_tokens": len(prompt_P),
        "prompt_hash": _hash(prompt_P),
        "content_tokens": content,
        "eos_tokens": eos,
        "post_stop_tokens": len(out.tokens) - content - eos,  # behind the end, and no EOS
        "tokens_hash": _hash(out.tokens),
        "text": text,
        "gold": gold,
        "correct": None,
        **costs,
        "proposed": sum(w.proposed for w in windows),
        "accepted": sum(w.accepted for w in windows),
        "rejected": sum(w.accepted < w.proposed for w in windows),
        "committed": sum(w.committed for w in windows),
    }


def _hash(ids: torch.Tensor) -> str:
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()[:16]
