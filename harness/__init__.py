"""The evaluation harness; `harness.evaluate(methods=..., suites=..., model=...)` is its command from Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.run import evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("harness.run").evaluate
