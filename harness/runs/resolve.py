"""From options to a run: the configuration, and the suites and decoders that it names, before
anything is loaded or written.

The configuration holds all that determines tokens and forwards. Its hash names it, and a run's
folder belongs to one configuration for ever.
"""

import json
import os
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
from harness.suites.registry import split_named, suites_named
from harness.suites.spec import Suite
from model_wrappers.api import check_temperature
from model_wrappers.backbones.placement import main_device
from model_wrappers.backbones.registry import SHIPPED, device_named, dtype_named
from model_wrappers.decoders import Decoder
from model_wrappers.options import meant

Suites = Mapping[str, Suite]
Decoders = Mapping[str, Decoder]
# The most responses of a batch.
MOST_AT_ONCE = 1024
# Responses decoded at once in an untimed run without --batch, if a suite has more than MANY items.
UNTIMED_BATCH = 16
MANY = 100
# Items of a chunk in an untimed run. A batched chunk has more, for towards its end fewer and fewer
# responses share a call.
CHUNK = 5
BATCHED_CHUNK = 32
# By the option that --published sets: the field of `Decoding` that has its value.
OF_AUTHORS = {"methods": "decoder", "temperature": "temperature", "prompt": "prompt"}
COMMON = ("gen_length", "block_length", "stop_at_eos")


@dataclass(frozen=True)
class ResolvedRun:
    """A run: its configuration, the objects that it names, and the workers.

    Attributes:
        config: the configuration.
        suites: by name.
        decoders: by the method's key.
        data: the folder of real problems; None if there are none.
        workers: the workers of --workers; None if this process decodes.
        one_at_a_time: methods that are not batched, though others are.
        given: options for run.json, which a later --resume takes again.
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
        UserError or ValueError: an unknown name, with the valid ones in the message, or options
            that do not fit together.
    """
    workers = workers_of(options)
    # Methods before suites: this loads the plugins, which may bring suites too.
    presets = methods_named(options.methods, options.plugin)
    suites = suites_named(options.suite)
    # The published decoder replaces the methods, so they are looked up again.
    if options.published:
        options = as_published(options, suites)
        presets = methods_named(options.methods)
    decoders = {name: preset.decoder for name, preset in presets.items()}
    _check_decoding(options, decoders)
    device = _device(options)

    models = with_tuned_roles(read_models(options.model, suites), presets)
    # Models that do not ship with this project: data and lengths have other defaults with them.
    foreign = [name for name in models["base"].values() if name not in SHIPPED]
    data = _data(options.data, suites, foreign)
    generated = split_named(data) is not None
    small = _of_small_models(suites, foreign, generated)
    common = {name: getattr(options, name) for name in COMMON}
    methods = methods_of(presets, suites, models, small, common, options.published)

    seeds = _seeds(options.seed)
    items = options.limit and options.limit * options.samples
    batch = _batch(options, _has_many_items(suites, items))
    # The responses of a batch share every call, so that none has seconds of its own.
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
    _warn(suites, config)
    return ResolvedRun(
        config,
        suites,
        decoders,
        data=Path(data) if data and not generated else None,
        workers=workers,
        # A decoder from outside may rely on being alone in its process, unless --batch was given.
        one_at_a_time=_from_outside(decoders) if options.batch is None else frozenset(),
        given=resumed(options),
    )


def _with_items(
    options: RunOptions, config: RunConfig, workers: Workers | None
) -> tuple[RunConfig, Workers | None]:
    """The configuration with the items of --items in the place of a limit; the workers' options
    too."""
    if options.items is None:
        return config, workers
    items = chosen_items(options.items, config, options.limit)
    if workers is not None:
        # As numbers: a worker on another machine may not have the folder of wrong:RUN.
        workers = replace(workers, options=replace(workers.options, items=items, limit=None))
    return structs.replace(config, items=items, limit=None), workers


def as_published(options: RunOptions, suites: Suites) -> RunOptions:
    """Options with the decoder, temperature and prompt of the base model's authors, unless these
    options were given.

    Args:
        options: with --published.
        suites: the suites by name.

    Raises:
        UserError: the authors' settings are unknown, or differ between the suites.
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
    # `named` is no field, so `replace` would drop it: the names of the options that were given.
    changed = replace(options, **changes)
    vars(changed)["named"] = named
    return changed


def _device(options: RunOptions) -> torch.device:
    """The device of a run, or the kind of device that models with a map compute on.

    Raises:
        UserError or ValueError: a device that is not here, or options that exclude a device map.
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
    """A value, or UNSET for the usual one, which run.json leaves out: it is then equal to records
    that are older than the option."""
    return value if condition else UNSET


def _warn(suites: Suites, config: RunConfig) -> None:
    """Warn of suites that are misjudged, of models whose users report that temperature 0 fails,
    and of several draws that will probably be the same."""
    lines = []
    for suite in suites.values():
        fault = suite.misjudged(config.prompt)
        if fault:
            lines.append(f"{suite.name}: {fault}")
    reports = {}
    for method in config.methods.values():
        for name, model in config.models[method.role].items():
            report = greedy_report(model, name, method.method, config.temperature or 0.0)
            if report:
                reports[model] = f"{method.label} at temperature 0: {report}"
    for model, report in reports.items():
        lines.append(f"{model}: {report}; --published decodes as its authors do")
    if len(config.draws) > 1 and not config.temperature:
        lines.append(
            "at temperature 0 a method that draws nothing gives a problem the same response every"
            " time; --temperature 0.7 draws tokens"
        )
    for line in lines:
        print(line, file=sys.stderr)


