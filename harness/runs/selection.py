"""The methods of a run: presets, groups, and decoders, each with options; as text, or a decoder
itself.

An element is [FILE.py: or module:]NAME[+CACHE][(option=value, ...)], or FILE.json[:NAME] for
methods that harness/tune.py chose. Several such files, tuned on different suites, are joined: each
method stays one row. Lengths and `role` can be given like options, and tau=0.7|0.9 stands for two
methods. An element's canonical text, without the file, is the method's key in the records.
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

# The ending of a file of tuned methods.
CHOICE = ".json"
# The values of +CACHE, which are values of a decoder's option `cache`.
CACHES = ("prefix", "dual")
# The text of --methods, or such texts and decoders themselves.
Methods = str | Iterable[Method | WithOptions]


@dataclass(frozen=True)
class Element:
    """An element of --methods.

    Attributes:
        text: the element as it was given, for messages.
        plugin: the file or module before the colon, or "".
        name: of a preset, a group or a decoder.
        arguments: the options in brackets, and the text after a plus as `cache`.
        decoder: the decoder itself, if the element is no text.
    """

    text: str
    plugin: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    decoder: Decoder | None = None


def read_elements(methods: Methods) -> Iterator[Element]:
    """The elements of --methods.

    Args:
        methods: text, a decoder, or several of them.

    Raises:
        UserError: text that is no element.
        ValueError: an object that is no decoder, or whose name is taken.
    """
    # The functions so far by name, so that the next one of the same name gets a number.
    functions: dict[str, Any] = {}
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
        return Element(text, head.strip(), "", arguments)
    plugin, _, name = head.rpartition(":")
    name, _, cache = name.partition("+")
    if cache and arguments.setdefault("cache", cache.strip()) != cache.strip():
        raise UserError(f"{text}: the cache is there twice")
    return Element(text, plugin.strip(), name.strip(), arguments)


def _of_decoder(decoder: Decoder, options: dict[str, Any], functions: dict[str, Any]) -> Element:
    """A decoder as an element. Its function is added to `functions`, those so far by name."""
    # The function of a registered decoder is the same method as its name in a text.
    for name, known in METHODS.items():
        if known is decoder or known.source is decoder.source:
            return Element(name, "", name, options)
    decoder = _numbered(decoder, functions)
    check_name(decoder.name)
    if decoder.name in (*PRESETS, *GROUPS, ALL, *METHODS):
        raise ValueError(
            f"a method {decoder.name!r} is there already; give the function another name"
        )
    return Element(decoder.name, "", decoder.name, options, decoder)


def _numbered(decoder: Decoder, functions: dict[str, Any]) -> Decoder:
    """A decoder with a distinct name: lambdas, partials and closures of one name are numbered."""
    name = decoder.name
    number = 1
    while functions.setdefault(name, decoder.source) != decoder.source:
        number += 1
        name = f"{decoder.name}-{number}"
    named = replace(decoder, name=name)
    # The cached property is filled now: in a worker the function has no module any more in which
    # its annotation could be looked up.
    vars(named)["options"] = decoder.options
    return named


def methods_named(methods: Methods, plugins: Iterable[str] = ()) -> dict[str, Preset]:
    """The methods of --methods by key. Plugins are loaded first: those that are installed, those of
    --plugin, and those that the elements name.

    Args:
        methods: text, a decoder, or several of them.
        plugins: files or modules of --plugin.

    Raises:
        UserError or ValueError: a plugin fails, or a method is unknown, repeated or misused.
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
            # A preset may be in two groups, which is no mistake. Tuned methods of one name come
            # from files for different suites, and become one row.
            if known is not preset and known.tuned_on:
                chosen[name] = known.joined(preset)
    if not chosen:
        raise UserError(f"--methods names no method{meant('', _valid())}")
    return {name: preset for name, preset in chosen.items() if not _as_fast(name, preset, chosen)}


def _as_fast(name: str, preset: Preset, chosen: Mapping[str, Preset]) -> bool:
    """Whether tuning chose the same settings as `accurate` that it chose as `fast`: one row is
    enough."""
    # name: DECODER-tuned-GOAL.
    decoder, tuned, goal = name.partition(TUNED)
    fast = chosen.get(f"{decoder}{tuned}fast", preset)
    return goal == "accurate" and fast is not preset and replace(fast, label=preset.label) == preset


