"""The methods of a run: presets, groups, and decoders, each with options; as text, or a decoder
itself.

An element is [FILE.py: or module:]NAME[+CACHE][(option=value, ...)], or FILE.json[:NAME] for
methods that harness/tune.py chose; several such files, each for suites of its own, make one row of
each method. Options may be lengths and `role` too; tau=0.7|0.9 stands for a method of each. An
element's canonical text, without the file, is the method's key in the records.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from harness.elements import alternatives, elements_of, format_call, format_label, parse_call
from harness.errors import UserError, explained
from harness.methods.presets import ALL, GROUPS, PRESETS, ROLES, TUNED, Preset, split_lengths
from harness.plugins import load, load_all
from harness.suites.registry import SUITES
from model_wrappers.decoders import (
    METHODS,
    Decoder,
    Method,
    WithOptions,
    check_name,
    decoder_named,
    split_options,
)
from model_wrappers.options import convert_options, meant

CHOICE = ".json"  # how the name of a file of tuned methods ends
CACHES = ("prefix", "dual")  # what +CACHE may be: values of a decoder's option `cache`
# What a label says of the options stands in brackets at its end.
LABEL = re.compile(r"(.*?)(?: \(([^()]*)\))?", re.DOTALL)
Methods = str | Iterable[Method | WithOptions]  # --methods, or such texts and decoders themselves


@dataclass(frozen=True)
class Element:
    """An element of --methods. plugin: the file or module before the colon, or ""; cache: after the
    plus, or "".

    decoder: of an element that is no text; `name` is then its name.
    """

    text: str
    plugin: str
    name: str
    cache: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    decoder: Decoder | None = None


def read_elements(methods: Methods) -> Iterator[Element]:
    """The elements of --methods. Raises UserError for text that is none, ValueError for what is no
    decoder."""
    numbered: dict[str, Any] = {}  # name -> the function that has it
    for given in [methods] if isinstance(methods, str) or callable(methods) else methods:
        each, own = split_options(given)
        if isinstance(each, str) and own:
            each = format_call(each, own)
        if not isinstance(each, str):
            decoder = decoder_named(each)
            known = next(
                (
                    name
                    for name, has in METHODS.items()
                    if has.source is decoder.source or has is decoder
                ),
                "",
            )
            if known:
                yield Element(known, "", known, arguments=own)
                continue
            decoder = _numbered(decoder, numbered)
            check_name(decoder.name)
            if decoder.name in (*PRESETS, *GROUPS, ALL, *METHODS):
                raise ValueError(
                    f"a method {decoder.name!r} is there already; give the function another name"
                )
            yield Element(decoder.name, "", decoder.name, arguments=own, decoder=decoder)
            continue
        for text in chain.from_iterable(map(alternatives, elements_of(each))):
            head, arguments = parse_call(text)
            plugin, _, rest = head.rpartition(":")
            if rest.endswith(CHOICE):
                plugin = head
                rest = ""
            name, _, cache = rest.partition("+")
            yield Element(text, plugin.strip(), name.strip(), cache.strip(), arguments)


def _numbered(decoder: Decoder, numbered: dict[str, Any]) -> Decoder:
    """A function as a decoder with a name of its own; lambdas, partials and closures of one name
    are numbered.

    Args:
        numbered: the functions so far by name; this one is added.
    """
    function: Any = decoder.source
    while isinstance(function, partial):
        function = function.func
    first = decoder.name
    if function is not decoder.source:
        first = str(getattr(function, "__name__", type(function).__name__))
    first = first.strip("<>")
    name = first
    number = 1
    while numbered.setdefault(name, decoder.source) != decoder.source:
        number += 1
        name = f"{first}-{number}"
    named = replace(decoder, name=name)
    # read here, for in a worker its annotation has no module
    vars(named)["options"] = decoder.options
    return named


def methods_named(methods: Methods, plugins: Iterable[str] = ()) -> dict[str, Preset]:
    """The methods of --methods by key, after the plugins that are installed, given, or named there
    are loaded.

    Raises UserError or ValueError for a plugin that fails, and for a method that is unknown,
    repeated or misused.
    """
    load_all(plugins)
    chosen: dict[str, Preset] = {}
    seen: set[str] = set()
    twice: list[str] = []
    for element in read_elements(methods):
        key, presets = _resolved(element)
        twice += [key] if key in seen else []
        seen.add(key)
        for name, preset in presets.items():
            # groups share rows; files of tuned methods are for suites of their own
            known = chosen.get(name, preset)
            chosen[name] = known.joined(preset) if known is not preset and known.tuned_on else known
    if twice or not chosen:
        again = f"a method twice: {''.join(twice[:1])} (a function's name is its __name__)"
        wrong = again if twice else f"no method{meant('', _valid())}"
        raise UserError(f"--methods names {wrong}")
    return {name: preset for name, preset in chosen.items() if not _as_fast(name, preset, chosen)}


def _as_fast(name: str, preset: Preset, chosen: Mapping[str, Preset]) -> bool:
    """Whether the rule chose the same method as `fast` and as `accurate`, of which the former is
    enough."""
    decoder, tuned, goal = name.partition(TUNED)
    fast = chosen.get(f"{decoder}{tuned}fast", preset)
    return goal == "accurate" and fast is not preset and replace(fast, label=preset.label) == preset


def _resolved(element: Element) -> tuple[str, dict[str, Preset]]:
    """The canonical text of an element, and the methods that it stands for."""
    name = element.name
    plain = not element.cache and not element.arguments
    if element.plugin.endswith(CHOICE):
        presets = read_choice(element.plugin)
        if plain and (not name or name in presets):
            return element.text, {name: presets[name]} if name else presets
        wrong = "a tuned method takes no options and no cache"
        wrong = (
            wrong
            if not name or name in presets
            else f"it has no method {name}{meant(name, presets)}"
        )
    elif element.plugin and name not in (brought := load(element.plugin).methods):
        wrong = (
            f"{element.plugin} registers no method {name}; it has {', '.join(brought) or 'none'}"
        )
    elif name in GROUPS or name == ALL:
        if plain:
            return name, dict(PRESETS) if name == ALL else methods_named(",".join(GROUPS[name]))
        wrong = f"{name} is a group; options and caches are for one method"
    elif name in PRESETS or element.decoder is not None or name in METHODS:
        preset = PRESETS.get(name)
        if preset is None:
            decoder = element.decoder or METHODS[name]
            role = "fef" if decoder.prefix_conditioned else "base"
            preset = Preset(decoder.label or name, element.decoder or name, role=role)
        key, preset = _with_arguments(element, preset)
        return key, {key: preset}
    else:
        wrong = (
            "unknown"
            f" method{meant(name, ['FILE.py:NAME', *_valid()], {'a suite, for --suite': SUITES})}"
        )
    raise UserError(f"{element.text}: {wrong}")


def _with_arguments(element: Element, preset: Preset) -> tuple[str, Preset]:
    """The key of a method with its arguments, and the preset with them, its label saying what they
    set."""
    arguments = dict(element.arguments)
    decoder = preset.decoder
    wrong = ""
    if element.cache and arguments.setdefault("cache", element.cache) != element.cache:
        wrong = "the cache is there twice"
    elif "draft" in arguments and isinstance(decoder.source, str):
        wrong = (
            "draft is no option of a method; with --model base=...,draft=... it has these drafts"
            " already"
        )
    elif (role := arguments.pop("role", None)) not in (None, *ROLES):
        wrong = f"unknown role {role!r}{meant(role, ROLES)}"
    if wrong:
        raise UserError(f"{element.text}: {wrong}")
    if not arguments and role is None:
        return element.name, preset
    lengths, arguments = split_lengths(arguments, element.text)
    checked = convert_options(decoder.options, preset.options | arguments, element.name)
    values = lengths | {name: getattr(checked, name) for name in arguments}
    cache = values["cache"] if values.get("cache") in CACHES else ""
    changes = {name: value for name, value in values.items() if name != "cache" or not cache}
    changes |= {} if role is None else {"role": role}
    found = LABEL.fullmatch(preset.label)
    assert found is not None, "every text fits"
    # Of the label's parts, say "step=2", those go whose option has changed.
    parts = [(part, part.partition("=")[0]) for part in (found[2] or "").split(", ") if part]
    shown = [
        part for part, option in parts if option not in changes and f"{option}s" not in changes
    ]
    shown += [format_label(changes)] if changes else []
    label = (
        found[1]
        + (f", {cache} cache" if cache else "")
        + (f" ({', '.join(shown)})" if shown else "")
    )
    two_stream = preset.role == "fef" and getattr(checked, "verify", "") == "two-stream"
    given = {name: msgspec.to_builtins(value, enc_hook=str) for name, value in values.items()}
    role = role or ("two-stream" if two_stream else preset.role)
    key = format_call(f"{element.name}+{cache}" if cache else element.name, changes)
    return key, replace(preset, label=label, role=role, given=given)


def _valid() -> list[str]:
    return [*GROUPS, ALL, *PRESETS, *(name for name in METHODS if name not in PRESETS)]


class Tuned(msgspec.Struct):
    """A method of a file that harness/tune.py made. plugin: its module, or its file, from the
    folder of that one."""

    label: str
    method: str
    role: str
    suites: dict[str, dict[str, Any]]
    plugin: str = ""


class ChoiceFile(msgspec.Struct):
    """A file that harness/tune.py made. problems: those that it was tuned on, as of
    `records.store.problems_of`; data: the same in files that lack them."""

    methods: dict[str, Tuned]
    problems: dict[str, str] = {}
    data: str = ""


def read_choice(path: str) -> dict[str, Preset]:
    """The methods of a file that harness/tune.py made, their plugins loaded. Raises UserError if it
    is none."""
    damaged = (msgspec.MsgspecError, UnicodeDecodeError)
    with explained(f"{path} is no choice.json of harness/tune.py", OSError, *damaged):
        choice = msgspec.json.decode(Path(path).read_bytes(), type=ChoiceFile)
    for plugin in dict.fromkeys(each.plugin for each in choice.methods.values() if each.plugin):
        load(str((Path(path).parent / plugin).resolve()) if plugin.endswith(".py") else plugin)
    return {
        name: Preset(
            each.label,
            each.method,
            role=each.role,
            suites=each.suites,
            tuned_on={suite: choice.problems.get(suite, choice.data) for suite in each.suites},
        )
        for name, each in choice.methods.items()
    }