def _check_decoding(options: RunOptions, decoders: Decoders) -> None:
    """Raise UserError or ValueError for options that do not fit the decoders or each other."""
    for decoder in decoders.values():
        check_temperature(decoder, options.temperature)
    if options.reads_at is not None and not options.trust_remote_code:
        raise UserError(
            "--reads-at is for models of no known family: give --trust-remote-code, or leave it out"
        )


def _of_small_models(suites: Suites, foreign: Collection[str], generated: bool) -> list[str]:
    """The suites on which a small model's lengths are used: all for models of this project, for
    others those with generated problems."""
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
    """The part of the table of models that a run loads; with `base`, which names the run's
    folder."""
    roles: set[str | None] = {"base"}
    for method in methods.values():
        roles |= {method.role, method.draft_role}
    for preset in presets.values():
        roles |= set(preset.roles.values())
    return {role: names for role, names in models.items() if role in roles}


def _from_outside(decoders: Decoders) -> frozenset[str]:
    """The methods whose decoders come from outside: their source is a function, not a path."""
    return frozenset(
        name for name, decoder in decoders.items() if not isinstance(decoder.source, str)
    )


def _has_many_items(suites: Suites, limit: int | None) -> bool:
    """Whether a suite has more than MANY items, as far as is known before they are loaded."""
    if limit is not None and limit <= MANY:
        return False
    # None: a suite of OpenCompass's, whose problems are not read yet, counts as large.
    files = [suite.questions for suite in suites.values()]
    return any(file is None or len(read_questions(file)) > MANY for file in files)


def _dtype(name: str | None, device: torch.device) -> str:
    """The name of a dtype, or "auto". Raises ValueError for an unknown one."""
    if name == "auto":
        return name
    return str(dtype_named(name, device)).removeprefix("torch.")


def _data(option: str | None, suites: Suites, foreign: Sequence[str]) -> str:
    """The source of the problems: a folder, or `generated...`; "" if all are files of questions.

    Args:
        option: the value of --data.
        suites: the suites by name.
        foreign: models that do not ship with this project. Without any, problems are generated
            unless --data names a folder.

    Raises:
        UserError: --data is needed.
    """
    if all(suite.questions is not None for suite in suites.values()):
        return ""
    # OpenCompass's variable for the folder of its data sets.
    default = os.environ.get("COMPASS_DATA_CACHE") if foreign else "generated"
    data = option or default
    if data is None:
        raise UserError(
            f"--data FOLDER or --data generated is needed for {foreign[0]}, which does not ship"
            f" with this project{meant(foreign[0], SHIPPED)}"
        )
    generated = split_named(data)
    if generated is None:
        return data
    # In one spelling: whether two runs have the same problems is decided by this text.
    split, seed = generated
    name = "generated-dev" if split == "dev" else "generated"
    return f"{name}:{seed}" if seed > 0 else name


def _hashes(suites: Suites, data: Path) -> dict[str, str]:
    """SHA-256 of the files of real problems by suite."""
    return {name: files_hash(suite.files(False, data)) for name, suite in suites.items()}


def _suite(suite: Suite, generated: bool) -> SuiteName:
    """A suite as run.json names it; for real problems with OpenCompass's configuration."""
    if suite.questions is not None:
        return SuiteName(suite.title, questions=_questions(suite.questions))
    if generated:
        # Raises for a suite without a generator, before anything is loaded.
        _ = suite.generated
        return SuiteName(suite.title)
    return SuiteName(suite.title, suite.configuration or UNSET, suite.configuration_hash())


def _questions(questions: Questions) -> QuestionsName:
    """A file of questions as run.json names it. Without folders: a moved file is the same one."""
    file = questions.judge_file
    judge = questions.judge if file is None else f"{file.name}:{questions.judge.rpartition(':')[2]}"
    digest = UNSET if file is None else code_hash(file)
    sha256 = file_hash(questions.file)
    return QuestionsName(
        questions.file.name, sha256, questions.prompt, questions.answer, judge, digest
    )


def _batch(options: RunOptions, many: bool) -> int | Literal["auto"] | None:
    """The number of responses that are decoded at once; None for one. Raises UserError for a number
    that is out of range.

    Without --batch it is UNTIMED_BATCH in an untimed run whose calls can be packed, if a suite has
    `many` items.
    """
    batch = options.batch
    # Options with which the model's calls are not this project's plain forwards.
    others = ("graphs", "trust_remote_code", "device_map")
    unpacked = [name for name in others if getattr(options, name)]
    if batch is None and options.untimed and many and not unpacked:
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
    """The arguments that chat templates are rendered with. Raises UserError for text that is no
    JSON object, and for arguments without a template."""
    option = options.chat_template_args
    try:
        # A dict goes through JSON too, so that it is what run.json will give back.
        arguments = json.loads(option if isinstance(option, str) else json.dumps(option or {}))
        # Python's JSON takes NaN, which is none.
        json.dumps(arguments, allow_nan=False)
    except (ValueError, TypeError):
        arguments = None
    if not isinstance(arguments, dict):
        raise UserError(
            f"--chat-template-args {str(option)[:60]} must be a JSON object, such as"
            " '{\"enable_thinking\": true}'"
        )
    if arguments and options.prompt == "plain":
        raise UserError(
            "--chat-template-args are for chat templates, and --prompt plain takes none: leave"
            " one out"
        )
    return arguments


def _seeds(option: str | int | tuple[int, ...]) -> tuple[int, ...]:
    """The seeds of --seed. Raises UserError for text that is no list of seeds."""
    text = ",".join(map(str, option)) if isinstance(option, tuple) else str(option)
    parts = text.replace(" ", "").split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise UserError(f"--seed {text} must be whole numbers of at least 0, as 0,1,2")
    seeds = tuple(map(int, parts))
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seed {text} names a seed twice")
    return seeds
