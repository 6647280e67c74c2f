"""A run's tables as files."""

from typing import Any

from harness.records.store import Run
from tables.render import as_files, tables_of


def render(run: Run, **tables: Any) -> dict[str, str]:
    """File name -> content of every table of a run; arguments and errors as of `tables_of`."""
    return as_files(tables_of(run, **tables))
