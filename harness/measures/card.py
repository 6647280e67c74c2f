"""The run card: what a reader must know of a run in addition to its numbers, as keys and values.

It stands next to a table in the report, below it in Markdown, and as comments in LaTeX.
docs/measuring.md explains the keys.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import pandas as pd
from msgspec import UNSET

from harness.measures.marks import options_of, setting_of
from harness.measures.table import (
    REFERENCE,
    checked_items,
    method_labels,
    other_tokenizers,
    suite_titles,
    timed,
)
from harness.records.files import ships
from harness.records.schema import SuiteName
from harness.records.store import KEY, Run, key_of
from harness.suites.published import published_of_model
from harness.suites.registry import FOREIGN, SUITES, suite_named

Card = dict[str, str]
FEF_ROLES = ("fef", "two-stream")
# Of a hash or a commit.
DIGITS = 8
# LLaDA's items on a suite that `_drift` needs, so that a third of them has three.
FEWEST = 9
# NVML's bit for clocks that are low because there is nothing to do.
IDLE = 0x1
# Fields of the configuration that the card has if they are not as usual.
CONFIGURED = (
    "temperature",
    "seed",
    "prompt",
    "chat_template_args",
    "reads_at",
    "compile",
    "graphs",
)
USUAL = (None, UNSET, 0, False)
# Options that decide where a response ends.
END_OPTIONS = ("stop_at_eos", "logits_eos_inf", "confidence_eos_eot_inf")


def card_of(run: Run, frame: pd.DataFrame) -> Card:
    """The card of a run, the most important keys first, without those that the record says nothing
    about.

    Args:
        run: as read.
        frame: rows of `measure` of the methods and suites that are shown.
    """
    config = run.config
    environment = run.meta.environment
    scoring = run.meta.scoring
    labels = method_labels(run)
    lengths = {suite: _lengths(run, suite) for suite in config.suites}
    fef = {
        PurePath(name).name for role in FEF_ROLES for name in config.models.get(role, {}).values()
    }
    ends = run.items.reindex(columns=["eos_tokens", "post_stop_tokens"]).dropna()
    card: dict[str, Any] = {
        **_problems(run, frame),
        "baseline": "" if REFERENCE in config.methods else f"no {REFERENCE}: no Speed, no Fwd.",
        "other tokenizer": _listed(labels[method] for method in sorted(other_tokenizers(run))),
        "response tokens": _by_suite(run, lengths),
        "weights": _weights(run),
        "FeF-DLLM's weights": _listed(sorted(fef)),
        **_machine(run),
        **_speed(run),
        **_sessions(run.speed or run),
        "left out": _left_out(run),
        "not scored": _by_suite(run, scoring.get("not_scored", {})),
        "misjudged": _by_suite(run, _misjudged(run)),
        "sandbox": scoring.get("sandbox"),
        "without an end of text": _share(ends.sum(axis=1) == 0),
        "same problems": _same_problems(run),
        **{name: getattr(config, name) for name in CONFIGURED},
        "authors decode with": _by_suite(run, _unlike_authors(run)),
        "commit": str(environment.get("commit") or "")[:DIGITS],
        "uncommitted changes": environment.get("dirty"),
        **{labels[method]: _settings(run, method) for method in frame["method"].unique()},
    }
    return {key: str(value) for key, value in card.items() if value not in (*USUAL, "")}


def card_line(run: Run, frame: pd.DataFrame) -> str:
    """The card of a run as one line of text, see `card_of`."""
    return "; ".join(f"{key}: {value}" for key, value in card_of(run, frame).items())


def _problems(run: Run, frame: pd.DataFrame) -> dict[str, Any]:
    """The number of problems and their files; the number of responses, if some are missing."""
    draws = run.config.draws
    counts = frame.groupby("suite")["items"].max()
    # Items number every problem once for each seed.
    if len(draws) > 1:
        counts = checked_items(run).groupby("suite", observed=True)["problem"].nunique()
    responses = int(frame["items"].sum())
    expected = int(frame["suite"].map(counts.to_dict()).astype(int).sum()) * len(draws)
    rescored = run.meta.scoring.get("judges", {})
    names = {
        suite: _file_name(name, rescored.get(suite)) for suite, name in run.config.suites.items()
    }
    return {
        "problems a suite": _by_suite(run, counts),
        "files": _by_suite(run, {suite: name for suite, name in names.items() if name}),
        "samples": run.config.samples,
        "seeds": "" if run.config.seeds is UNSET else _listed(draws),
        "responses": f"{responses} of {expected}" if responses < expected else "",
        "data": run.config.data if isinstance(run.config.data, str) else "",
    }


def _file_name(suite: SuiteName, judge_sha256: str | None) -> str:
    """OpenCompass's configuration or the file of questions, with hashes; "" if problems are
    generated. judge_sha256: of the judge that scored last."""
    if suite.configuration is not UNSET:
        return _hashed(suite.configuration, suite.configuration_sha256)
    questions = suite.questions
    if questions is UNSET:
        return ""
    judge = _hashed(questions.judge, judge_sha256 or questions.judge_sha256)
    return f"{_hashed(questions.file, questions.sha256)}, judged by {judge}"


def _hashed(name: str, digest: Any) -> str:
    return name if digest is UNSET else f"{name} ({digest[:DIGITS]})"


def _lengths(run: Run, suite: str) -> str:
    """The set lengths of responses to a suite, in tokens."""
    lengths = {setting_of(run, method, suite).gen_length for method in run.config.methods}
    known = sorted(length for length in lengths if length is not None)
    return " or ".join(map(str, known))


def _weights(run: Run) -> str:
    """The models by name, without folders, with their parameters; "shipped" with this project."""
    texts = []
    for model in run.meta.weights.values():
        about = []
        if model.get("parameters"):
            about.append(f"{float(model['parameters']) / 1e6:.1f} M parameters")
        if ships(model):
            about.append("shipped")
        name = PurePath(str(model.get("name", "unnamed"))).name
        texts.append(f"{name} ({_listed(about)})" if about else name)
    return _listed(dict.fromkeys(texts))


def _machine(run: Run) -> dict[str, Any]:
    """Device, threads, dtype, and the workers of all sessions: their kinds and numbers, and the
    number of hosts."""
    environment = run.meta.environment
    device = environment.get("device") or ""
    processor = environment.get("gpu") if device.startswith("cuda") else environment.get("cpu")
    card = {
        "machine": f"{device} ({processor})" if processor else device,
        "devices": _devices(environment),
        "threads": environment.get("threads"),
        "dtype": environment.get("dtype"),
    }
    workers: dict[str, Any] = {}
    for session in run.meta.sessions:
        workers |= session.get("workers") or {}
    if workers:
        kinds = Counter(str(worker.get("name")) for worker in workers.values())
        hosts = len({worker.get("host") for worker in workers.values()})
        named = _listed(f"{count} {name}" for name, count in sorted(kinds.items()))
        card["workers"] = f"{named}; hosts: {hosts}"
    return card


def _devices(environment: Mapping[str, Any]) -> str:
    """The number of a model's modules on each device, for models with a device map."""
    texts = []
    for name, modules in (environment.get("device_map") or {}).items():
        counts = Counter(modules.values())
        devices = _listed(
            f"{device} ({count} of {len(modules)} modules)" for device, count in counts.items()
        )
        texts.append(f"{PurePath(name).name} on {devices}")
    return "; ".join(texts)


