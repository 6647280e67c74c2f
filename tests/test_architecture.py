"""The house: no folder shadows a module, commands start light. `make check` holds who may import
whom."""

import importlib.machinery
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

COMMANDS = [
    *(f"harness/{name}.py" for name in ("run", "scoring", "gate", "schedule")),
    *(f"harness/{room}/__main__.py" for room in ("audit", "bench", "train")),
    *(f"tables/{name}.py" for name in ("render", "figures", "report")),
]


@pytest.mark.parametrize("folder", ["harness", "tables"])
def test_nothing_that_a_command_puts_first_on_the_path_shadows_a_module(folder: str) -> None:
    names = {
        path.stem for path in (ROOT / folder).iterdir() if path.suffix == ".py" or path.is_dir()
    }
    names -= {"__init__", "__pycache__"}
    assert names, "the folder is there"
    outside = [entry for entry in sys.path if Path(entry).resolve() not in (ROOT / folder, ROOT)]
    shadowed = [
        name
        for name in names
        if importlib.machinery.PathFinder.find_spec(name, outside) is not None
    ]
    assert sorted(shadowed) == [] and not names & set(sys.stdlib_module_names)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_neither_torch_nor_opencompass(command: str) -> None:
    code = (
        f"import runpy, sys\nsys.argv = [{command!r}, '--help']\ntry:\n   "
        f" runpy.run_path({command!r}, run_name='__main__')\nexcept SystemExit as end:\n    assert"
        " end.code == 0\nprint(sorted({'torch', 'transformers', 'opencompass', 'pandas'} &"
        " set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stderr.strip().splitlines()[-1]
    assert (
        done.stdout.startswith("usage:") and "torch" not in loaded and "opencompass" not in loaded
    )


def test_the_harness_is_imported_without_torch() -> None:
    code = (
        "import harness, harness.plugins, sys; print(sorted({'torch', 'transformers', 'pandas'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
