"""Tables become text: LaTeX (booktabs, multirow, graphicx), Markdown, HTML, CSV, and PDF."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from tabulate import tabulate

from harness.errors import UserError, explained
from harness.measures.card import Card
from harness.records.store import write_atomically
from tables.table import Cell, Table

TEMPLATES = Path(__file__).parent / "templates"
# One pass over the characters, so that the backslashes of a replacement are not escaped again.
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    """The text with LaTeX's special characters as commands that print them."""
    characters = (LATEX_SPECIAL.get(character, character) for character in one_line(text))
    return "".join(characters).replace("--", "-{}-")  # two hyphens would print as a dash


def escape_markdown(text: str) -> str:
    """The text with Markdown's special characters after backslashes."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", one_line(text))


def one_line(text: str) -> str:
    """The text with a space for each white space."""
    return re.sub(r"\s", " ", text)


def environment(folder: Path, **syntax: Any) -> jinja2.Environment:
    """Templates of a folder and of this package; a name that they use and do not get is an error.

    Args:
        folder: searched first.
        syntax: keyword arguments of jinja2.Environment.
    """
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **syntax,
    )


def csv(table: Table) -> str:
    """The unformatted numbers of a table."""
    return table.numbers.to_csv(index=False, lineterminator="\n")


def latex(table: Table) -> str:
    """The table in a `table*` environment, with its card as comments.

    The document needs the packages booktabs, multirow and graphicx.
    """
    rules = []
    # LaTeX counts columns from 1, and the first has the rows' labels.
    first = 2
    for group, count in table.groups:
        if group:
            rules.append(f"{first}-{first + count - 1}")
        first += count
    # Jinja's usual braces and percent signs are syntax of LaTeX.
    templates = environment(
        TEMPLATES,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    templates.filters |= {"latex": escape_latex, "line": one_line, "latex_cell": _latex_cell}
    template = templates.get_template("table.tex.jinja")
    return template.render(table=table, rules=rules)


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    if cell.emphasis == "bold":
        text = rf"\textbf{{{text}}}"
    # A speedup is set in math mode for its multiplication sign, and its underline with it.
    if re.fullmatch(r"[0-9.]+x", cell.text):
        number = rf"{text[:-1]}\times"
        text = rf"$\underline{{{number}}}$" if cell.emphasis == "underline" else f"${number}$"
    return text + (rf"\textsuperscript{{{cell.marks}}}" if cell.marks else "")


def markdown(table: Table) -> str:
    """Caption, table, marks and card. Cells are padded, so that the source reads as a table too."""
    names = [f"{column.group} {column.heading}".strip() for column in table.columns]
    grid = tabulate(
        [
            [escape_markdown(label), *map(_markdown_cell, cells)]
            for label, cells, _ in table.lines()
        ],
        headers=[table.heading, *map(escape_markdown, names)],
        tablefmt="pipe",
        # Cells are formatted already: parsed as a number, 1.50 would become 1.5.
        disable_numparse=True,
        colalign=("left", *("right" for _ in names)),
    )
    marks = {f"[{letter}]": meaning for letter, meaning in table.marks.items()}
    parts = [escape_markdown(table.caption), grid, _list(marks, " ")]
    if table.card:
        parts += ["**Run card**", card_list(table.card)]
    return "\n\n".join(filter(None, parts)) + "\n"


def card_list(card: Card) -> str:
    """A run card as a list in Markdown."""
    return _list({escape_markdown(key): escape_markdown(value) for key, value in card.items()})


def _list(entries: dict[str, str], between: str = ": ") -> str:
    return "\n".join(f"- {key}{between}{value}" for key, value in entries.items())


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    text = {"bold": f"**{text}**", "underline": f"<ins>{text}</ins>"}.get(cell.emphasis, text)
    return text + (f" [{cell.marks}]" if cell.marks else "")


NAME = "tables.pdf"
# No dates and no identifiers: the same tables give the same bytes.
DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs,multirow,graphicx}
\pdfinfoomitdate=1 \pdftrailerid{} \pdfsuppressptexinfo=-1
\begin{document}
TABLES\end{document}
"""


def write_pdf(tables: Sequence[str], folder: Path) -> Path:
    """Compile tables into `folder`/tables.pdf, without pdflatex's other files.

    Args:
        tables: LaTeX of each, from `latex`.
        folder: where the file goes.

    Raises:
        UserError: LaTeX's first complaint if it does not compile, or the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        build = Path(scratch)
        # One run suffices: there are no references. \clearpage: LaTeX queues few floats, and none
        # may be lost.
        text = DOCUMENT.replace("TABLES", "\\clearpage\n".join(tables))
        (build / "tables.tex").write_text(text, encoding="utf-8")
        # Labels are users' texts: whatever they contain must run no program and wait for no input.
        command = "pdflatex -interaction=nonstopmode -halt-on-error -no-shell-escape tables.tex"
        done = subprocess.run(
            command.split(),
            cwd=build,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            complaints = [line for line in done.stdout.splitlines() if line.startswith("!")]
            complaint = (complaints or ["no reason given"])[0]
            raise UserError(f"pdflatex could not compile the tables: {complaint}")
        path = folder / NAME
        with explained(f"cannot write {path}", OSError, instead="choose another folder with --out"):
            write_atomically(path, (build / NAME).read_bytes())
    return path
