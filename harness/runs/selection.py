"""The methods of a run: presets, groups, and decoders, each with options; as text, or a decoder
itself.

An element is [FILE.py: or module:]NAME[+CACHE][(option=value, ...)], or FILE.json[:NAME] for
methods that harness/tune.py chose; several such files, each for suites of its own, make one row of
each method. Options may be lengths and `role` too; tau=0.7|0.9 stands for a method of each. An
element's canonical text, without the file, is the method's key in the records.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.elements import expanded, format_call, parse_call
from harness.errors import UserError, explained
from harness.methods.presets import ALL, GROUPS, PRESETS, ROLES, TUNED, Preset
from harness.methods.settings import split_lengths
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

    @property
    def bare(self) -> bool:
        """Whether it is a name without options."""
        return not self.cache and not self.arguments


def read_elements(methods: Methods) -> Iterator[Element]:
    """The elements of --methods.

    Raises:
        UserError: text that is no element.
        ValueError: an object that is no decoder, or whose name is taken.
    """
    functions: dict[str, Any] = {}  # by the name that each has
    if isinstance(methods, str) or callable(methods):
        methods = [methods]
    for element in methods:
        method, options = split_options(element)
        if not isinstance(method, str):
            yield _of_decoder(decoder_named(method), options, functions)
            continue
        if options:
            method = format_call(method, options)
        yield from map(_of_text, expanded(method))


def _of_text(text: str) -> Element:
    head, arguments = parse_call(text)
    if head.endswith(CHOICE):
        return Element(text, head.strip(), "", arguments=arguments)
    plugin, _, name = head.rpartition(":")
    name, _, cache = name.partition("+")
    return Element(text, plugin.strip(), name.strip(), cache.strip(), arguments)


def _of_decoder(decoder: Decoder, options: dict[str, Any], functions: dict[str, Any]) -> Element:
    """A decoder as an element; one that is registered has its name.

    Args:
        functions: the functions so far, by name; this one is added.
    """
    for name, known in METHODS.items():
        if known is decoder or known.source is decoder.source:
            return Element(name, "", name, arguments=options)
    decoder = _numbered(decoder, functions)
    check_name(decoder.name)
    if decoder.name in (*PRESETS, *GROUPS, ALL, *METHODS):
        raise ValueError(
            f"a method {decoder.name!r} is there already; give the function another name"
        )
    return Element(decoder.name, "", decoder.name, arguments=options, decoder=decoder)


def _numbered(decoder: Decoder, functions: dict[str, Any]) -> Decoder:
    """A decoder with a name that no other has: lambdas, partials and closures are numbered."""
    name = decoder.name
    number = 1
    while functions.setdefault(name, decoder.source) != decoder.source:
        number += 1
        name = f"{decoder.name}-{number}"
    named = replace(decoder, name=name)
    # read here, for in a worker its annotation has no module
    vars(named)["options"] = decoder.options
    return named


def methods_named(methods: Methods, plugins: Iterable[str] = ()) -> dict[str, Preset]:
    """The methods of --methods by key, after the plugins that are installed, given, or named there
    are loaded.

    Raises:
        UserError or ValueError: a plugin that fails; a method that is unknown, repeated or misused.
    """
    load_all(plugins)
    chosen: dict[str, Preset] = {}
    keys: set[str] = set()
    for element in read_elements(methods):
        key, presets = _resolved(element)
        if key in keys:
            raise UserError(
                f"--methods names a method twice: {key} (a function's name is its __name__)"
            )
        keys.add(key)
        for name, preset in presets.items():
            known = chosen.setdefault(name, preset)
            # Groups share rows; files of tuned methods are for different suites.
            if known is not preset and known.tuned_on:
                chosen[name] = known.joined(preset)
    if not chosen:
        raise UserError(f"--methods names no method{meant('', _valid())}")
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
    if element.plugin.endswith(CHOICE):
        return element.text, _of_choice(element)
    if element.plugin:
        registered = load(element.plugin).methods
        if name not in registered:
            raise UserError(
                f"{element.text}: {element.plugin} registers no method {name}; it has"
                f" {', '.join(registered) or 'none'}"
            )
    if name in GROUPS or name == ALL:
        return name, _of_group(element)
    preset = PRESETS.get(name) or _preset_of(element)
    key, preset = _with_arguments(element, preset)
    return key, {key: preset}


def _of_choice(element: Element) -> dict[str, Preset]:
    """The methods of a file that harness/tune.py made, or the one that is named."""
    name = element.name
    presets = read_choice(element.plugin)
    if name and name not in presets:
        raise UserError(f"{element.text}: it has no method {name}{meant(name, presets)}")
    if not element.bare:
        raise UserError(f"{element.text}: a tuned method takes no options and no cache")
    return {name: presets[name]} if name else presets


def _of_group(element: Element) -> dict[str, Preset]:
    name = element.name
    if not element.bare:
        raise UserError(f"{element.text}: {name} is a group; options and caches are for one method")
    return dict(PRESETS) if name == ALL else methods_named(",".join(GROUPS[name]))


def _preset_of(element: Element) -> Preset:
    """A preset of a decoder that has none, with its defaults."""
    name = element.name
    decoder = element.decoder or METHODS.get(name)
    if decoder is None:
        valid = ["FILE.py:NAME", *_valid()]
        raise UserError(
            f"{element.text}: unknown method{meant(name, valid, {'a suite, for --suite': SUITES})}"
        )
    role = "fef" if decoder.prefix_conditioned else "base"
    return Preset(decoder.label or name, element.decoder or name, role=role)


def _arguments_of(element: Element, decoder: Decoder) -> dict[str, Any]:
    """The arguments of an element with its cache. Raises UserError for what is no argument of a
    method."""
    arguments = dict(element.arguments)
    if element.cache and arguments.setdefault("cache", element.cache) != element.cache:
        raise UserError(f"{element.text}: the cache is there twice")
    if "draft" in arguments and isinstance(decoder.source, str):
        raise UserError(
            f"{element.text}: draft is no option of a method; with --model base=...,draft=... it"
            " has these drafts already"
        )
    role = arguments.get("role")
    if role not in (None, *ROLES):
        raise UserError(f"{element.text}: unknown role {role!r}{meant(role, ROLES)}")
    return arguments


def _with_arguments(element: Element, preset: Preset) -> tuple[str, Preset]:
    """The key of a method with its arguments, and the preset with them."""
    arguments = _arguments_of(element, preset.decoder)
    if not arguments:
        return element.name, preset
    role = arguments.pop("role", None)
    lengths, options = split_lengths(arguments, element.text)
    checked = convert_options(preset.decoder.options, preset.options | options, element.name)
    values = lengths | {name: getattr(checked, name) for name in options}

    changes = dict(values)
    name = element.name
    label = preset.label
    if values.get("cache") in CACHES:
        cache = changes.pop("cache")
        name = f"{name}+{cache}"
        label = f"{label}, {cache} cache"
    if role is not None:
        changes["role"] = role
    elif preset.role == "fef" and getattr(checked, "verify", "") == "two-stream":
        role = "two-stream"
    # The paper writes step=2 for the option steps.
    replaced = {*changes, *(option.removesuffix("s") for option in changes)}
    shown = {name: value for name, value in preset.in_brackets.items() if name not in replaced}
    return format_call(name, changes), replace(
        preset,
        label=label,
        in_brackets=shown | dict(sorted(changes.items())),
        role=role or preset.role,
        given=msgspec.to_builtins(values, enc_hook=str),
    )


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
