"""What every table says about a run: the problems, the model, the machine, and doubts about its
seconds.

What a caption has no room for stands below the table. What Acc., Speed and the rest mean is in
docs/measuring.md.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

import pandas as pd
from msgspec import UNSET

from harness.measures.notes import stops
from harness.measures.seconds import same_tokens_with, timing_sentences
from harness.measures.table import checked_items, method_labels, suite_titles, timed
from harness.methods.presets import ROLES_OF
from harness.records.files import ships
from harness.records.schema import RunConfig, RunRecord
from harness.records.store import KEY, Run
from harness.suites.registry import GENERATED_DATA

MOST_WORDS = 60  # of a caption
SMALL = 1e9  # with fewer parameters, results are not comparable with the paper's 8B
INCOMPARABLE = "not comparable with the paper's 8B results."
UNCOMMITTED = (  # so that the record cannot be made again from one
    "The code had changes that no commit has."
)
FEF_ROLES = ("fef", "two-stream")
# Of the models that ship with this project, all, and those that were trained for FeF-DLLM.
SHIPPED = {name for roles in ROLES_OF.values() for name in roles.values()}
FOR_FEF = {roles["fef"] for roles in ROLES_OF.values() if "fef" in roles}
UNTIMED = "Seconds were not measured for comparison{}."


def divided(sentences: Sequence[str]) -> tuple[str, str]:
    """A caption of at most MOST_WORDS, of the first sentences and shorter ones behind; and the
    other sentences."""
    caption: list[str] = []
    rest: list[str] = []
    for sentence in sentences:
        fits = len(" ".join([*caption, sentence]).split()) <= MOST_WORDS
        (caption if fits else rest).append(sentence)
    return " ".join(caption), " ".join(rest)


def setting(measured: pd.DataFrame, run: Run, doubts: Sequence[str] = ()) -> list[str]:
    """Sentences, the most important first: problems, lengths of responses, models, what is missing,
    the machine.

    They come from run.json's `weights`, `config` and `environment`; what is missing there is left
    out. doubts: of `timing`, in a table that has seconds or speeds.
    """
    questions = []
    named = []
    for name, suite in run.config.suites.items():
        title = suite.title or name
        own = suite.questions
        if own is not UNSET:
            judge = (
                own.judge if own.judge_sha256 is UNSET else f"{own.judge} ({own.judge_sha256[:8]})"
            )
            questions.append(f"{title} is {own.file} ({own.sha256[:8]}), judged by {judge}")
        if suite.configuration is not UNSET:
            named.append(f"{title} {suite.configuration} ({str(suite.configuration_sha256)[:8]})")
    # A decoder that shares weights trained for FeF-DLLM decodes with another method's.
    models = [run.config.models.get(role, {}) for role in FEF_ROLES]
    named_so = dict.fromkeys(
        PurePath(each).name for of_suites in models for each in of_suites.values()
    )
    trained = [each for each in named_so if each not in SHIPPED or each in FOR_FEF]
    where = machine(run)
    return [
        _problems(measured, run),
        *_lengths(run),
        *ends(measured, run),
        *_unusual(run.config),
        _models(run.meta),
        *([f"Trained for FeF-DLLM: {', '.join(trained)}."] if trained else []),
        *_left_out(run),
        *doubts,
        *([f"Environment: {where}."] if where else []),
        *_unended(run),
        *empty(run),
        *_same_problems(run),
        *([UNCOMMITTED] if run.meta.environment.get("dirty") else []),
        *([f"Prompts and evaluators are OpenCompass's: {', '.join(named)}."] if named else []),
        *([f"Own questions: {'; '.join(questions)}."] if questions else []),
    ]


def _problems(measured: pd.DataFrame, run: Run) -> str:
    """How many problems of which kind, so that those for development and those of a seed never look
    like others."""
    draws = run.config.draws
    titles = suite_titles(run)
    counts = measured.groupby("suite")["items"].max()
    if len(draws) > 1:
        counts = checked_items(run).groupby("suite", observed=True)["problem"].nunique()
    split = GENERATED_DATA.fullmatch(run.config.data) if isinstance(run.config.data, str) else None
    kind = "dev problem" if split and split[1] else "problem"
    if counts.nunique() == 1:
        text = f"{counts.iloc[0]} {kind}{'' if counts.iloc[0] == 1 else 's'} per suite"
    else:
        each = [f"{titles[suite]} {counts[suite]}" for suite in titles if suite in counts]
        text = f"{kind.capitalize()}s: {', '.join(each)}"
    if run.config.generated:
        own = [
            titles[name]
            for name, suite in run.config.suites.items()
            if suite.questions is not UNSET
        ]
        text += ", generated in the suites' formats" + (f" but for {', '.join(own)}" if own else "")
        text += f", drawn with seed {split[2]}" if split and split[2] else ""
    if len(draws) > 1:
        text += f", each with the seeds {', '.join(map(str, draws))}"
        text += ": accuracies are means, and ± is their standard deviation"
        every = measured["items"] == measured["suite"].map(counts.to_dict()).astype(int) * len(
            draws
        )
        text += "" if every.all() else "; not all responses are there yet"
    return f"{text}."


def _lengths(run: Run) -> list[str]:
    """The tokens of a response, by suite where they differ; methods are noted."""
    settings = [
        (suite, own)
        for method in run.config.methods.values()
        for suite, own in method.suites.items()
    ]
    by_suite: dict[str, set[int]] = {}
    for suite, own in settings:
        if own.gen_length is not None and suite in run.config.suites:
            by_suite.setdefault(suite, set()).add(own.gen_length)
    titles: dict[str, list[str]] = {}
    for suite, title in suite_titles(run).items():
        if suite in by_suite:
            titles.setdefault(" or ".join(map(str, sorted(by_suite[suite]))), []).append(title)
    usual, *others = sorted(titles, key=lambda length: -len(titles[length])) or [""]
    unlike = "; ".join(f"{', '.join(titles[length])}: {length}" for length in others)
    return [f"Responses have {usual} tokens{f' ({unlike})' if unlike else ''}."] if usual else []


def ends(measured: pd.DataFrame, run: Run) -> list[str]:
    """Whether decoding ends at EOS, and of which methods it does not."""
    labels = method_labels(run)
    shown = set(measured["method"])
    ending = {
        name: all(stops(method, own) for own in method.suites.values())
        for name, method in run.config.methods.items()
        if name in shown and method.suites and method.role != "ar"
    }
    without = [labels[name] for name, stop in ending.items() if not stop]
    if len(without) == len(ending):
        return []
    return [
        (
            f"With stop_at_eos decoding ends at EOS; without it: {', '.join(without)}."
            if without
            else "Decoding ends at EOS."
        )
    ]


def _unusual(config: RunConfig) -> list[str]:
    """What else decides the tokens of all methods, where it is not the default."""
    template = "" if config.chat_template_args is UNSET else json.dumps(config.chat_template_args)
    found = [
        f"temperature {config.temperature:g}" if config.temperature else "",
        (
            f"seed {config.seed}"
            if config.temperature and config.seed is not None and len(config.draws) == 1
            else ""
        ),
        "plain prompts, without a chat template" if config.prompt == "plain" else "",
        f"chat template with {template}" if template else "",
        f"logits read at {config.reads_at}" if config.reads_at not in (UNSET, 0) else "",
    ]
    said = "; ".join(filter(None, found))
    return [f"{said[0].upper()}{said[1:]}."] if said else []


def _unended(run: Run) -> list[str]:
    """How many responses reached their length without EOS or an end of turn, if the record says so
    and any did."""
    counted = run.items.reindex(columns=["eos_tokens", "post_stop_tokens"]).dropna()
    many = int((counted.sum(axis=1) == 0).sum())
    if not many:
        return []
    verb = "reaches its" if many == 1 else "reach their"
    return [f"{many} of {len(counted)} responses {verb} length without an end-of-text token."]


def empty(run: Run) -> list[str]:
    """A sentence for every suite where some methods have no token before the first EOS in any
    response."""
    longest = (
        run.items.reindex(columns=["suite", "method", "content_tokens"])
        .groupby(["suite", "method"])
        .max()
    )
    titles = suite_titles(run)
    labels = method_labels(run)
    silent = longest.index[longest["content_tokens"] == 0]
    suites = {
        str(suite): [labels[name] for each, name in silent if each == suite] for suite, _ in silent
    }
    return [
        f"All responses of {', '.join(names)} on {titles[suite]} are empty: --gen-length and"
        " --block-length may not suit the model."
        for suite, names in suites.items()
    ]


def timing(run: Run) -> list[str]:
    """Sentences for a table with seconds: whether they were measured for comparison, and reasons
    for doubt."""
    if not timed(run):
        batch = run.config.batch
        many = "as many responses as memory had room for" if batch == "auto" else f"up to {batch}"
        return [UNTIMED.format("" if batch is UNSET else f": {many} were decoded at once")]
    if run.speed is None:
        return timing_sentences(run)
    draws = len(run.speed.config.draws)
    counts = sorted(
        {int(count) // draws for count in run.speed.items.groupby("suite")["item"].nunique()}
    )
    items = (
        "1 problem"
        if counts == [1]
        else f"{' to '.join(map(str, {counts[0]: 0, counts[-1]: 0}))} problems"
    )
    where = f"{same_tokens_with(run)}: {machine(run.speed)}"
    first = f"Speed is of a run of its own over the first {items} of each suite, {where}."
    return [first, *timing_sentences(run.speed)]


def _models(meta: RunRecord) -> str:
    models = [model for model in meta.weights.values() if isinstance(model.get("name"), str)]
    names = list(dict.fromkeys(PurePath(model["name"]).name for model in models))
    parameters = max((float(model.get("parameters") or 0) for model in models), default=0.0)
    size = f"{parameters / 1e9:.1f} B" if parameters >= SMALL else f"{parameters / 1e6:.1f} M"
    if models and all(map(ships, models)):
        kind = f" ({size} parameters)" if parameters else ""
        return f"Measured on this repository's {', '.join(names)}{kind}; {INCOMPARABLE}"
    largest = "at most " if len(names) > 1 else ""
    named = (", ".join(names) or "an unnamed model") + (
        f" ({largest}{size} parameters)" if parameters else ""
    )
    return (
        f"Measured on {named}; {INCOMPARABLE}"
        if 0 < parameters < SMALL
        else f"Measured on {named}."
    )


def machine(run: Run) -> str:
    """Device, threads and dtype of a run, how its models ran where that is not as usual, and its
    workers."""
    environment = run.meta.environment
    config = run.config
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
    """How many workers decoded, on how many hosts, and of which device each if they are unlike; ""
    without workers."""
    sessions = [session["workers"] for session in meta.sessions if session.get("workers")]
    if not sessions:
        return ""
    counts = sorted({len(session) for session in sessions})
    workers = {name: worker for session in sessions for name, worker in session.items()}
    hosts = len({worker.get("host") for worker in workers.values()})
    kinds = Counter(str(worker.get("name")) for worker in workers.values())
    unlike = (
        f" ({', '.join(f'{count} {name}' for name, count in sorted(kinds.items()))})"
        if len(kinds) > 1
        else ""
    )
    said = f"{' or '.join(map(str, counts))} worker{'' if counts == [1] else 's'}{unlike}"
    return f"{said} on {hosts} host{'' if hosts == 1 else 's'}"


def _same_problems(run: Run) -> list[str]:
    """A sentence for suites of one file, which means and intervals over suites take for problems of
    their own."""
    titles = suite_titles(run)
    named: dict[str, list[str]] = {}
    for suite, own in (run.meta.data.get("files") or {}).items():
        if suite in titles and own.get("sha256"):
            named.setdefault(own["sha256"], []).append(titles[suite])
    return [
        f"{' and '.join(same)} are the same problems, which every mean over suites counts"
        f" {len(same)} times."
        for same in named.values()
        if len(same) > 1
    ]


def _left_out(run: Run) -> list[str]:
    """Responses that ended their workers, and were not decoded later."""
    rows = [row for session in run.meta.sessions for row in session.get("left_out", [])]
    there = (
        set(run.items[list(KEY)].itertuples(index=False, name=None))
        if rows and len(run.items)
        else set()
    )
    missing = {
        key: row["reason"] for row in rows if (key := tuple(row[name] for name in KEY)) not in there
    }
    if not missing:
        return []
    reasons = "; ".join(dict.fromkeys(missing.values()))
    return [
        f"{len(missing)} response{' was' if len(missing) == 1 else 's were'} left out: {reasons}."
    ]
