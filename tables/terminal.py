"""Tables as a terminal shows them: of every method the means over the suites, within the terminal's width."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from tables.sheets import MEAN_TITLE, Sheet, with_columns

STYLES = {"bold": "bold", "underline": "underline"}


def show(sheets: Sequence[Sheet], folder: Path) -> None:
    """Print the means of the tables that have any, without one the first table's first group of columns.

    folder: where the files of the whole tables lie.
    """
    console = Console(highlight=False)
    shown = [sheet.table for sheet in sheets if MEAN_TITLE in sheet.table.cells.columns.get_level_values(0)]
    for table in shown or [sheet.table for sheet in sheets[:1]]:
        group = next((column[0] for column in table.cells.columns.to_flat_index() if column[0]), "")
        cells = with_columns(table, [MEAN_TITLE if shown else group]).cells
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        grid.add_column("Method", overflow="fold")
        columns: list[Any] = cells.columns.to_flat_index().to_list()
        for name, heading in columns:
            grid.add_column(f"{name} {heading}".strip(), justify="right" if name else "left", overflow="fold")
        for label, row in zip(cells.index, cells.to_numpy().tolist(), strict=True):
            texts = [Text(cell.text, STYLES.get(cell.emphasis, "")) for cell in row]
            marks = [f" [{cell.mark}]" if cell.mark else "" for cell in row]
            grid.add_row(Text(str(label)), *(text + mark for text, mark in zip(texts, marks, strict=True)))
        console.print(grid)
        console.print(Text(f"all columns, notes and provenance: {folder / table.name}.md"), soft_wrap=True)
