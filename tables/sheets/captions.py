"""What every caption says about a run: the model, the number of items, the machine, and doubts about its seconds."""

from collections import Counter
from pathlib import PurePath
from typing import Any

import pandas as pd
from msgspec import UNSET

from harness.measures.seconds import same_tokens_with, timing_sentences
from harness.measures.table import suite_titles, timed
from harness.records.files import nano_hashes
from harness.records.schema import RunConfig, RunRecord
from harness.records.store import KEY, Run

SMALL = 1e9  # with fewer parameters, results are not comparable with the paper's 8B
INCOMPARABLE = "not comparable with the paper's 8B results."
UNCOMMITTED = "The code had changes that no commit has."  # so that the record cannot be made again from one
UNTIMED = "Seconds were not measured for comparison{}."


def _untimed(config: RunConfig) -> str:
    many = "as many responses as memory had room for" if config.batch == "auto" else f"{config.batch} responses"
    return UNTIMED.format("" if config.batch is UNSET else f": {many} were decoded at once")


def setting(measured: pd.DataFrame, run: Run) -> list[str]:
    """Sentences for a caption: the model, the problems, items per suite, and the device, threads and dtype.

    From run.json's `weights` ({..: {name, parameters}}), `config.data` (a word where problems are generated, else the
    files' hashes) and `environment` (device, cpu, gpu, threads, dtype); what is missing there is left out.
    """
    counts = measured.groupby("suite")["items"].max()
    config, environment = run.config, run.meta.environment
    draws = config.draws
    counts = counts // len(draws)
    if counts.nunique() == 1:
        items = f"{counts.iloc[0]} item{'' if counts.iloc[0] == 1 else 's'} per suite"
    else:
        titles = suite_titles(run)
        items = f"Items: {', '.join(f'{titles[suite]} {counts[suite]}' for suite in titles if suite in counts)}"
    if len(draws) > 1:
        items += (
            f", each with the seeds {', '.join(map(str, draws))}: accuracies are means ± standard deviations over them"
        )
    own = _questions(config)
    but = f" but for {', '.join(own)}" if own else ""
    generated = f", generated in the suites' formats{but}" if config.generated else ""
    where = machine(environment, True, *_ways(config), _workers(run.meta))
    return [
        _models(run.meta),
        *_origins(config),
        f"{items}{generated}.",
        *_configurations(config),
        *([f"Own questions: {'; '.join(own.values())}."] if own else []),
        *(["Decoding ends at EOS."] if _stops(config) else []),
        *([f"Environment: {where}."] if where else []),
        *([UNCOMMITTED] if environment.get("dirty") else []),
        *_left_out(run),
    ]


def timing(run: Run) -> list[str]:
    """Sentences for a table with seconds: whether they were measured for comparison, and reasons for doubt."""
    if not timed(run):
        return [_untimed(run.config)]
    return [*_speed(run), *timing_sentences(run.speed or run)]


def _speed(run: Run) -> list[str]:
    """Where a run's seconds are from, if not from itself."""
    if run.speed is None:
        return []
    counts = sorted({int(count) for count in run.speed.items.groupby("suite")["item"].nunique()})
    items = "1 problem" if counts == [1] else f"{' to '.join(map(str, {counts[0]: 0, counts[-1]: 0}))} problems"
    own = machine(run.speed.meta.environment, True, *_ways(run.speed.config), _workers(run.speed.meta))
    return [f"Speed is of a run of its own over the first {items} of each suite, {same_tokens_with(run)}: {own}."]


def _models(meta: RunRecord) -> str:
    models = [model for model in meta.weights.values() if isinstance(model.get("name"), str)]
    names = list(dict.fromkeys(PurePath(model["name"]).name for model in models))
    parameters = max((float(model.get("parameters") or 0) for model in models), default=0.0)
    size = f"{parameters / 1e9:.1f} B" if parameters >= SMALL else f"{parameters / 1e6:.1f} M"
    if models and all(_is_nano(model) for model in models):
        checkpoints = f" (checkpoints: {', '.join(names)})" if names != ["nano"] else ""
        kind = f"{size} parameter" if parameters else "small"
        return f"Measured on nano, the {kind} model shipped with this repository{checkpoints}; {INCOMPARABLE}"
    largest = "at most " if len(names) > 1 else ""
    named = (", ".join(names) or "an unnamed model") + (f" ({largest}{size} parameters)" if parameters else "")
    return f"Measured on {named}; {INCOMPARABLE}" if 0 < parameters < SMALL else f"Measured on {named}."


