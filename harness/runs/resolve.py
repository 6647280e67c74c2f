"""What a run is: its options resolved once, to a configuration and what it names, before anything
is loaded or written.

The configuration is the whole of what determines tokens and forwards; its hash names it, and a run
folder belongs to one configuration for ever. Suites and decoders go with it as objects.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import UNSET, structs

from harness.errors import UserError
from harness.methods.presets import Preset
from harness.methods.schedules import Roles
from harness.records.files import code_hash, file_hash, files_hash
from harness.records.schema import Method, QuestionsName, RunConfig, SuiteName
from harness.runs.chosen import chosen_items
from harness.runs.models import methods_of, read_models, with_tuned_roles
from harness.runs.options import RunOptions, resumed
from harness.runs.pool import Workers, workers_of
from harness.runs.selection import methods_named
from harness.suites.published import greedy_report, published_of_model
from harness.suites.questions import Questions, read_questions
from harness.suites.registry import SUITES, split_named, suites_named
from harness.suites.spec import Suite
from model_wrappers.api import check_temperature
from model_wrappers.backbones.placement import main_device
from model_wrappers.backbones.registry import SHIPPED, device_named, dtype_named
from model_wrappers.decoders import METHODS, Decoder
from model_wrappers.options import meant

Suites = Mapping[str, Suite]
Decoders = Mapping[str, Decoder]
WHOLE = re.compile(r"\s*-?[0-9]+\s*")
MOST_AT_ONCE = 1024  # responses of a batch
# Where seconds do not count, so many are decoded at once, of more items than that.
UNTIMED_BATCH = 16
MANY = 100
# Items of a chunk where seconds do not count. In batches there are more, for at its end fewer and
# fewer are under way.
CHUNK = 5
BATCHED_CHUNK = 32
# What a model's authors decode with, by the option that it stands for.
OF_AUTHORS = {"methods": "decoder", "temperature": "temperature", "prompt": "prompt"}
COMMON = ("gen_length", "block_length", "stop_at_eos")


@dataclass(frozen=True)
class ResolvedRun:
    """A run with what its configuration names: suites by name, decoders by the method's key; and
    who decodes.

    data: the folder of its real problems; None where there are none. one_at_a_time: methods whose
    responses are not decoded at once, though others are. given: options for run.json.
    """

    config: RunConfig
    suites: dict[str, Suite]
    decoders: dict[str, Decoder]
    data: Path | None = None
    workers: Workers | None = None
    one_at_a_time: frozenset[str] = frozenset()
    given: Mapping[str, Any] = field(default_factory=dict)


def resolve(options: RunOptions) -> ResolvedRun:
    """A run from its options.

    Raises:
        UserError or ValueError: anything unknown, with the valid choices, or options that do not
            fit together.
    """
    workers = workers_of(options)
    presets = methods_named(options.methods, options.plugin)  # a plugin may bring suites too
    suites = suites_named(options.suite)
    if options.published:
        options = as_published(options, suites)
        presets = methods_named(options.methods)
    decoders = {name: preset.decoder for name, preset in presets.items()}
    _check_decoding(options, decoders)
    device = _device(options)

    models = with_tuned_roles(read_models(options.model, suites), presets)
    foreign = [name for name in models["base"].values() if name not in SHIPPED]
    data = _data(options.data, suites, foreign)
    generated = split_named(data) is not None
    small = _of_small_models(suites, foreign, generated)
    common = {name: getattr(options, name) for name in COMMON}
    methods = methods_of(presets, suites, models, small, common, options.published)

    seeds = _seeds(options.seed)
    most = options.limit and options.limit * options.samples
    batch = _batch(options, _has_many_items(suites, most))
    timed = not options.untimed and batch is None
    template_args = _template_args(options)
    config = RunConfig(
        models=_used_models(models, methods, presets),
        suites={name: _suite(suite, generated) for name, suite in suites.items()},
        methods=methods,
        data=data if generated else _hashes(suites, Path(data)),
        limit=options.limit,
        temperature=options.temperature,
        seed=seeds[0],
        seeds=_set_if(len(seeds) > 1, seeds),
        samples=_set_if(options.samples > 1, options.samples),
        device=str(device),
        device_map=_set_if(options.device_map is not None, options.device_map),
        dtype=_dtype(options.dtype, device),
        compile=False,
        graphs=options.graphs,
        threads=options.threads if workers is None else workers.threads,
        chunk=_chunk(timed, batch is not None),
        batch=_set_if(batch is not None, batch),
        timed=timed,
        traced=options.trace,
        trust_remote_code=_set_if(options.trust_remote_code, True),
        reads_at=_set_if(options.reads_at is not None, options.reads_at),
        prompt=_set_if(options.prompt == "plain", "plain"),
        chat_template_args=_set_if(bool(template_args), template_args),
    )
    config, workers = _with_items(options, config, workers)
    _say_misjudged(suites, config)
    _say_greedy(config)
    _say_same_responses(config)
    return ResolvedRun(
        config,
        suites,
        decoders,
        data=Path(data) if data and not generated else None,
        workers=workers,
        # The decoder of somebody else may count on being alone in its process.
        one_at_a_time=_from_outside(decoders) if options.batch is None else frozenset(),
        given=resumed(options),
    )


def _with_items(
    options: RunOptions, config: RunConfig, workers: Workers | None
) -> tuple[RunConfig, Workers | None]:
    """The items that were chosen in the place of a limit, for workers too."""
    if options.items is None:
        return config, workers
    items = chosen_items(options.items, config, options.limit)
    if workers is not None:
        # A worker need not have the folder of the run that the items are wrong in.
        workers = replace(workers, options=replace(workers.options, items=items, limit=None))
    return structs.replace(config, items=items, limit=None), workers


def _say_same_responses(config: RunConfig) -> None:
    """A line where several seeds or samples can be expected to write the same."""
    if len(config.draws) > 1 and not config.temperature:
        print(
            "at temperature 0 a method that draws nothing gives a problem the same response every"
            " time; --temperature 0.7 draws tokens",
            file=sys.stderr,
        )


def as_published(options: RunOptions, suites: Suites) -> RunOptions:
    """Options with the decoder, the temperature and the prompt of the base model's authors, where
    others were not given.

    Raises:
        UserError: what they used is not known, or not the same for all suites.
    """
    models = read_models(options.model, suites)["base"]
    decodings = []
    for suite, model in models.items():
        entry = published_of_model(model, suite)
        if entry is None:
            raise UserError(
                f"--published: harness/suites/published.toml has no settings of {model} on {suite};"
                " leave that suite or --published out"
            )
        decodings.append(entry.decoding_on(suite))
    named = vars(options).get("named", frozenset())
    changes: dict[str, Any] = {}
    for name, attribute in OF_AUTHORS.items():
        if name in named:
            continue
        values = list(dict.fromkeys(getattr(decoding, attribute) for decoding in decodings))
        if len(values) > 1:
            texts = " or ".join(map(str, values))
            raise UserError(
                f"--published: the {attribute} is {texts}, by suite: run these suites apart, or"
                f" give --{name}"
            )
        changes[name] = values[0]
    changed = replace(options, **changes)
    vars(changed)["named"] = named
    return changed


def _device(options: RunOptions) -> torch.device:
    """The device of a run, or the kind of device that models with a map compute on.

    Raises:
        UserError or ValueError: a device that is not here, or options that a map does not go with.
    """
    if options.device_map is None:
        return device_named(options.device, options.graphs)
    if options.device != "cpu" or "device" in vars(options).get("named", ()):
        raise UserError("--device-map says where the models are: leave --device out")
    if options.graphs:
        raise UserError(
            "--graphs are of models on one device, and --device-map spreads them: leave one out"
        )
    return main_device(options.device_map)


def _set_if(condition: bool, value: Any) -> Any:
    """A value of a configuration that is left out where it is the usual one."""
    return value if condition else UNSET


def _say_misjudged(suites: Suites, config: RunConfig) -> None:
    for name, suite in suites.items():
        wrong = suite.misjudged(config.prompt)
        if wrong:
            print(f"{name}: {wrong}", file=sys.stderr)


def _say_greedy(config: RunConfig) -> None:
    """A line for each model that is decoded as its users report to fail."""
    reports = {}
    for method in config.methods.values():
        for suite, model in config.models[method.role].items():
            report = greedy_report(model, suite, method.method, config.temperature or 0.0)
            if report:
                reports[model] = f"{method.label} at temperature 0: {report}"
    for model, report in reports.items():
        print(f"{model}: {report}; --published decodes as its authors do", file=sys.stderr)


def _check_decoding(options: RunOptions, decoders: Decoders) -> None:
    """Raise UserError or ValueError for options that do not fit the decoders or each other."""
    for decoder in decoders.values():
        check_temperature(decoder, options.temperature)
    if options.reads_at is not None and not options.trust_remote_code:
        raise UserError(
            "--reads-at is for models of no known family: give --trust-remote-code, or leave it out"
        )


def _of_small_models(suites: Suites, foreign: Collection[str], generated: bool) -> list[str]:
    """The suites with a small model's settings: all, or of a foreign model the generated ones."""
    if not foreign:
        return list(suites)
    return [name for name, suite in suites.items() if generated and suite.questions is None]


