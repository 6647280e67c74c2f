"""Plugins: loaded once by file, module or entry point, refused in one line, found again by what
they were."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_lines import resolved_run

from harness.errors import UserError
from harness.methods.presets import PRESETS, Preset
from harness.methods.settings import setting_of
from harness.plugins import (
    blame,
    load,
    load_all,
    register_preset,
    restore,
    syntax_hash,
    used_by,
)
from harness.records.files import with_helpers
from harness.records.schema import Method, RunConfig, SuiteName
from harness.runs.selection import methods_named
from harness.suites.registry import SUITES
from model_wrappers import METHODS, register
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.options import Options
from model_wrappers.request import Request

pytestmark = pytest.mark.usefixtures("registries")

DECODER = """
from model_wrappers import register
from model_wrappers.options import Options


class Own(Options):
    k: int = 1


@register("mine", label="Mine")
def mine(request, options: Own):
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.commit(masked, options.k, None, "filled")
"""
PRESET = """
from harness.methods.presets import Preset
from harness.plugins import register_preset

register_preset("mine-2", Preset("Mine, 2", "mine", {"k": 2}))
"""
SUITE = """
from harness.plugins import register_suite
from harness.suites import lists
from dataclasses import replace

register_suite(replace(lists.SUITE, name="own-lists", title="Own lists"))
"""


def plugin(folder: Path, text: str, name: str = "mine.py") -> Path:
    """A plugin file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_brings_decoders_presets_and_suites(tmp_path: Path) -> None:
    path = plugin(tmp_path, DECODER + PRESET + SUITE)
    loaded = load(str(path))
    assert loaded.registered == {
        "decoders": ["mine"],
        "presets": ["mine-2"],
        "suites": ["own-lists"],
    }
    assert (loaded.path, loaded.sha256) == (str(path), syntax_hash([path]))
    assert (
        METHODS["mine"].label == "Mine"
        and PRESETS["mine-2"].options == {"k": 2}
        and "own-lists" in SUITES
    )
    assert load(str(path)) is loaded


def test_a_file_that_has_changed_is_imported_again_and_a_comment_changes_nothing(
    tmp_path: Path,
) -> None:
    path = plugin(tmp_path, DECODER + PRESET)
    first = load(str(path))
    plugin(tmp_path, f"# better\n{DECODER}{PRESET}")
    assert load(str(path)) is first
    plugin(tmp_path, DECODER.replace("Mine", "Ours"))
    second = load(str(path))
    assert second.sha256 != first.sha256 and second.registered == {"decoders": ["mine"]}
    assert METHODS["mine"].label == "Ours" and "mine-2" not in PRESETS
    plugin(tmp_path, DECODER.replace("k: int", "k int"))
    with pytest.raises(UserError, match="SyntaxError"):
        load(str(path))
    assert METHODS["mine"].label == "Ours"


def test_a_file_is_imported_again_with_what_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_mine.py").write_text("LABEL = 'One'\n")
    text = "from beside_mine import LABEL\n" + DECODER.replace('"Mine"', "LABEL")
    path = plugin(tmp_path, text)
    load(str(path))
    (tmp_path / "beside_mine.py").write_text("LABEL = 'Second'\n")
    load(str(path))
    assert METHODS["mine"].label == "Second"
    del sys.modules["beside_mine"]


