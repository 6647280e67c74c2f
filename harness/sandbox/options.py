"""The command line's option for model-written code, of every command that scores."""

from __future__ import annotations

UNSAFE_OPTION = "--unsafe-code-execution"
UNSAFE_HELP = "where no sandbox works, run model-written code unprotected instead of not scoring it"
