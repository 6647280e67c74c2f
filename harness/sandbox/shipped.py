"""The code that is sent into a sandbox, where the harness is not installed."""

from __future__ import annotations

import functools
from pathlib import Path
from types import CodeType

# What the interpreter in the sandbox is started with: it reads the first part of the request, which brings the modules.
SCRIPT = """
import marshal, os, sys
from types import ModuleType
left = int.from_bytes(os.read(0, 8), "big")
parts = []
while left:
    parts.append(os.read(0, left))
    left -= len(parts[-1])
request = marshal.loads(b"".join(parts))
for name, code in request["modules"]:
    module = sys.modules[name] = ModuleType(name)
    exec(code, module.__dict__)
module.main(request)
"""
MODULES = ("channel", "values", "program", "judge", "supervisor")  # in the order of their imports


@functools.cache
def compiled(text: str, name: str = "<setup>") -> CodeType:
    """Text of the harness's or the evaluators' own: the interpreter in the sandbox is of the same version."""
    return compile(text, name, "exec", dont_inherit=True)


@functools.cache
def modules() -> list[tuple[str, CodeType]]:
    """The modules that run in the sandbox, compiled."""
    files = {name: Path(__file__).with_name(f"{name}.py") for name in MODULES}
    return [
        (f"harness.sandbox.{name}", compiled(path.read_text(encoding="utf-8"), f"<{name}>"))
        for name, path in files.items()
    ]
