"""Python files from outside this repository, as modules."""

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType


def import_file(path: Path) -> ModuleType:
    """A file as a module whose name has the hash of its content.

    Args:
        path: a Python file; it is executed each time.

    Raises:
        Exception: whatever the file raises.
    """
    content = path.read_bytes()
    stem = re.sub(r"[^A-Za-z0-9]", "_", path.stem)
    name = f"outside_{stem}_{hashlib.sha256(content).hexdigest()[:8]}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None, "a file that ends in .py has a loader"
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    try:
        # Not by its loader: compiled files have their date in seconds, and an editor may be faster.
        exec(compile(content, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module
