"""The house: imports go one way without circles, files stay short, no folder shadows a module, commands start light."""

from __future__ import annotations

import ast
import importlib.machinery
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from paths import ROOT

PACKAGES = ("model_wrappers", "harness", "tables")  # each may import those before it
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
LONGEST = 300  # lines of a file
MOST_ROOMS = 30  # of the harness at its top level, with its neighbours
LONGEST_FEF = 70  # lines of Algorithm 2
COMMANDS = ["harness/run.py", "harness/scoring.py", "harness/audit.py", "harness/bench.py", "harness/gate.py"]
COMMANDS += [
    "harness/gpu.py",
    "harness/train.py",
    "harness/schedule.py",
    "tables/render.py",
    "tables/figures.py",
    "tables/report.py",
]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def imported_by(path: Path) -> set[str]:
    """The project's modules that a file imports anywhere but for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            inner = {f"{node.module}.{name.name}" for name in node.names} & MODULES.keys()
            found |= inner or {node.module}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.split(".")[0] in PACKAGES}
    return found


IMPORTS = {module: imported_by(path) - {module} for module, path in MODULES.items()}


def room_of(module: str) -> str:
    """The first two levels of a module's name."""
    return ".".join(module.split(".")[:2])


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """A circle of a graph, or [] if there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := visit(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def test_no_module_imports_one_that_imports_it() -> None:
    assert circle_in(IMPORTS) == []


def test_no_package_of_the_harness_imports_one_that_imports_it() -> None:
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for module, imports in IMPORTS.items():
        if module.startswith("harness."):
            rooms[room_of(module)] |= {room_of(each) for each in imports} - {room_of(module)}
    assert circle_in(rooms) == []


def test_imports_go_one_way() -> None:
    backwards = [
        f"{module} imports {other}"
        for module, imports in IMPORTS.items()
        for other in imports
        if PACKAGES.index(other.split(".")[0]) > PACKAGES.index(module.split(".")[0])
    ]
    assert backwards == []


def test_packages_do_not_import_commands() -> None:
    commands = {path.removesuffix(".py").replace("/", ".") for path in COMMANDS}
    assert [f"{module}: {each}" for module, imports in IMPORTS.items() for each in imports & commands] == []


def test_files_are_short() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {path: lines for path, lines in long.items() if lines > LONGEST} == {}


def test_the_harness_has_few_rooms() -> None:
    rooms = {room_of(module) for module in MODULES if module.startswith("harness.")} | set(PACKAGES)
    assert len(rooms) < MOST_ROOMS, sorted(rooms)


def described_imports() -> dict[str, set[str]]:
    """The rooms that each room imports by the table of docs/architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    described = {}
    for room, cell in re.findall(r"^\| `(\w+/\w+)(?:\.py)?` \| (.*) \|$", page, re.MULTILINE):
        package, found = room.split("/")[0], set()
        for part in cell.replace("nothing of ours", "").split("; "):
            other, _, names = part.rpartition(": ")
            found |= {f"{other or package}.{name}" for name in names.split(", ") if name}
        described[room.replace("/", ".")] = found
    return described


def test_the_page_on_the_house_says_who_imports_whom() -> None:
    """Of a package's own functions, which every room may take, it says nothing."""
    described = described_imports()
    imports: defaultdict[str, set[str]] = defaultdict(set)
    for module, others in IMPORTS.items():
        imports[room_of(module)] |= {room_of(each) for each in others} - {room_of(module), *PACKAGES}
    assert len(described) > 15
    assert {room: others for room, others in described.items() if others != imports[room]} == {}


def test_algorithm_2_fits_on_a_page() -> None:
    tree = ast.parse((ROOT / "model_wrappers" / "decoders" / "fef.py").read_text())
    (fef,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "decode_fef"]
    assert fef.end_lineno is not None and fef.end_lineno - fef.lineno + 1 <= LONGEST_FEF


@pytest.mark.parametrize("folder", ["harness", "tables"])
def test_nothing_that_a_command_puts_first_on_the_path_shadows_a_module(folder: str) -> None:
    names = {path.stem for path in (ROOT / folder).iterdir() if path.suffix == ".py" or path.is_dir()}
    names -= {"__init__", "__pycache__"}
    assert names, "the folder is there"
    outside = [entry for entry in sys.path if Path(entry).resolve() not in (ROOT / folder, ROOT)]
    shadowed = [name for name in names if importlib.machinery.PathFinder.find_spec(name, outside) is not None]
    assert sorted(shadowed) == [] and not names & set(sys.stdlib_module_names)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_neither_torch_nor_opencompass(command: str) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{command!r}, '--help']\n"
        "try:\n"
        f"    runpy.run_path({command!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        "print(sorted({'torch', 'transformers', 'opencompass', 'pandas'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stderr.strip().splitlines()[-1]
    assert done.stdout.startswith("usage:") and "torch" not in loaded and "opencompass" not in loaded


def test_the_harness_is_imported_without_torch() -> None:
    code = "import harness, harness.plugins, sys; print(sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
