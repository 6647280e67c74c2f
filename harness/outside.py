"""Python files from outside this repository, imported by their path, with the files of their folder they import."""

import ast
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import explained


def import_file(path: Path, version: str) -> ModuleType:
    """A file as a module whose name has the version. Raises what the file raises."""
    name = f"outside_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}_{version}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None, "a file that ends in .py has a loader"
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def import_function(path: Path, name: str, version: str) -> Callable[..., Any]:
    """A function of a file. Raises UserError for one that is not there or cannot be imported."""
    with explained(f"{path}:{name} cannot be imported", Exception, SystemExit):
        function: Callable[..., Any] = getattr(import_file(path, version), name)
        return function


def with_helpers(path: Path) -> list[Path]:
    """A Python file, and the files of its folder that it imports, and they in turn; an installed file comes alone."""
    found = [path]
    if path.parent.name in ("site-packages", "dist-packages"):
        return found
    for file in found:
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, RecursionError):  # importing it says what is wrong
            continue
        whole = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        whole += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        for name in sorted({name.partition(".")[0] for name in whole}):
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if loaded is not None and path.parent not in Path(loaded).parents:  # that is what the name stands for
                continue
            package = path.parent / name
            files = [path.parent / f"{name}.py"]
            files += sorted(package.rglob("*.py")) if (package / "__init__.py").is_file() else []
            found += [each for each in files if each.is_file() and each not in found]
    return found
