"""Plugins: files and modules from outside this repository with decoders, presets, suites and model families.

A plugin registers what it brings when it is imported:

    from model_wrappers import register, register_family      # decoders, families
    from harness.plugins import register_preset, register_suite

`--plugin` takes a file, a module (`package.module`, or `package.module:function` with a function of no arguments that
registers), or the name of an entry point in the group GROUP; installed entry points are loaded for every run. A run
notes the plugins that it used, with the SHA-256 of their code.
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.methods.groups import GROUPS
from harness.methods.presets import ALL, LENGTHS, PRESETS, Preset
from harness.methods.selection import TUNED, Methods, read_elements
from harness.outside import import_file, with_helpers
from harness.records.hashes import files_hash
from harness.records.schema import PluginName, RunConfig
from harness.suites.registry import SUITES
from harness.suites.spec import Suite
from model_wrappers.decoders import METHODS, NAME, Decoder, check_label, file_of, name_of, version_of
from model_wrappers.options import convert_options

GROUP = "fef_dllm_harness"  # of entry points
Names = dict[str, list[str]]  # what is registered, by kind
_loaded: dict[Path, PluginName] = {}
_of_runs: set[Path] = set()  # plugins that a run asked for; the next one, which does not, does not know them
_loading: list[Path] = []  # the plugin that is being imported


def register_preset(name: str, preset: Preset) -> Preset:
    """Make a preset that `--methods` takes by its name. Raises ValueError for a bad preset, or a name that is taken."""
    _check_kind(preset, Preset)
    own = version_of(str(preset.method), str(_loading[-1])) if _loading else ""
    if own in METHODS:
        raise ValueError(f"preset {name}: {preset.method!r} is of another file, this one's is {own!r}; name that")
    if name in PRESETS and PRESETS[name] == preset:  # the file is imported once more
        return preset
    _check_name("preset", name, {*PRESETS, *GROUPS, ALL})
    if preset.method not in METHODS:
        raise ValueError(f"preset {name} is of the unknown decoder {preset.method!r}; valid: {', '.join(METHODS)}")
    check_label(preset.label)
    if not preset.label:
        raise ValueError(f"preset {name} needs a label")
    for values in ({**preset.options, **preset.lengths}, *preset.suites.values()):
        for length in LENGTHS:
            if type(values.get(length, 1)) is not int or values.get(length, 1) < 1:
                raise ValueError(f"preset {name}: {length}={values[length]!r} must be a whole number of at least 1")
        options = {option: value for option, value in values.items() if option not in LENGTHS}
        convert_options(METHODS[preset.method].options, options, f"preset {name}")
    PRESETS[name] = preset
    return preset


def register_suite(suite: Suite) -> Suite:
    """Make a suite that `--suite` takes by its name. Raises ValueError for a bad suite, or a name that is taken."""
    _check_kind(suite, Suite)
    _check_name("suite", suite.name, set(SUITES))
    if "/" in suite.name:
        raise ValueError(f"suite {suite.name}: its name is part of file names, and has no /")
    if suite.configuration is None and suite.generator is None:
        raise ValueError(f"suite {suite.name} has no problems: it needs a generator or a configuration of OpenCompass")
    missing = {*LENGTHS} - {*suite.lengths}
    if missing:
        raise ValueError(f"suite {suite.name}: its lengths lack {', '.join(sorted(missing))}")
    SUITES[suite.name] = suite
    return suite


def load(plugin: str) -> PluginName:
    """Load a plugin, once; one that has changed since is loaded anew.

    plugin: a file, a module, or the name of an entry point. Raises UserError, in one line with the plugin and the
    reason, for one that cannot be imported, or registers nothing, a name that is taken, or what is of a wrong type.
    """
    value, path, sha256 = _found(plugin)
    before = _loaded.get(path)
    if before is not None and before.sha256 == sha256:
        return before
    if before is not None:
        _forget(_loaded.pop(path).registered)
    with _registering(plugin, path) as added:
        if value.endswith(".py"):
            import_file(path, sha256[:8])
        else:
            _import_module(value, again=before is not None)
    _loaded[path] = PluginName(plugin, str(path), sha256, added)
    return _loaded[path]


def load_all(plugins: Iterable[str]) -> None:
    """Load installed entry points, then these. Raises UserError as `load` does."""
    for name in [*(entry.name for entry in importlib.metadata.entry_points(group=GROUP)), *plugins]:
        load(name)


def load_for(methods: Methods, plugins: Iterable[str] = ()) -> None:
    """Load the plugins that are installed, given, or named in --methods.

    Raises UserError as `load` does, and for a method that the plugin before its name does not have.
    """
    named = [each for each in read_elements(methods) if each.plugin and not each.plugin.endswith(TUNED)]
    wanted = {_found(plugin)[1] for plugin in (*plugins, *(each.plugin for each in named))}
    for path in (_of_runs - wanted) & {*_loaded}:
        _forget(_loaded.pop(path).registered)
    _of_runs.intersection_update(wanted)
    before = set(_loaded)
    load_all(plugins)
    for element in named:
        registered = load(element.plugin).registered
        names = [*registered.get("decoders", []), *registered.get("presets", [])]
        if not {element.name, version_of(element.name, element.plugin)} & {*names}:
            has = ", ".join(names) or "none"
            raise UserError(f"{element.plugin} registers no method {element.name}; it has {has}")
    _of_runs.update(wanted & set(_loaded) - before)


def used_by(config: RunConfig, model_types: Iterable[str] = ()) -> list[PluginName]:
    """The loaded plugins of which a run uses something; model_types: of its models."""
    used = {
        "decoders": {method.method for method in config.methods.values()},
        "presets": {re.split(r"[+(]", key)[0] for key in config.methods},
        "suites": set(config.suites),
        "families": set(model_types),
    }
    return [
        plugin for plugin in _loaded.values() if any(used[kind] & {*names} for kind, names in plugin.registered.items())
    ]


def restore(recorded: Iterable[PluginName], suites: Iterable[str]) -> None:
    """Load again those plugins of a run that brought one of these suites.

    recorded: run.json's `plugins`. Raises UserError if such a plugin is gone, or not what it was.
    """
    for each in recorded:
        own = sorted({*suites} & {*each.registered.get("suites", [])})
        if not own:
            continue
        is_file = each.plugin.endswith(".py")
        plugin = each.path if is_file else each.plugin
        if is_file and not Path(plugin).is_file():
            raise UserError(f"suite {', '.join(own)} is of the plugin {plugin}, which is gone; put it back")
        if _found(plugin)[2] != each.sha256:
            raise UserError(
                f"suite {', '.join(own)} is of the plugin {plugin}, which is not what it was when the run was made "
                "(its SHA-256 differs from run.json's); restore it, or make a run of its own"
            )
        load(plugin)


def blame(decoder: Decoder, error: BaseException) -> str | None:
    """What went wrong in a decoder from outside, in one line with its file; None if it is not the decoder's doing."""
    source = decoder.source
    if isinstance(source, str):
        return None
    file = file_of(source)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not lines and isinstance(error, ValueError):
        return None
    where = f"{Path(file).name}, line {lines[-1]}" if lines else Path(file).name
    return f"plugin {where}: decoder {name_of(decoder)}: {type(error).__name__}: {error}"


