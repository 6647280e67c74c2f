"""Plugins: files and modules from outside this repository with decoders, presets, suites and model
families.

A plugin registers its parts when it is imported, by `register` and `register_family` of
model_wrappers and `register_preset` and `register_suite` of this file. `--plugin` takes a file, a
module, or an entry point in the group GROUP; installed entry points are loaded for every run. A
plugin whose code has changed is imported again. A run records the plugins that it used, with a hash
of their syntax trees, in which comments and layout do not count.
"""

import ast
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import UserError, explained
from harness.methods.presets import ALL, GROUPS, PRESETS, Preset
from harness.methods.settings import split_lengths
from harness.records.files import with_helpers
from harness.records.schema import PluginName, RunConfig
from harness.suites.published import LENGTHS
from harness.suites.questions import NAME as SUITE_NAME
from harness.suites.registry import SUITES
from harness.suites.spec import Generator, Suite
from model_wrappers.decoders import (
    METHODS,
    NAME,
    PLUGIN_PRESETS,
    Decoder,
    check_label,
    file_of,
)
from model_wrappers.decoders.files import import_file
from model_wrappers.options import convert_options

GROUP = "fef_dllm_harness"  # of entry points
_loaded: dict[Path, PluginName] = {}


def register_preset(name: str, preset: Preset) -> Preset:
    """Have `--methods` take a preset by its name.

    Args:
        name: of the preset.
        preset: a decoder with options.

    Returns:
        The preset.

    Raises:
        ValueError: a bad preset, or a name that is taken.
    """
    # The same preset again is no error: a module may be imported twice.
    if PRESETS.get(name) == preset:
        return preset
    _check_name("preset", name, {*PRESETS, *GROUPS, ALL})
    check_label(preset.label or None)
    for values in ({**preset.options, **preset.lengths}, *preset.suites.values()):
        _, options = split_lengths(values, f"preset {name}")
        convert_options(preset.decoder.options, options, f"preset {name}")
    PRESETS[name] = preset
    PLUGIN_PRESETS[name] = preset
    return preset


def register_suite(suite: Suite) -> Suite:
    """Have `--suite` take a suite by its name.

    Args:
        suite: with its name.

    Returns:
        The suite.

    Raises:
        ValueError: a bad suite, or a name that is taken.
    """
    if SUITES.get(suite.name) == suite:
        return suite
    _check_name("suite", suite.name, set(SUITES), SUITE_NAME)  # part of file names
    missing = sorted({*LENGTHS} - {*suite.lengths})
    if missing:
        raise ValueError(f"suite {suite.name}: its lengths lack {', '.join(missing)}")
    if suite.configuration is None and suite.generator is None:
        raise ValueError(
            f"suite {suite.name}: it has no problems: it needs a generator or a configuration of"
            " OpenCompass"
        )
    if suite.generator is not None:
        _check_prompt(suite.name, suite.generator)
    SUITES[suite.name] = suite
    return suite


def _check_prompt(suite: str, generator: Generator) -> None:
    """Raise ValueError for a prompt without a column of the problems, which would be the same for
    every problem."""
    prompts = " ".join(part["prompt"] for part in generator.rounds)
    names = re.findall(r"\{(\w+)\}", prompts)
    if not {*names} & {*generator.columns}:
        raise ValueError(
            f"suite {suite}: no turn of its rounds has one of its columns, as"
            f" {{{generator.columns[0]}}}"
        )


def load(plugin: str) -> PluginName:
    """Import a plugin, unless this process has imported the same code already.

    Args:
        plugin: a file, a module, or the name of an entry point.

    Returns:
        What a run records of it.

    Raises:
        UserError: it cannot be imported, or registers nothing or a name that is taken.
    """
    module, path, files = _locate(plugin)
    sha256 = syntax_hash(files)
    if path not in _loaded or _loaded[path].sha256 != sha256:
        _loaded[path] = PluginName(
            plugin, str(path), sha256, _import_plugin(plugin, module, path, files)
        )
    return _loaded[path]


def syntax_hash(files: Iterable[Path]) -> str:
    """SHA-256 of the syntax trees of Python files; of one that is no Python, of its bytes."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        with suppress(SyntaxError, ValueError):  # importing it says what is wrong
            content = ast.dump(ast.parse(content)).encode()
        digest.update(content)
    return digest.hexdigest()


def load_all(plugins: Iterable[str]) -> None:
    """Load installed entry points, then these. Raises UserError as `load` does."""
    for name in [*(entry.name for entry in importlib.metadata.entry_points(group=GROUP)), *plugins]:
        load(name)


def used_by(config: RunConfig, model_types: Iterable[str] = ()) -> list[PluginName]:
    """The loaded plugins with a decoder, preset, suite or model family of a run; model_types: those
    of its models."""
    # The key of a method from a preset begins with the preset's name, as "name(tau=0.9)".
    used = {
        "decoders": {method.method for method in config.methods.values()},
        "presets": {re.split(r"[+(]", key)[0] for key in config.methods},
        "suites": set(config.suites),
        "families": set(model_types),
    }
    return [
        plugin
        for plugin in _loaded.values()
        if any(used[kind] & {*names} for kind, names in plugin.registered.items())
    ]


def restore(recorded: Iterable[PluginName], suites: Iterable[str]) -> None:
    """Load again those plugins of a run that registered one of these suites; a changed one is named
    on stderr."""
    for record in recorded:
        names = ", ".join(sorted({*suites} & {*record.registered.get("suites", [])}))
        if not names:
            continue
        # A file was named relative to the folder that the run was started in.
        plugin = record.path if record.plugin.endswith(".py") else record.plugin
        if load(plugin).sha256 != record.sha256:
            print(
                f"suite {names} is of the plugin {plugin}, which has changed since the run was"
                " made",
                file=sys.stderr,
            )


def blame(decoder: Decoder, error: BaseException) -> str | None:
    """One line on an error in a decoder of a plugin, with the plugin's file; None if the decoder is
    ours or not to blame."""
    source = decoder.source
    if isinstance(source, str):
        return None
    file = file_of(source)
    line = _line_in(file, error)
    if not line and isinstance(error, ValueError):
        return None
    return (
        f"plugin {Path(file).name}{line}: decoder {decoder.name}: {type(error).__name__}: {error}"
    )


def _line_in(file: str, error: BaseException) -> str:
    """The line of a file that is nearest to an error, ", line N"; "" if it has none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f", line {lines[-1]}" if lines else ""


