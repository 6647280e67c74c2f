"""Python files from outside this repository, imported by their path."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType


def import_file(path: Path, version: str) -> ModuleType:
    """A file as a module of its own name, which differs by version; what it raises is raised."""
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