def _speed(run: Run) -> dict[str, Any]:
    """The run from which the seconds are, if they are not this run's own."""
    if not timed(run):
        return {"seconds": "not for comparison", "batch": run.config.batch}
    if run.speed is None:
        return {}
    draws = len(run.speed.config.draws)
    counts = run.speed.items.groupby("suite")["item"].nunique() // draws
    hashes = [*KEY, "tokens_hash"]
    timed_items = run.speed.items.reindex(columns=hashes)
    both = run.items.reindex(columns=hashes).merge(timed_items, on=list(KEY))
    same = int(both["tokens_hash_x"].eq(both["tokens_hash_y"]).sum())
    return {
        "timed problems": f"the first {_by_suite(run, counts)}",
        "timed responses with these tokens": f"{same} of {len(both)}",
        **{f"timed on: {key}": value for key, value in _machine(run.speed).items()},
    }


def _drift(run: Run) -> str:
    """The largest change of LLaDA's speed within the run, and the suite where it occurred; "" if
    no suite has FEWEST items.

    The change on a suite is the median seconds per forward of the last third of LLaDA's items, in
    the order of items.jsonl, over that of the first third, minus 1. Each worker counts separately.
    """
    items = run.items[run.items["method"] == REFERENCE]
    costs = items[["seconds", "forwards"]].astype(float)
    # Per forward: later problems may be longer or shorter than earlier ones.
    paces = costs["seconds"] / costs["forwards"]
    keys = [items["suite"]]
    if "worker" in items:
        keys.append(items["worker"].fillna(""))
    changes = []
    for key, pace in paces.groupby(keys, sort=False, observed=True):
        third = len(pace) // 3
        if len(pace) >= FEWEST:
            ratio = pace.iloc[-third:].median() / pace.iloc[:third].median()
            changes.append((float(ratio - 1), str(key[0])))
    if not changes:
        return ""
    change, suite = max(changes, key=lambda change: abs(change[0]))
    return f"{100 * change:+.0f}% ({suite_titles(run)[suite]})"


def _share(flags: pd.Series) -> str:
    """The number of responses with a flag, as text; "" for none."""
    count = int(flags.sum())
    return f"{count} of {len(flags)}" if count else ""


def _sessions(run: Run) -> dict[str, Any]:
    """Signs of disturbance in the sessions from which the seconds are."""
    sessions = run.meta.sessions
    starts = [(session.get("start") or {}).get("busy_percent") for session in sessions]
    disturbed = run.items.reindex(columns=["disturbed"])
    return {
        "drift": _drift(run) if timed(run) else "",
        "disturbed responses": _share(disturbed["disturbed"].eq(True)),
        "busy before": ", ".join(f"{percent:.0f}%" for percent in starts if percent),
        "GPU throttling": _throttling(sessions),
        "sessions": len(sessions),
        "sessions without an end": sum(not session.get("end") for session in sessions),
    }


