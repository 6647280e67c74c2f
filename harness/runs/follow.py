"""Making a finished run's tables and report, by commands that read nothing but its records."""

import importlib
import sys
from pathlib import Path

from harness.errors import UserError, explained
from harness.records.environment import TOP


def follow(command: str, folder: Path, *options: str) -> None:
    """Call a command of tables/ on a finished run.

    Args:
        command: a module of tables/, such as "render".
        folder: of the run.
        options: more command line arguments.

    Raises:
        UserError: the command fails.
    """
    message = f"the records are kept; try again: python tables/{command}.py {folder}"
    with explained(message, Exception):
        # By path, for an installed package may be named tables, as PyTables is. No import
        # statement, for harness may not import tables.
        if str(TOP) not in sys.path:
            sys.path.insert(0, str(TOP))
        module = importlib.import_module(f"tables.{command}")
        if module.main([str(folder), *options]):
            raise UserError(message)