def test_two_files_with_decoders_of_one_name_are_not_confused(tmp_path: Path) -> None:
    load(str(plugin(tmp_path, DECODER, "v1.py")))
    with pytest.raises(UserError, match="a decoder 'mine' is there already"):
        load(str(plugin(tmp_path, DECODER.replace("options.k", "9"), "v2.py")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "mine.py: it registers nothing"),
        (
            "import no_such_module\n",
            "mine.py, line 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("\n\nraise RuntimeError('boom\\nbang')\n", "mine.py, line 3: RuntimeError: boom bang"),
        (
            DECODER.replace('"mine"', '"llada"'),
            "mine.py, line 10: a decoder 'llada' is there already",
        ),
        (DECODER.replace('"mine"', '"fef-2"'), "mine.py: a method 'fef-2' is there already"),
        (PRESET, "unknown method 'mine'; valid: llada"),
        (DECODER + PRESET.replace('"k"', '"q"'), "unknown option 'q' for preset mine-2; valid: k"),
        (SUITE.replace('"own-lists"', '"gsm8k"'), "a suite 'gsm8k' is there already"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file_and_the_reason(
    tmp_path: Path, text: str, says: str
) -> None:
    before = [dict(registry) for registry in (METHODS, PRESETS, SUITES, FAMILIES)]
    path = plugin(tmp_path, text)
    with pytest.raises(UserError, match=r"mine\.py") as caught:
        load(str(path))
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert [dict(registry) for registry in (METHODS, PRESETS, SUITES, FAMILIES)] == before


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"plugin nowhere/mine\.py: there is no such file"):
        load("nowhere/mine.py")
    with pytest.raises(UserError, match=r"there is no module no_such_package; give FILE\.py"):
        load("no_such_package")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package with a plugin module, which is forgotten afterwards."""
    folder = tmp_path / "own_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "decoders.py").write_text(f"from own_package.helper import *\n{DECODER}")
    (folder / "helper.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith("own_package")]:
        del sys.modules[name]


def test_a_module_imported_before_too_is_a_plugin_and_all_of_its_package_is_hashed(
    package: Path,
) -> None:
    __import__("own_package.decoders")
    first = load("own_package.decoders")
    assert first.registered == {"decoders": ["mine"]} and Path(first.path).name == "decoders.py"
    (package / "helper.py").write_text("changed = True\n")
    assert load("own_package.decoders").sha256 != first.sha256
    assert sys.modules["own_package.helper"].changed and "mine" in METHODS


def test_installed_entry_points_are_loaded_for_every_run(package: Path) -> None:
    information = package.parent / "own-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[fef_dllm_harness]\nown-decoders = own_package.decoders\n"
    )
    load_all([])
    assert "mine" in METHODS and load("own-decoders").plugin == "own-decoders"


def config_of(*line: str) -> RunConfig:
    """A configuration on nano."""
    return resolved_run("--suite", "gsm8k", *line).config


def test_a_method_may_name_its_file_and_goes_without_options_that_it_lacks(tmp_path: Path) -> None:
    path = plugin(tmp_path, DECODER + PRESET)
    config = config_of("--methods", f"llada; {path}:mine(k=3,block_length=16); {path}:mine-2")
    assert list(config.methods) == ["llada", "mine(block_length=16,k=3)", "mine-2"]
    assert config.methods["mine(block_length=16,k=3)"].label == "Mine (block_length=16, k=3)"
    with pytest.raises(UserError, match=r"registers no method llada; it has mine, mine-2"):
        config_of("--methods", f"{path}:llada")
    config = config_of("--methods", f"llada; {path}:mine", "--stop-at-eos")
    assert config.methods["mine"].suites["gsm8k"].options == {}
    assert config.methods["llada"].suites["gsm8k"].options["stop_at_eos"] is True


def test_a_run_names_the_plugins_that_it_uses(tmp_path: Path) -> None:
    path = plugin(tmp_path, DECODER + PRESET)
    load(str(path))
    load(str(plugin(tmp_path, SUITE, "suite.py")))
    assert used_by(RunConfig(methods={"llada": Method(method="llada")})) == []
    for methods in ({"mine(k=2)": Method(method="mine")}, {"mine-2": Method(method="mine")}):
        assert [each.path for each in used_by(RunConfig(methods=methods))] == [str(path)]
    used = used_by(RunConfig(suites={"own-lists": SuiteName("Own lists")}))
    assert [Path(each.path).name for each in used] == ["suite.py"]


def test_a_plugin_is_found_again_or_what_is_wrong_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plugin(tmp_path, SUITE)
    record = load(str(path))
    del SUITES["own-lists"]
    restore([record], ["gsm8k"])  # no suite of its is needed
    path.write_text(SUITE + "\nchanged = True\n")
    restore([record], ["own-lists"])
    assert "has changed since the run was made" in capsys.readouterr().err and "own-lists" in SUITES
    path.unlink()
    with pytest.raises(UserError, match=r"plugin .*mine\.py: there is no such file"):
        restore([record], ["own-lists"])


def given_to_evaluate(request: Request, options: Options) -> None:
    """A decoder that nobody registered."""


def test_functions_are_methods_by_the_names_that_they_have_or_were_given(tmp_path: Path) -> None:
    named = methods_named(["fef(steps=3)", given_to_evaluate])
    assert list(named) == ["fef(steps=3)", "given_to_evaluate"]
    assert (
        named["given_to_evaluate"].decoder.function is given_to_evaluate
        and "given_to_evaluate" not in METHODS
    )
    load(str(plugin(tmp_path, DECODER)))
    assert methods_named(METHODS["mine"].function)["mine"].method == "mine"


class Tau(Options):
    tau: float = 0.1


def with_tau(request: Request, options: Tau) -> None:
    """A decoder that nobody registered, with an option."""


def test_a_function_may_come_with_its_options() -> None:
    named = methods_named(
        [(with_tau, {"tau": 0.5, "block_length": 8}), with_tau, ("threshold", {"tau": 0.7})]
    )
    assert list(named) == ["with_tau(block_length=8,tau=0.5)", "with_tau", "threshold(tau=0.7)"]
    assert named["with_tau(block_length=8,tau=0.5)"].given == {"tau": 0.5, "block_length": 8}
    with pytest.raises(ValueError, match="unknown option 'tua' for with_tau; did you mean tau"):
        methods_named([(with_tau, {"tua": 0.5})])
    with pytest.raises(ValueError, match=r"is no method: give \(function, \{option: value\}\)"):
        methods_named([(with_tau, 0.5)])
    with pytest.raises(UserError, match=r"twice: with_tau \(a function's name is its __name__"):
        methods_named([with_tau, with_tau])


def test_a_cell_that_registers_again_replaces_what_a_notebook_had_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def renamed(request: Request, options: Tau) -> None:
        """The cell's function under another name."""

    for function in (with_tau, renamed):
        monkeypatch.setattr(function, "__module__", "__main__")
        register("mine")(function)
        assert METHODS["mine"].function is function
    monkeypatch.setattr(given_to_evaluate, "__module__", "elsewhere")
    with pytest.raises(ValueError, match="a decoder 'mine' is there already"):
        register("mine")(given_to_evaluate)


def test_an_error_in_a_decoder_is_told_with_its_line(tmp_path: Path) -> None:
    path = plugin(tmp_path, DECODER.replace("    masked =", "    [][1]\n    masked ="))
    load(str(path))
    with pytest.raises(IndexError) as caught:
        METHODS["mine"].function(None, None)  # type: ignore[arg-type]
    said = blame(METHODS["mine"], caught.value)
    assert said == "plugin mine.py, line 12: decoder mine: IndexError: list index out of range"
    assert blame(METHODS["llada"], caught.value) is None
    assert blame(METHODS["mine"], ValueError("of the model")) is None


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        (Preset("a\nb", "llada"), "a label is one line"),
        (Preset("A", "llada", lengths={"gen_length": 0}), "gen_length=0 must be a whole number"),
        (Preset("A", "llada", suites={"gsm8k": {"block_length": "x"}}), "block_length='x' must be"),
        (Preset("A", "llada", suites={"gsm8k": {"tau": 1}}), "unknown option 'tau' for preset own"),
    ],
)
def test_a_bad_preset_is_refused(preset: Preset, says: str) -> None:
    with pytest.raises((ValueError, UserError), match=says):
        register_preset("own", preset)


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        (
            Preset("Own", "llada", suites={"gms8k": {"steps": 2}}),
            "method own names the suite gms8k; did you mean gsm8k",
        ),
        (
            Preset("Own", "llada", suites={"GSM8K": {"steps": 2}}),
            "own names the suite GSM8K; did you mean gsm8k",
        ),
        (
            Preset("Own", "fef", draft_role="draft"),
            "method own needs the role draft: --model base=...,draft=...",
        ),
    ],
)
def test_a_preset_that_names_what_the_run_has_not_is_refused(preset: Preset, says: str) -> None:
    register_preset("own", preset)
    with pytest.raises(UserError, match=says):
        resolved_run("--methods", "own", "--suite", "gsm8k")