def _chunk(timed: bool, batched: bool) -> int:
    """The most items of a chunk."""
    if batched:
        return BATCHED_CHUNK
    return 1 if timed else CHUNK


def _used_models(
    models: Roles, methods: Mapping[str, Method], presets: Mapping[str, Preset]
) -> Roles:
    """The part of the table of models that a run loads."""
    roles: set[str | None] = {"base"}
    for method in methods.values():
        roles |= {method.role, method.draft_role}
    for preset in presets.values():
        roles |= set(preset.roles.values())
    return {role: names for role, names in models.items() if role in roles}


def _from_outside(decoders: Decoders) -> frozenset[str]:
    """The methods whose decoders are not of this package."""
    return frozenset(
        name for name, decoder in decoders.items() if not isinstance(decoder.source, str)
    )


def _has_many_items(suites: Suites, limit: int | None) -> bool:
    """Whether a suite has more than MANY items, as far as that is known before they are loaded."""
    if limit is not None and limit <= MANY:
        return False
    files = [suite.questions for suite in suites.values()]
    return any(file is None or len(read_questions(file)) > MANY for file in files)


def _dtype(name: str | None, device: torch.device) -> str:
    """The name of a dtype, or "auto". Raises ValueError for an unknown one."""
    if name == "auto":
        return name
    return str(dtype_named(name, device)).removeprefix("torch.")


