"""Python files from outside this repository, as modules."""

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType


def import_file(path: Path) -> ModuleType:
    """Import a Python file as a module whose name contains the hash of the file's content.

    Args:
        path: a Python file. It is executed at every call.

    Raises:
        Exception: any exception that the file raises.
    """
    content = path.read_bytes()
    stem = re.sub(r"[^A-Za-z0-9]", "_", path.stem)
    name = f"outside_{stem}_{hashlib.sha256(content).hexdigest()[:8]}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None, "a file that ends in .py has a loader"
    # In sys.modules before it runs, as dataclasses and pickle look their module up there.
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    try:
        # Not by its loader, which takes a compiled file whose source has the same time in seconds:
        # an editor may save twice within one.
        exec(compile(content, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module
