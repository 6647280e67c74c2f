"""What every caption says about a run: the model, the number of items, the machine, and doubts about its seconds."""

from collections import Counter
from pathlib import PurePath

import pandas as pd
from msgspec import UNSET

from harness.measures.seconds import same_tokens_with, timing_sentences
from harness.measures.table import suite_titles, timed
from harness.records.files import nano_hashes
from harness.records.schema import RunRecord
from harness.records.store import KEY, Run

SMALL = 1e9  # with fewer parameters, results are not comparable with the paper's 8B
INCOMPARABLE = "not comparable with the paper's 8B results."
UNCOMMITTED = "The code had changes that no commit has."  # so that the record cannot be made again from one
FEF_ROLES = ("fef", "two-stream")
UNTIMED = "Seconds were not measured for comparison{}."


def setting(measured: pd.DataFrame, run: Run) -> list[str]:
    """Sentences for a caption: the model, the problems, items per suite, and the device, threads and dtype.

    They come from run.json's `weights`, `config` and `environment`; what is missing there is left out.
    """
    config, draws = run.config, run.config.draws
    counts = measured.groupby("suite")["items"].max() // len(draws)
    if counts.nunique() == 1:
        items = f"{counts.iloc[0]} item{'' if counts.iloc[0] == 1 else 's'} per suite"
    else:
        titles = suite_titles(run)
        items = f"Items: {', '.join(f'{titles[suite]} {counts[suite]}' for suite in titles if suite in counts)}"
    if len(draws) > 1:
        seeds = ", ".join(map(str, draws))
        items += f", each with the seeds {seeds}: accuracies are means ± standard deviations over them"
    questions, named = {}, []
    for name, suite in config.suites.items():
        title, own = suite.title or name, suite.questions
        if own is not UNSET:
            judge = own.judge if own.judge_sha256 is UNSET else f"{own.judge} ({own.judge_sha256[:8]})"
            questions[title] = f"{title} is {own.file} ({own.sha256[:8]}), judged by {judge}"
        if suite.configuration is not UNSET:
            named.append(f"{title} {suite.configuration} ({str(suite.configuration_sha256)[:8]})")
    but = f" but for {', '.join(questions)}" if questions else ""
    generated = f", generated in the suites' formats{but}" if config.generated else ""
    # A decoder that shares weights trained for FeF-DLLM decodes with another method's.
    trained = dict.fromkeys(PurePath(each).name for role in FEF_ROLES for each in config.models.get(role, {}).values())
    settings = [setting for method in config.methods.values() for setting in method.suites.values()]
    ends = any(setting.options.get("stop_at_eos") for setting in settings)
    where = machine(run)
    return [
        _models(run.meta),
        *([f"Trained for FeF-DLLM: the weights of {', '.join(trained)}."] if trained else []),
        f"{items}{generated}.",
        *([f"Prompts and evaluators are OpenCompass's: {', '.join(named)}."] if named else []),
        *([f"Own questions: {'; '.join(questions.values())}."] if questions else []),
        *(["Decoding ends at EOS."] if ends else []),
        *([f"Environment: {where}."] if where else []),
        *([UNCOMMITTED] if run.meta.environment.get("dirty") else []),
        *_left_out(run),
    ]


def timing(run: Run) -> list[str]:
    """Sentences for a table with seconds: whether they were measured for comparison, and reasons for doubt."""
    if not timed(run):
        batch = run.config.batch
        many = "as many responses as memory had room for" if batch == "auto" else f"{batch} responses"
        return [UNTIMED.format("" if batch is UNSET else f": {many} were decoded at once")]
    if run.speed is None:
        return timing_sentences(run)
    counts = sorted({int(count) for count in run.speed.items.groupby("suite")["item"].nunique()})
    items = "1 problem" if counts == [1] else f"{' to '.join(map(str, {counts[0]: 0, counts[-1]: 0}))} problems"
    where = f"{same_tokens_with(run)}: {machine(run.speed)}"
    first = f"Speed is of a run of its own over the first {items} of each suite, {where}."
    return [first, *timing_sentences(run.speed)]


def _models(meta: RunRecord) -> str:
    models = [model for model in meta.weights.values() if isinstance(model.get("name"), str)]
    names = list(dict.fromkeys(PurePath(model["name"]).name for model in models))
    parameters = max((float(model.get("parameters") or 0) for model in models), default=0.0)
    size = f"{parameters / 1e9:.1f} B" if parameters >= SMALL else f"{parameters / 1e6:.1f} M"
    # By its weights, for a name may stand for anything.
    hashes = [set((model.get("sha256") or {}).values()) for model in models]
    if models and all(each and each <= nano_hashes() for each in hashes):
        checkpoints = f" (checkpoints: {', '.join(names)})" if names != ["nano"] else ""
        kind = f"{size} parameter" if parameters else "small"
        return f"Measured on nano, the {kind} model shipped with this repository{checkpoints}; {INCOMPARABLE}"
    largest = "at most " if len(names) > 1 else ""
    named = (", ".join(names) or "an unnamed model") + (f" ({largest}{size} parameters)" if parameters else "")
    return f"Measured on {named}; {INCOMPARABLE}" if 0 < parameters < SMALL else f"Measured on {named}."


def machine(run: Run) -> str:
    """Device, threads and dtype of a run, how its models ran where that is not as usual, and its workers."""
    environment, config = run.meta.environment, run.config
    device = str(environment.get("device") or "")
    processor = environment.get("gpu") if device.startswith("cuda") else environment.get("cpu")
    threads = environment.get("threads")
    known = [
        f"{device} ({processor})" if device and processor else device or str(processor or ""),
        f"{threads} thread{'' if threads == 1 else 's'}" if threads else "",
        str(environment.get("dtype") or ""),
        "torch.compile" if config.compile else "",
        "CUDA graphs" if config.graphs else "",
        _workers(run.meta),
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