def test_a_preset_has_settings_by_suite() -> None:
    lengths = {"block_length": 12}
    suites: dict[str, dict[str, Any]] = {"gsm8k": {"tau": 0.5, "block_length": 24}}
    preset = register_preset(
        "own", Preset("Own", "threshold", {"tau": 0.7}, lengths=lengths, suites=suites)
    )
    gsm8k, math = (setting_of(preset, suite, {"gen_length": 48}) for suite in ("gsm8k", "math"))
    assert (gsm8k.block_length, gsm8k.options) == (24, {"tau": 0.5})
    assert (math.block_length, math.options) == (12, {"tau": 0.7})


# What a Python file from outside consists of
def test_a_file_comes_with_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    files = {
        "mine.py": "import json, rules\n\ndef f():\n    from parts.inner import part\n",
        "rules.py": "import mine, more.rules\n",
        "more/__init__.py": "",
        "more/rules.py": "",
        "parts/__init__.py": "",
        "parts/inner.py": "import nothing",
        "other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [path.relative_to(tmp_path).as_posix() for path in with_helpers(tmp_path / "mine.py")]
    assert found[0] == "mine.py" and sorted(found) == sorted(files.keys() - {"other.py"})


def test_suites_without_a_role_of_their_own_have_the_presets() -> None:
    register_preset("own", Preset("Own", "fef", role="fef", roles={"mbpp": "base"}))
    run = resolved_run("--methods", "own", "--suite", "gsm8k,mbpp")
    assert run.config.models[run.config.methods["own"].role] == {
        "gsm8k": "nano-fef",
        "mbpp": "nano",
    }