def _check_name(kind: str, name: str, taken: set[str], pattern: re.Pattern[str] = NAME) -> None:
    if name in taken:
        raise ValueError(f"a {kind} {name!r} is there already; choose another name")
    if not pattern.fullmatch(name):
        raise ValueError(f"the name of a {kind} must match {pattern.pattern}, not {name!r}")


def _import_plugin(
    plugin: str, module: str, path: Path, files: Collection[Path]
) -> dict[str, list[str]]:
    """Import a plugin, and return the names that it registers, by kind.

    Names that it registered before its code changed are removed first. After a UserError the
    registries are as before.
    """
    from model_wrappers.backbones.registry import FAMILIES  # torch: not for --help

    registries: dict[str, dict[str, Any]] = {
        "decoders": METHODS,
        "presets": PRESETS,
        "suites": SUITES,
        "families": FAMILIES,
    }
    before = {kind: dict(registry) for kind, registry in registries.items()}
    if path in _loaded:
        _forget(_loaded[path], files, registries)
    others = {kind: set(registry) for kind, registry in registries.items()}
    try:
        if module.endswith(".py"):
            import_file(path)
        else:
            importlib.import_module(module)
        added = {
            kind: [name for name in registry if name not in others[kind]]
            for kind, registry in registries.items()
        }
        # A module that the process has imported otherwise registered its decoders at that time.
        added["decoders"] = list(dict.fromkeys([*added["decoders"], *_decoders_in(path)]))
        _check_added(added)
    except (Exception, SystemExit) as error:  # whatever its code raises
        for kind, registry in registries.items():
            registry.clear()
            registry.update(before[kind])
        raise UserError(f"plugin {plugin}{_reason(error, path)}") from error
    return {kind: names for kind, names in added.items() if names}


def _decoders_in(path: Path) -> list[str]:
    """The registered decoders whose functions are in a file."""
    return [
        name
        for name, decoder in METHODS.items()
        if not isinstance(decoder.source, str)
        and Path(file_of(decoder.source)).resolve() == path.resolve()
    ]


def _check_added(added: dict[str, list[str]]) -> None:
    """Raise ValueError for a plugin that registers nothing, or a decoder whose name is taken."""
    if not any(added.values()):
        raise ValueError(
            "it registers nothing; a decoder needs @register(name) before its function"
        )
    for name in added["decoders"]:
        taken = {preset for preset in PRESETS if PRESETS[preset].method != name}
        _check_name("method", name, {*GROUPS, ALL, *taken})


def _forget(
    plugin: PluginName, files: Iterable[Path], registries: dict[str, dict[str, Any]]
) -> None:
    """Take back what a plugin registered, and let the modules of its files be imported again."""
    for kind, names in plugin.registered.items():
        for name in names:
            registries[kind].pop(name, None)
    paths = {str(file.resolve()) for file in files}
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if inspect.ismodule(module) else None
        if file is not None and os.path.realpath(file) in paths:
            del sys.modules[name]
    importlib.invalidate_caches()


def _reason(error: BaseException, path: Path) -> str:
    """The text of an error, after the line of the plugin's file if it has one: ", line N: ..."."""
    line = _line_in(str(path), error)
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        line = f", line {error.lineno}"
    text = str(error)
    if not isinstance(error, ValueError | UserError):
        text = f"{type(error).__name__}: {error}"
    return f"{line}: {' '.join(text.split())}"


def _locate(plugin: str) -> tuple[str, Path, list[Path]]:
    """The name of a plugin's file or module, its file, and all files of its code.

    These are the files that it imports from its folder, or all Python files of its package. Raises
    UserError if there is no such plugin.
    """
    name = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}.get(
        plugin, plugin
    )
    if name.endswith(".py"):
        path = Path(name).expanduser().resolve()
        with explained(f"plugin {plugin}: there is no such file", OSError):
            path.read_bytes()
        return name, path, with_helpers(path)
    # Finding a submodule imports its package, whose code may raise anything.
    with explained(f"plugin {plugin}", Exception, SystemExit):
        spec = importlib.util.find_spec(name)
        package = importlib.util.find_spec(name.partition(".")[0])
    if spec is None or spec.origin is None or not spec.has_location or package is None:
        raise UserError(
            f"plugin {plugin}: there is no module {name}; give FILE.py, a module, or an entry point"
            f" of {GROUP}"
        )
    path = Path(spec.origin)
    folders = package.submodule_search_locations
    return name, path, sorted(Path(folders[0]).rglob("*.py")) if folders else with_helpers(path)
