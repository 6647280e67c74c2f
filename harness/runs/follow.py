"""What follows a run: its tables and its report, made by commands that read the records and nothing
else."""

import importlib
import io
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from harness.errors import UserError, explained

ROOT = Path(__file__).resolve().parents[2]


def follow(command: str, folder: Path, failed: str, quiet: bool, *options: str) -> None:
    """A command of tables/ on a finished run: it reads the records and nothing else. Raises
    UserError if it fails."""
    again = f"the records are kept, {failed}; try: python tables/{command}.py {folder}"
    shown = redirect_stdout(io.StringIO()) if quiet else nullcontext()
    with explained(again, Exception), shown:
        # Found by its place: another package may be named tables, and harness imports none of its
        # own.
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
        module = importlib.import_module(f"tables.{command}")
        if module.main([str(folder), *options]):
            raise UserError(again)