def _data(given: str | None, suites: Suites, foreign: Sequence[str]) -> str:
    """Where problems come from: a folder, or `generated...`; "" where all are files of questions.

    Args:
        foreign: models that do not ship with this project; without any, problems are generated
            unless `given` names a folder.

    Raises:
        UserError: --data has to be given.
    """
    if all(suite.questions is not None for suite in suites.values()):
        return ""
    usual = os.environ.get("COMPASS_DATA_CACHE") if foreign else "generated"
    data = given or usual
    if data is None:
        kinds: dict[str, Collection[str]] = {
            "a method, for --methods": METHODS,
            "a suite, for --suite": SUITES,
        }
        raise UserError(
            f"--data FOLDER or --data generated is needed for {foreign[0]}, which does not ship"
            f" with this project{meant(foreign[0], SHIPPED, kinds)}"
        )
    drawn = split_named(data)
    if drawn is None:
        return data
    # In one spelling, for problems are compared by it.
    split, seed = drawn
    name = "generated-dev" if split == "dev" else "generated"
    return f"{name}:{seed}" if seed > 0 else name


def _hashes(suites: Suites, data: Path) -> dict[str, str]:
    """SHA-256 of real problems by suite."""
    return {name: files_hash(suite.files(False, data)) for name, suite in suites.items()}


def _suite(suite: Suite, generated: bool) -> SuiteName:
    """A suite as a run names it; real problems with the configuration that they are asked by."""
    if suite.questions is not None:
        return SuiteName(suite.title, questions=_questions(suite.questions))
    if generated:
        _ = suite.generated  # refused here if there is none
        return SuiteName(suite.title)
    return SuiteName(suite.title, suite.configuration or UNSET, suite.configuration_hash())


def _questions(questions: Questions) -> QuestionsName:
    """A file of questions as a run names it, without the folders it lies in."""
    file = questions.judge_file
    judge = questions.judge if file is None else f"{file.name}:{questions.judge.rpartition(':')[2]}"
    digest = UNSET if file is None else code_hash(file)
    sha256 = file_hash(questions.file)
    return QuestionsName(
        questions.file.name, sha256, questions.prompt, questions.answer, judge, digest
    )


def _batch(options: RunOptions, worth: bool) -> int | Literal["auto"] | None:
    """How many responses are decoded at once; None for one. Raises UserError for what is no such
    number.

    Where it is not said, UNTIMED_BATCH in an untimed run whose calls can be packed if that is
    `worth` it: a suite has more than MANY items.
    """
    batch = options.batch
    others = ("graphs", "trust_remote_code", "device_map")
    unpacked = [name for name in others if getattr(options, name)]
    if batch is None and options.untimed and worth and not unpacked:
        return UNTIMED_BATCH
    if isinstance(batch, int) and not 1 <= batch <= MOST_AT_ONCE:
        raise UserError(f"--batch {batch} must be 1 to {MOST_AT_ONCE} responses at once, or auto")
    if batch not in (None, 1) and unpacked:
        other = unpacked[0].replace("_", "-")
        raise UserError(
            f"--batch packs the calls of plain forwards, and --{other} makes others: leave one out"
        )
    return None if batch == 1 else batch


def _template_args(options: RunOptions) -> dict[str, Any]:
    """What chat templates are rendered with. Raises UserError for what is no JSON object, or where
    there is none."""
    given = options.chat_template_args
    try:
        found = json.loads(given if isinstance(given, str) else json.dumps(given or {}))
        json.dumps(found, allow_nan=False)
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise UserError(
            f"--chat-template-args {str(given)[:60]} must be a JSON object, such as"
            " '{\"enable_thinking\": true}'"
        )
    if found and options.prompt == "plain":
        raise UserError(
            "--chat-template-args are for chat templates, and --prompt plain takes none: leave"
            " one out"
        )
    return found


def _seeds(given: str | int | tuple[int, ...]) -> tuple[int, ...]:
    """The seeds of a run. Raises UserError for text that names none."""
    text = ",".join(map(str, given)) if isinstance(given, tuple) else str(given)
    parts = text.split(",")
    if not all(WHOLE.fullmatch(part) for part in parts):
        raise UserError(f"--seed {text} must be a whole number, or several as 0,1,2")
    seeds = tuple(map(int, parts))
    if min(seeds) < 0:
        raise UserError(f"--seed {text} must be at least 0")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seed {text} names a seed twice")
    return seeds
