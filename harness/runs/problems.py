"""Loading a suite's problems through OpenCompass, and encoding their prompts once for all
methods."""

import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datasets
import torch
from mmengine.config import ConfigDict
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.registry import (
    ICL_EVALUATORS,
    ICL_PROMPT_TEMPLATES,
    ICL_RETRIEVERS,
    TEXT_POSTPROCESSORS,
)
from opencompass.utils.build import build_dataset_from_cfg

from harness.errors import UserError, explained
from harness.records.schema import PromptRecord, item_seed
from harness.runs.resolve import ResolvedRun
from harness.suites.questions import GIVEN
from harness.suites.spec import Suite
from harness.suites.texts import is_text
from model_wrappers import Backbone
from model_wrappers.chat import encode_template
from model_wrappers.costs import hash_of
from model_wrappers.opencompass_model import DiffusionModel, encode_chat

datasets.disable_progress_bars()
Prompts = list[torch.Tensor]
# Packages that evaluators of OpenCompass import only when they judge: after hours of decoding, if
# nobody looks for them before.
NEEDED = {
    "IFEvaluator": "langdetect",
    "HumanEvalPlusEvaluator": "evalplus",
    "MBPPPlus": "evalplus",
    "MATHVerifyEvaluator": "math_verify",
}


@dataclass(frozen=True)
class Problems:
    """One dataset of a suite.

    Attributes:
        config: OpenCompass's configuration of the dataset.
        dataset: the dataset that OpenCompass loaded.
    """

    config: dict[str, Any]
    dataset: Any

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rows(self) -> Any:
        """The test problems, up to the run's limit."""
        return self.dataset.reader.dataset["test"]

    @property
    def golds(self) -> list[str]:
        """The references, one for each problem; empty texts if the dataset has none."""
        column = self.config["reader_cfg"].get("output_column")
        return [""] * len(self) if column is None else [str(gold) for gold in self.rows[column]]


def load_problems(suite: Suite, configs: list[dict[str, Any]], limit: int | None) -> list[Problems]:
    """The datasets of a suite.

    Args:
        suite: the suite.
        configs: OpenCompass's configurations of its datasets.
        limit: the most problems of each dataset.

    Raises:
        UserError: a malformed file, or an evaluator that cannot be used here.
    """
    loaded = []
    for config in configs:
        problems = Problems(config, _dataset(suite.name, config, limit))
        fault = _fault(problems, suite.foreign)
        if fault:
            raise UserError(f"data file of {suite.name}{fault}: {config['path']}")
        _check_references(suite, problems)
        _check_evaluator(suite.name, config["eval_cfg"]["evaluator"])
        loaded.append(problems)
    return loaded


def _dataset(suite: str, config: dict[str, Any], limit: int | None) -> Any:
    """A dataset of OpenCompass's up to `limit` problems. Raises UserError for one that cannot be
    loaded."""
    try:
        # The cache of `datasets` knows a file by path and time, and may hold the problems of one
        # that was replaced. Each load has an empty cache, and keeps the problems in memory.
        with (
            tempfile.TemporaryDirectory() as cache,
            patch.multiple(
                datasets.config, HF_DATASETS_CACHE=cache, IN_MEMORY_MAX_SIZE=sys.maxsize
            ),
            patch.dict(os.environ),
        ):
            # With this variable of the shell, loaders would read another source than the file.
            os.environ.pop("DATASET_SOURCE", None)
            dataset = build_dataset_from_cfg(ConfigDict(config))
        test = dataset.reader.dataset["test"]
        dataset.reader.dataset["test"] = test.select(range(len(test))[:limit])
    except ImportError as error:
        raise UserError(f"OpenCompass's loader of {suite} cannot be used: {error}") from error
    # Any exception: loaders fail on a broken file in many ways.
    except Exception as error:
        cause = error.__cause__ or error
        problem = "cannot be read" if isinstance(cause, OSError) else "is malformed"
        # Loaders parse each line by itself, so that the error's own line number is always 1.
        fault = _json_fault(config) if isinstance(error, json.JSONDecodeError) else ""
        fault = fault or f"{config['path']}: {cause}"
        raise UserError(f"data file of {suite} {problem}: {fault}") from error
    return dataset


def _check_evaluator(suite: str, evaluator: dict[str, Any]) -> None:
    """Raise UserError for an evaluator that asks a model, lacks a package, or is unknown."""
    for name, package in NEEDED.items():
        if name in str(evaluator) and find_spec(package) is None:
            raise UserError(
                f"suite {suite} is judged by OpenCompass's {name}, which needs the package"
                f" {package}: install it with pip, then run again"
            )
    if "judge_cfg" in str(evaluator):
        raise UserError(
            f"suite {suite} asks another model to judge, and only evaluators without are run here"
        )
    kind = evaluator.get("type")
    if isinstance(kind, str) and ICL_EVALUATORS.get(kind) is None:
        raise UserError(f"suite {suite}: there is no evaluator {kind}; give its import path")


