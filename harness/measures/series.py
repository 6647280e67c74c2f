"""What a run's configuration says of its methods: which are one decoder at several settings (a series), and in what a
method's settings on a suite differ from LLaDA's: lengths, and what is done about the end.
"""

import fnmatch
import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.methods.tuning import TUNED
from harness.records.schema import Method, Setting
from harness.records.store import Run


def series_of(run: Run, named: Mapping[str, str]) -> dict[str, list[str]]:
    """The run's methods by title: those of one decoder, verification and checkpoint, by the shortest of their labels,
    and their role where an earlier series has that title.

    What a decoder was tuned to is a series, with all its checkpoints; so are all that have one cache. named: title ->
    pattern (fnmatch); what fits it is of that series alone. Raises UserError if nothing fits a pattern.
    """
    methods = run.config.methods
    rest, found = list(methods), {}
    for title, pattern in named.items():
        found[title] = [name for name in fnmatch.filter(rest, pattern) if TUNED not in name]
        if not found[title]:
            raise UserError(f"--series {title}={pattern}: no method fits; the run has {', '.join(methods)}")
        rest = [name for name in rest if name not in found[title]]
    kinds: dict[object, list[str]] = {}
    for name in rest:
        kinds.setdefault(_kind(name, methods[name]), []).append(name)
    for kind, names in kinds.items():
        shortest = min((methods[name].label or name for name in names), key=len)
        title = kind if isinstance(kind, str) else shortest.partition(" (")[0]
        found[f"{title}, {methods[names[0]].role}" if title in found else title] = names
    return found


def _kind(name: str, method: Method) -> object:
    """What the methods of a series have in common; a text is the series' title."""
    if TUNED in name:
        return method.method, TUNED
    options = settings_of(method)
    cache = options.get("cache", "none")
    return f"{cache} cache" if cache in ("prefix", "dual") else (method.method, method.role, options.get("verify"))


def settings_of(method: Method) -> dict[str, Any]:
    """The options and lengths that a method has on its suites, by name; by suite where they differ."""
    every: dict[str, dict[str, Any]] = {}
    for suite, setting in method.suites.items():
        lengths = {"gen_length": setting.gen_length, "block_length": setting.block_length}
        for name, value in {**lengths, **setting.options}.items():
            every.setdefault(name, {})[suite] = value
    same = {
        name: next(iter(values.values())) for name, values in every.items() if len({*map(str, values.values())}) == 1
    }
    return {**every, **same}


def by_option(run: Run, option: str, default: Any) -> dict[str, dict[Any, str]]:
    """The methods that differ in this option alone, value -> method, by the label of one that has the default."""
    groups: dict[str, dict[Any, str]] = {}
    for name, method in run.config.methods.items():
        settings = settings_of(method)
        value = settings.pop(option, default)
        if isinstance(value, dict):  # another one on every suite
            continue
        same = json.dumps([method.method, method.role, method.draft_role, settings], sort_keys=True)
        groups.setdefault(same, {})[value] = name
    labels = {name: method.label or name for name, method in run.config.methods.items()}
    several = [group for group in groups.values() if len(group) > 1]
    return {labels[group.get(default, next(iter(group.values())))]: group for group in several}


def differ_in_one_option(run: Run, methods: list[str]) -> bool:
    """Whether methods are one decoder with one checkpoint, and differ in one option at most."""
    rows = [run.config.methods[name] for name in methods]
    settings = [{**settings_of(row), "decoder": (row.method, row.role)} for row in rows]
    every = {name for own in settings for name in own}
    differ = [name for name in every if len({str(own.get(name)) for own in settings}) > 1]
    return len(differ) <= 1 and "decoder" not in differ


END_OPTIONS = ("logits_eos_inf", "confidence_eos_eot_inf", "stop_at_eos")  # of all methods alike, where they have them
COMMIT = 7  # digits of a commit in a note


def against_reference(run: Run) -> dict[tuple[str, str], str]:
    """A note for every method and suite whose settings are not those of the run's LLaDA; "" where they are.

    And for those whose block model attends in other blocks than its own.
    """
    reference = run.config.methods.get(REFERENCE)
    usual = {} if reference is None else reference.suites
    return {
        (name, suite): ", ".join(_differences(own, usual.get(suite)))
        for name, method in run.config.methods.items()
        for suite, own in method.suites.items()
    }


def _differences(own: Setting, reference: Setting | None) -> Iterator[str]:
    if own.attends is not UNSET:
        yield f"the model attends in blocks of {own.block_length}, not in its own of {own.attends}"
    if reference is None:
        return
    found = []
    if None not in (own.gen_length, reference.gen_length) and own.gen_length != reference.gen_length:
        found.append(f"responses of {own.gen_length} tokens, LLaDA's of {reference.gen_length}")
    blocks = [_block(setting) for setting in (own, reference)]
    if None not in blocks and blocks[0] != blocks[1]:
        found.append(f"{blocks[0]}, LLaDA's {blocks[1]}")
    if found and own.published is not UNSET:
        found.append(f"as published ({_short(own.published)})")
    yield from found
    for option in END_OPTIONS:
        here, there = (bool(setting.options.get(option)) for setting in (own, reference))
        if here != there:
            yield f"{'with' if here else 'without'} {option}"


def _block(setting: Setting) -> str | None:
    """The blocks of a response in words; None where the record does not say."""
    if setting.block_length is None:
        return None
    return "full sequence" if setting.block_length == setting.gen_length else f"blocks of {setting.block_length}"


def _short(source: str) -> str:
    """A source with the beginning of its commit: "owner/name@0123456"."""
    repository, _, rest = source.partition("@")
    commit = rest.partition(" ")[0]
    return f"{repository}@{commit[:COMMIT]}" if commit else source
