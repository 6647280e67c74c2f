"""The evaluation harness; `harness.evaluate(methods=..., suites=..., model=...)` is its command
from Python."""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.run import evaluate, open_run

__all__ = ["evaluate", "open_run"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("fef-dllm-harness")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("harness.run"), name)