def _json_fault(config: dict[str, Any]) -> str:
    """Where a dataset's file is no JSON; "" if all is well."""
    path = Path(config["path"])
    # math.json is the default of MATH's loader.
    files = [path, *path.glob("*.jsonl"), path / config.get("file_name", "math.json")]
    for file in files:
        if not file.is_file() or file.suffix not in (".json", ".jsonl"):
            continue
        text = file.read_text("utf-8", errors="replace")
        parts = text.removesuffix("\n").split("\n") if file.suffix == ".jsonl" else [text]
        for number, part in enumerate(parts, 1):
            try:
                json.loads(part)
            except json.JSONDecodeError as error:
                return f"{file}, line {number + error.lineno - 1}: {error.msg}"
    return ""


def _fault(problems: Problems, foreign: bool) -> str:
    """The first column or value that prompts or judging need and that is missing; "" if none is.

    OpenCompass would leave a placeholder in the prompt for a missing column, and write None for a
    null. With `foreign`, values may have any type, but not be null.
    """
    reader = problems.config["reader_cfg"]
    present = problems.rows.column_names
    columns = list(filter(None, (*reader["input_columns"], reader.get("output_column"))))
    missing = [name for name in columns if name not in present]
    if present and missing:
        return f" has no column {', '.join(missing)} (it has {', '.join(present)})"
    if missing or not len(problems):
        return " holds no problems"
    for name in columns:
        for item, value in enumerate(problems.rows[name]):
            usable = value is not None if foreign else is_text(value)
            if not usable:
                null = ", or its answer is not in its suite's format" if value is None else ""
                return f", item {item}: {name} must be text, not {value!r}{null}"
    return ""


def _check_references(suite: Suite, problems: Problems) -> None:
    """Raise UserError for a reference that the configuration's postprocessor cannot read."""
    processor = ConfigDict(problems.config["eval_cfg"]).get("dataset_postprocessor")
    if processor is None:
        return
    process = TEXT_POSTPROCESSORS.get(processor["type"])
    for item, gold in enumerate(problems.golds):
        where = f"data file of {suite.name}, {problems.config['path']}, item {item}"
        with explained(f"{where}: the reference {gold!r} is not in its suite's format", Exception):
            process(gold)


def conversations(problems: Problems, model: DiffusionModel) -> list[Any]:
    """The prompt of every problem as chat turns, as OpenCompass's own inference task makes it.

    Args:
        problems: of one dataset.
        model: any method's; the response's length is needed, but does not change the prompt.
    """
    inference = ConfigDict(problems.config["infer_cfg"])
    templates = {
        name: ICL_PROMPT_TEMPLATES.build(inference[name])
        for name in ("ice_template", "prompt_template")
        if inference.get(name) is not None
    }
    retriever = ICL_RETRIEVERS.build({**inference["retriever"], "dataset": problems.dataset})
    # The inferencer creates its output folder even if nothing is written there.
    with tempfile.TemporaryDirectory() as folder:
        inferencer = GenInferencer(model, max_out_len=model.gen_length, output_json_filepath=folder)
    entries = inferencer.get_generation_prompt_list_from_retriever_indices(
        retriever.retrieve(),
        retriever,
        inferencer.gen_field_replace_token,
        max_seq_len=None,
        ice_template=templates.get("ice_template"),
        prompt_template=templates.get("prompt_template"),
    )
    return list(model.parse_template(entries, mode="gen"))