def _check_kind(given: Any, kind: type) -> None:
    if not isinstance(given, kind):
        raise ValueError(f"a {kind.__module__}.{kind.__name__} is needed, not the {type(given).__name__} {given!r}")


def _check_name(what: str, name: Any, taken: set[str]) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f'the name of a {what} is letters, digits, "_", "-", "." and "/", not {name!r}')
    if name in taken:
        raise ValueError(f"a {what} {name!r} is there already; choose another name")


def _registries() -> dict[str, dict[str, Any]]:
    from model_wrappers.backbones.registry import FAMILIES  # torch: not for --help

    return {"decoders": METHODS, "presets": PRESETS, "suites": SUITES, "families": FAMILIES}


@contextmanager
def _registering(plugin: str, path: Path) -> Iterator[Names]:
    """What is registered meanwhile; nothing of it stays if anything is wrong, which becomes a UserError.

    What was imported before it is loaded as a plugin registered its decoders then.
    """
    registries: dict[str, dict[str, Any]] = _registries()
    added: Names = {}
    known = {kind: set(registry) for kind, registry in registries.items()}

    def new() -> Names:
        found = {kind: [name for name in each if name not in known[kind]] for kind, each in registries.items()}
        return {kind: names for kind, names in found.items() if names}

    _loading.append(path)
    try:
        yield added
        added |= new()
        own = [name for name, decoder in METHODS.items() if _is_of(decoder, path)]
        if own:
            added["decoders"] = list(dict.fromkeys([*added.get("decoders", []), *own]))
        if not added:
            raise ValueError("it registers nothing; a decoder needs @register(name) before its function")
        for name in added.get("decoders", []):
            if name in (GROUPS | {ALL: []}) or (name in PRESETS and PRESETS[name].method != name):
                raise ValueError(f"a method {name!r} is there already; choose another name")
    except BaseException as error:  # whatever its code raises
        _forget(new())
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(f"plugin {plugin}{_reason(error, path)}") from error
    finally:
        _loading.pop()