def _throttling(sessions: list[dict[str, Any]]) -> str:
    """NVML's throttle reasons at the end of sessions, without idleness."""
    receipts = [*sessions]
    for session in sessions:
        receipts += (session.get("workers") or {}).values()
    gpus = [(receipt.get("end") or {}).get("gpu") or {} for receipt in receipts]
    reasons = {int(gpu.get("throttle_reasons") or "0", 16) & ~IDLE for gpu in gpus}
    return _listed(hex(reason) for reason in sorted(reasons - {0}))


def _left_out(run: Run) -> str:
    """The number of responses that killed their workers and were not decoded later, and why."""
    rows = [row for session in run.meta.sessions for row in session.get("left_out", [])]
    recorded = set(run.items.reindex(columns=KEY).itertuples(index=False, name=None))
    reasons = {key_of(row): row["reason"] for row in rows}
    missing = [reason for key, reason in reasons.items() if key not in recorded]
    return f"{len(missing)} ({'; '.join(dict.fromkeys(missing))})" if missing else ""


def _misjudged(run: Run) -> dict[str, str]:
    """By suite the reason why OpenCompass's configuration does not suit the prompts."""
    # The record may have suites of a plugin that is not loaded here.
    known = [name for name in run.config.suites if name in SUITES or name.startswith(FOREIGN)]
    reasons = {name: suite_named(name).misjudged(run.config.prompt) for name in known}
    return {name: reason for name, reason in reasons.items() if reason}


def _unlike_authors(run: Run) -> dict[str, str]:
    """By suite the decoder and options of the base model's authors, if no method has them."""
    config = run.config
    texts = {}
    for suite, model in config.models.get("base", {}).items():
        entry = published_of_model(model, suite)
        if entry is None or config.generated:
            continue
        decoding = entry.decoding_on(suite)
        published = decoding.settings()
        matches = [
            name
            for name, method in config.methods.items()
            if method.method == decoding.decoder
            and published.items() <= options_of(run, name, suite).items()
        ]
        if not matches:
            settings = [f"{name}={value}" for name, value in published.items()]
            texts[suite] = f"{_listed([decoding.decoder, *settings])}: {entry.source}"
    return texts


def _same_problems(run: Run) -> str:
    """Groups of suites with the same file of problems. Means over suites count these problems more
    than once, and intervals take them for independent."""
    titles = suite_titles(run)
    suites: dict[str, list[str]] = {}
    for suite, file in run.meta.files.items():
        if suite in titles and file.get("sha256"):
            suites.setdefault(file["sha256"], []).append(titles[suite])
    return "; ".join(" and ".join(same) for same in suites.values() if len(same) > 1)


def _settings(run: Run, method: str) -> str:
    """The settings of a method that are not LLaDA's, and their sources, by suite."""
    suites = run.config.methods[method].suites
    texts = {suite: _listed(unlike_reference(run, method, suite)) for suite in suites}
    return _by_suite(run, {suite: text for suite, text in texts.items() if text})


def unlike_reference(run: Run, method: str, suite: str) -> list[str]:
    """A method's lengths and end options that are not LLaDA's on a suite, and its settings'
    sources.

    Args:
        run: as read.
        method: the method's key.
        suite: the suite's name.

    Returns:
        Texts `name=value`, without values that the record does not have.
    """
    setting = setting_of(run, method, suite)
    reference = _ends(run, REFERENCE, suite) if REFERENCE in run.config.methods else {}
    differences = {
        name: value
        for name, value in _ends(run, method, suite).items()
        if None not in (value, reference.get(name)) and value != reference[name]
    }
    differences |= {
        "published": setting.published,
        "model_blocks": setting.attends,
        "tuned_on": setting.tuned_on,
    }
    return [f"{name}={value}" for name, value in differences.items() if value is not UNSET]


def _ends(run: Run, method: str, suite: str) -> dict[str, Any]:
    """A method's lengths and end options on a suite; None if the record does not say."""
    setting = setting_of(run, method, suite)
    ends = {name: bool(setting.options.get(name)) for name in END_OPTIONS}
    # An autoregressive model always stops at EOS, and has no such option.
    if run.config.methods[method].role == "ar":
        ends["stop_at_eos"] = True
    return {"gen_length": setting.gen_length, "block_length": setting.block_length, **ends}


def _by_suite(run: Run, values: Mapping[str, object] | pd.Series) -> str:
    """Values by suite as one text: a value that all suites share stands alone."""
    suites: dict[str, list[str]] = {}
    for suite, title in suite_titles(run).items():
        if suite in values:
            suites.setdefault(str(values[suite]), []).append(title)
    if len(suites) == 1 and len(values) == len(run.config.suites):
        return next(iter(suites))
    return "; ".join(f"{value} ({_listed(titles)})" for value, titles in suites.items() if value)


def _listed(texts: Iterable[object]) -> str:
    return ", ".join(map(str, texts))