@dataclass
class SuiteJob:
    """One suite of a run, ready to decode.

    Attributes:
        suite: its name.
        prompts: of every item, LongTensors (P,).
        golds: the references of every item.
        problems: the loaded datasets.
        models: one OpenCompass model per method.
        seeds: of the run. Items number all problems for the first seed, then for the next.
        own_prompts: by the model's name, the prompts of autoregressive models that encode them
            otherwise.
        given: by method the responses to complete, LongTensors (G,), if the suite has any.
    """

    suite: str
    prompts: Prompts
    golds: list[str]
    problems: list[Problems]
    models: dict[str, DiffusionModel]
    seeds: tuple[int, ...] = (0,)
    own_prompts: dict[str, Prompts] = field(default_factory=dict)
    given: dict[str, Prompts] = field(default_factory=dict)

    def prompt(self, method: str, item: int) -> torch.Tensor:
        """The prompt of an item as the method's model reads it, LongTensor (P,)."""
        return self.own_prompts.get(self.models[method].backbone.name, self.prompts)[item]

    def seed(self, item: int) -> int:
        """The random seed that an item is decoded with."""
        number, problem = divmod(item, len(self.prompts) // len(self.seeds))
        return item_seed(self.seeds[number], self.suite, problem)

    @property
    def all_prompts(self) -> Prompts:
        """The shared prompts, and after them those of models that encode them otherwise."""
        return [*self.prompts, *chain.from_iterable(self.own_prompts.values())]

    @property
    def backbones(self) -> list[Backbone]:
        """The distinct models that the methods decode with, those of drafts last."""
        drafts = [model.options.get("draft") for model in self.models.values()]
        targets = [model.backbone for model in self.models.values()]
        # By id: methods share models, and not every method has a draft model.
        models = {id(model): model for model in (*targets, *drafts) if isinstance(model, Backbone)}
        return list(models.values())


def models_for(
    run: ResolvedRun, suite: str, backbones: dict[str, Backbone]
) -> dict[str, DiffusionModel]:
    """One OpenCompass model per method of a run, for one suite.

    Args:
        run: the run.
        suite: the suite's name.
        backbones: the loaded models by name.
    """
    config = run.config
    models = {}
    for name, method in config.methods.items():
        setting = method.suites[suite]
        draft_role = method.draft_role
        models[name] = DiffusionModel(
            backbones[config.models[method.role][suite]],
            run.decoders[name],
            setting.options,
            setting.gen_length or 0,
            setting.block_length,
            config.temperature or 0.0,
            draft=None if draft_role is None else backbones[config.models[draft_role][suite]],
        )
    return models


def prepare(
    suite: Suite,
    problems: list[Problems],
    models: dict[str, DiffusionModel],
    seeds: tuple[int, ...] = (0,),
    plain: bool = False,
    template: Mapping[str, Any] | None = None,
) -> SuiteJob:
    """Encode the prompts of a suite. For each seed, the problems of all datasets are numbered on.

    Args:
        suite: the suite.
        problems: its datasets.
        models: one OpenCompass model per method.
        seeds: of the run.
        plain: leave out the chat template.
        template: arguments that the chat template is rendered with.

    Raises:
        UserError: a prompt and its response do not fit a model, or models encode a prompt
            differently. Only autoregressive models next to others may have their own tokenizer and
            chat template.
    """
    longest = sorted(models.values(), key=lambda model: model.gen_length)
    turns = [turn for part in problems for turn in conversations(part, next(iter(models.values())))]
    # Sorted by length, so that of the methods that share a model the one with the longest response
    # is checked.
    by_backbone = {model.backbone.name: model for model in longest}
    encoded = {
        name: _encoded(suite.name, turns, model, plain, template) * len(seeds)
        for name, model in by_backbone.items()
    }
    causal = {model.backbone.name for model in longest if model.decoder.causal}
    prompts, own_prompts = _shared(suite.name, encoded, causal)
    golds = list(chain.from_iterable(part.golds for part in problems)) * len(seeds)
    templates = {
        name: _templates(suite.name, problems, model) * len(seeds) for name, model in models.items()
    }
    return SuiteJob(suite.name, prompts, golds, problems, models, seeds, own_prompts, templates)


def _templates(suite: str, problems: list[Problems], model: DiffusionModel) -> Prompts:
    """The partial responses that a model is to complete, LongTensors (G,); empty if the suite has
    none. Raises UserError for one that does not fit."""
    templates: Prompts = []
    rows = problems[0].rows
    if GIVEN in rows.column_names:
        for item, template in enumerate(rows[GIVEN]):
            with explained(f"{suite}, item {item}", ValueError):
                templates.append(encode_template(model.backbone, template, model.gen_length))
    return templates


def _encoded(
    suite: str,
    turns: list[Any],
    model: DiffusionModel,
    plain: bool,
    template: Mapping[str, Any] | None,
) -> Prompts:
    """The prompts as a model encodes them. Raises UserError for one that does not fit."""
    backbone = model.backbone
    prompts = []
    for item, turn in enumerate(turns):
        with explained(f"{suite}, item {item}", ValueError):
            prompt_P = encode_chat(backbone, turn, plain, template)
            if len(prompt_P) + model.gen_length > backbone.max_length:
                raise ValueError(
                    f"prompt of {len(prompt_P)} tokens and response of {model.gen_length} exceed"
                    f" the limit of {backbone.name}, {backbone.max_length} tokens"
                )
        prompts.append(prompt_P)
    return prompts


def _shared(
    suite: str, encoded: dict[str, Prompts], causal: Collection[str]
) -> tuple[Prompts, dict[str, Prompts]]:
    """The prompts that the models share, and by name those of autoregressive models that differ.

    Raises UserError if other models do not agree.
    """
    # False sorts first: the shared prompts are those of a diffusion model, if there is one.
    (first, prompts), *others = sorted(encoded.items(), key=lambda pair: pair[0] in causal)
    own_prompts = {}
    for name, model_prompts in others:
        pairs = zip(prompts, model_prompts, strict=True)
        different = [item for item, pair in enumerate(pairs) if not torch.equal(*pair)]
        if not different:
            continue
        if name not in causal or first in causal:
            raise UserError(
                f"{suite}, item {different[0]}: {first} and {name} encode the prompt"
                " differently, by their tokenizers or chat templates; give the models of all roles"
                " but ar the same, or make a run of each"
            )
        own_prompts[name] = model_prompts
    return prompts, own_prompts


def prompts_of(job: SuiteJob) -> list[PromptRecord]:
    """The shared prompts of a suite's items, as records have them."""
    backbone = next(model for model in job.backbones if model.name not in job.own_prompts)
    return [
        PromptRecord(
            job.suite, item, str(backbone.text_tokenizer().decode(prompt_P)), hash_of(prompt_P)
        )
        for item, prompt_P in enumerate(job.prompts)
    ]