def _is_of(decoder: Decoder, path: Path) -> bool:
    return not isinstance(decoder.source, str) and Path(file_of(decoder.source)).resolve() == path.resolve()


def _reason(error: BaseException, path: Path) -> str:
    """What an error says, after the line of the plugin's file where there is one: ", line N: ..."."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == str(path) else line
    said = str(error) if isinstance(error, ValueError | UserError) else f"{type(error).__name__}: {error}"
    return f"{f', line {line}' if line else ''}: {' '.join(said.split())}"


def _forget(registered: Names) -> None:
    for kind, names in registered.items():
        for name in names:
            _registries()[kind].pop(name, None)


def _found(plugin: str) -> tuple[str, Path, str]:
    """What a plugin stands for (a file, or a module), its file, and the SHA-256 of its code. Raises UserError."""
    value = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}.get(plugin, plugin)
    if value.endswith(".py"):
        path = Path(value).expanduser().resolve()
        if not path.is_file():
            raise UserError(f"plugin {plugin}: there is no such file")
        return value, path, files_hash(with_helpers(path))
    name = value.partition(":")[0]
    try:
        found = importlib.util.find_spec(name)
    except (Exception, SystemExit) as error:  # the package that it is in, or a name that is none
        raise UserError(f"plugin {plugin}: {type(error).__name__}: {error}") from error
    if found is None or found.origin is None or not found.has_location:
        raise UserError(
            f"plugin {plugin}: there is no module {name}; give FILE.py, a module, or an entry point of {GROUP}"
        )
    path = Path(found.origin)
    return value, path, _module_hash(name, path)


def _module_hash(name: str, path: Path) -> str:
    """SHA-256 of a module's file; of a package, or of a module in one, of all its Python files."""
    package = name.split(".")[0]
    if path.name != "__init__.py" and package == name:
        return files_hash(with_helpers(path))
    folder = next((above for above in path.parents if above.name == package), path.parent)
    return files_hash(sorted(folder.rglob("*.py")))


def _import_module(value: str, again: bool) -> None:
    name, _, attribute = value.partition(":")
    module = importlib.import_module(name)
    if again:
        importlib.reload(module)
    if attribute:
        function = getattr(module, attribute, None)
        if not callable(function):
            raise ValueError(f"module {name} has no function {attribute}")
        if not inspect.signature(function).parameters:
            function()