def _origins(config: RunConfig) -> list[str]:
    """Which weights were trained for FeF-DLLM: a decoder that shares them decodes with another method's."""
    tables = [config.models.get(role, {}) for role in ("fef", "two-stream")]
    names = dict.fromkeys(PurePath(model).name for table in tables for model in table.values())
    return [f"Trained for FeF-DLLM: the weights of {', '.join(names)}."] if names else []


def _is_nano(model: dict[str, Any]) -> bool:
    """Whether a model is nano or one of its checkpoints: by its weights, for a name may stand for anything."""
    hashes = set((model.get("sha256") or {}).values())
    return bool(hashes) and hashes <= nano_hashes()


def _configurations(config: RunConfig) -> list[str]:
    """Which of OpenCompass's configurations ask and judge the suites, where problems are real."""
    named = {
        (suite.title or name): f"{suite.configuration} ({str(suite.configuration_sha256)[:8]})"
        for name, suite in config.suites.items()
        if suite.configuration is not UNSET
    }
    if not named:
        return []
    return [f"Prompts and evaluators are OpenCompass's: {', '.join(f'{of} {name}' for of, name in named.items())}."]


def _questions(config: RunConfig) -> dict[str, str]:
    """The suites that are files of questions, by title: which file, and how it is judged."""
    found = {}
    for name, suite in config.suites.items():
        if suite.questions is not UNSET:
            own, title = suite.questions, suite.title or name
            judge = own.judge if own.judge_sha256 is UNSET else f"{own.judge} ({own.judge_sha256[:8]})"
            found[title] = f"{title} is {own.file} ({own.sha256[:8]}), judged by {judge}"
    return found


def _stops(config: RunConfig) -> bool:
    """Whether decoding ends at EOS, a setting of all methods alike."""
    settings = [setting for method in config.methods.values() for setting in method.suites.values()]
    return any(setting.options.get("stop_at_eos") for setting in settings)


def _ways(config: RunConfig) -> list[str]:
    """How the models ran, where it is not as they are."""
    return [way for way, on in (("torch.compile", config.compile), ("CUDA graphs", config.graphs)) if on]


def machine(environment: dict[str, Any], numbered: bool = True, *also: str) -> str:
    """Device, threads, dtype of run.json's `environment`, and what else; `numbered`: which of several GPUs too."""
    device = str(environment.get("device") or "")
    processor = environment.get("gpu") if device.startswith("cuda") else environment.get("cpu")
    device = device if numbered else device.split(":")[0]
    threads = environment.get("threads")
    known = [
        f"{device} ({processor})" if device and processor else device or str(processor or ""),
        f"{threads} thread{'' if threads == 1 else 's'}" if threads else "",
        str(environment.get("dtype") or ""),
        *also,
    ]
    return ", ".join(part for part in known if part)


def _workers(meta: RunRecord) -> str:
    """How many workers decoded, on how many hosts, and of which device each if they are unlike; "" without workers."""
    sessions = [session["workers"] for session in meta.sessions if session.get("workers")]
    if not sessions:
        return ""
    counts = sorted({len(session) for session in sessions})
    workers = {name: worker for session in sessions for name, worker in session.items()}
    hosts = len({worker.get("host") for worker in workers.values()})
    kinds = Counter(str(worker.get("name")) for worker in workers.values())
    unlike = f" ({', '.join(f'{count} {name}' for name, count in sorted(kinds.items()))})" if len(kinds) > 1 else ""
    said = f"{' or '.join(map(str, counts))} worker{'' if counts == [1] else 's'}{unlike}"
    return f"{said} on {hosts} host{'' if hosts == 1 else 's'}"


def _left_out(run: Run) -> list[str]:
    """Responses that ended their workers, and were not decoded later."""
    rows = [row for session in run.meta.sessions for row in session.get("left_out", [])]
    there = set(run.items[list(KEY)].itertuples(index=False, name=None)) if rows and len(run.items) else set()
    missing = {key: row["reason"] for row in rows if (key := tuple(row[name] for name in KEY)) not in there}
    if not missing:
        return []
    reasons = "; ".join(dict.fromkeys(missing.values()))
    return [f"{len(missing)} response{' was' if len(missing) == 1 else 's were'} left out: {reasons}."]