def _resolved(element: Element) -> tuple[str, dict[str, Preset]]:
    """The canonical text of an element, and by key the methods that it stands for."""
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
    """The methods of a file that harness/tune.py made, or the one that the element names."""
    name = element.name
    presets = read_choice(element.plugin)
    if name and name not in presets:
        raise UserError(f"{element.text}: it has no method {name}{meant(name, presets)}")
    if element.arguments:
        raise UserError(f"{element.text}: a tuned method takes no options and no cache")
    return {name: presets[name]} if name else presets


def _of_group(element: Element) -> dict[str, Preset]:
    name = element.name
    if element.arguments:
        raise UserError(f"{element.text}: {name} is a group; options and caches are for one method")
    return dict(PRESETS) if name == ALL else methods_named(",".join(GROUPS[name]))


def _preset_of(element: Element) -> Preset:
    """A preset for a decoder without one, with its default options."""
    name = element.name
    decoder = element.decoder or METHODS.get(name)
    if decoder is None:
        valid = ["FILE.py:NAME", *_valid()]
        raise UserError(
            f"{element.text}: unknown method{meant(name, valid, {'a suite, for --suite': SUITES})}"
        )
    role = "fef" if decoder.prefix_conditioned else "base"
    return Preset(decoder.label or name, element.decoder or name, role=role)


def _check_arguments(element: Element, decoder: Decoder) -> None:
    """Raise UserError for arguments that no method takes."""
    # A decoder from outside may have an option of this name.
    if "draft" in element.arguments and isinstance(decoder.source, str):
        raise UserError(
            f"{element.text}: draft is no option of a method; with --model base=...,draft=... it"
            " has these drafts already"
        )
    role = element.arguments.get("role")
    if role not in (None, *ROLES):
        raise UserError(f"{element.text}: unknown role {role!r}{meant(role, ROLES)}")


def _with_arguments(element: Element, preset: Preset) -> tuple[str, Preset]:
    """The key of a method with an element's arguments, and the preset with them."""
    if not element.arguments:
        return element.name, preset
    _check_arguments(element, preset.decoder)
    arguments = dict(element.arguments)
    role = arguments.pop("role", None)
    lengths, options = split_lengths(arguments, element.text)
    # Converted, so that tau=0.90 and tau=0.9 have one key.
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
    # A label in the paper's style has step=2 for the option steps; both would be shown otherwise.
    replaced = {*changes, *(option.removesuffix("s") for option in changes)}
    in_brackets = {
        name: value for name, value in preset.in_brackets.items() if name not in replaced
    }
    return format_call(name, changes), replace(
        preset,
        label=label,
        in_brackets=in_brackets | dict(sorted(changes.items())),
        role=role or preset.role,
        given=msgspec.to_builtins(values, enc_hook=str),
    )


def _valid() -> list[str]:
    return [*GROUPS, ALL, *PRESETS, *(name for name in METHODS if name not in PRESETS)]


class Tuned(msgspec.Struct):
    """A method of a file that harness/tune.py made.

    Attributes:
        label: of its row.
        method: the decoder's name.
        role: the role of its checkpoint.
        suites: lengths and options by suite.
        plugin: the module or the file of its decoder, the file relative to this one's folder.
    """

    label: str
    method: str
    role: str
    suites: dict[str, dict[str, Any]]
    plugin: str = ""


class ChoiceFile(msgspec.Struct):
    """A file that harness/tune.py made.

    Attributes:
        methods: by key.
        problems: by suite the problems of the tuning, as `records.store.problems_of` names them.
        data: the same for all suites, in older files, which have no `problems`.
    """

    methods: dict[str, Tuned]
    problems: dict[str, str] = {}
    data: str = ""


def read_choice(path: str) -> dict[str, Preset]:
    """The methods of a file that harness/tune.py made, by key; their plugins are loaded.

    Raises:
        UserError: the file is damaged, or another one.
    """
    damaged = (msgspec.MsgspecError, UnicodeDecodeError)
    with explained(f"{path} is no choice.json of harness/tune.py", OSError, *damaged):
        choice = msgspec.json.decode(Path(path).read_bytes(), type=ChoiceFile)
    # Before the presets are made: each looks up its decoder by name.
    for plugin in dict.fromkeys(tuned.plugin for tuned in choice.methods.values() if tuned.plugin):
        load(str((Path(path).parent / plugin).resolve()) if plugin.endswith(".py") else plugin)
    return {
        name: Preset(
            tuned.label,
            tuned.method,
            role=tuned.role,
            suites=tuned.suites,
            tuned_on={suite: choice.problems.get(suite, choice.data) for suite in tuned.suites},
        )
        for name, tuned in choice.methods.items()
    }
