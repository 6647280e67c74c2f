"""Tables become text: LaTeX (booktabs, multirow, graphicx), Markdown, and PDF by pdflatex."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from harness.errors import UserError, explained
from harness.measures.captions import divided
from tables.sheets import Cell, Table

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
WIDE = 8  # more columns than this are scaled to the width of the page


def escape_latex(text: str) -> str:
    """The text with LaTeX's special characters as commands that print them."""
    escaped = "".join(
        LATEX_SPECIAL.get(character, character) for character in re.sub(r"\s", " ", text)
    )
    return escaped.replace("--", "-{}-")  # two hyphens would print as a dash


def escape_markdown(text: str) -> str:
    """The text with Markdown's special characters after backslashes."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", re.sub(r"\s", " ", text))


def latex(table: Table) -> str:
    """The table as a `table*` of its own; needs booktabs, multirow and graphicx."""
    headings = [str(heading) for heading in table.cells.columns.get_level_values(1)]
    groups = [
        (str(group), len(list(same)))
        for group, same in groupby(table.cells.columns.get_level_values(0))
    ]
    first = [r"\multirow{2}{*}{Methods}"]
    rules = []
    column = 2
    for group, count in groups:
        first.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    rows = [
        " & ".join(_latex_row(str(label), cells, small=number in table.minor))
        for number, (label, cells) in enumerate(
            zip(table.cells.index, table.cells.to_numpy().tolist(), strict=True)
        )
    ]
    tabular = [
        rf"\begin{{tabular}}{{@{{}}l {' '.join('c' * count for _, count in groups)}@{{}}}}",
        r"\toprule",
        " & ".join(first) + r" \\",
        *rules,
        " & ".join(["", *(escape_latex(heading) for heading in headings)]) + r" \\",
        r"\midrule",
        *(row + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}" + ("%" if len(headings) > WIDE else ""),
    ]
    if len(headings) > WIDE:
        tabular = [r"\resizebox{\textwidth}{!}{%", *tabular, "}"]
    notes = [rf"\textsuperscript{{{mark}}}\,{escape_latex(text)}" for mark, text in table.notes]
    caption, rest = map(escape_latex, divided(table.sentences))
    notes += [rest] if rest else []
    return "\n".join(
        [
            r"% \usepackage{booktabs,multirow,graphicx}",
            r"\begin{table*}[t]",
            r"\centering",
            r"\small",
            r"\setlength{\tabcolsep}{3.8pt}",
            r"\setlength{\belowcaptionskip}{4pt}",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{table.name}}}",
            *tabular,
            *(
                [r"\par\smallskip\raggedright\footnotesize " + "\\quad\n".join(notes)]
                if notes
                else []
            ),
            r"\end{table*}",
            "",
        ]
    )


def markdown(table: Table) -> str:
    """Caption, table, notes and other sentences; cells are padded, so that it reads as a table
    unrendered too."""
    columns = table.cells.columns.to_flat_index().to_list()
    header = ["Method", *(escape_markdown(" ".join(column).strip()) for column in columns)]
    rows = [
        [escape_markdown(str(label)), *(_markdown_cell(cell) for cell in cells)]
        for label, cells in zip(table.cells.index, table.cells.to_numpy().tolist(), strict=True)
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(texts: list[str]) -> str:
        padded = (text.rjust(width) for text, width in zip(texts[1:], widths[1:], strict=True))
        return f"| {' | '.join([texts[0].ljust(widths[0]), *padded])} |"

    rule = f"|{'-' * (widths[0] + 2)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|"
    notes = [f"- [{mark}] {escape_markdown(text)}" for mark, text in table.notes]
    body = "\n".join([line(header), rule, *map(line, rows)])
    caption, rest = map(escape_markdown, divided(table.sentences))
    return "\n\n".join(filter(None, [caption, body, "\n".join(notes), rest])) + "\n"


def _latex_row(label: str, cells: list[Cell], small: bool) -> list[str]:
    """The texts of a row; a small one belongs to the row above it."""
    if not small:
        return [escape_latex(label), *(_latex_cell(cell) for cell in cells)]
    # Two hyphens make the dash between numbers.
    texts = [escape_latex(cell.text).replace("-", "--") for cell in cells]
    return [
        rf"\quad{{\scriptsize {escape_latex(label)}}}",
        *(rf"{{\scriptsize {text}}}" if text else "" for text in texts),
    ]


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    if cell.emphasis == "bold":
        text = rf"\textbf{{{text}}}"
    if re.fullmatch(r"[0-9.]+x", cell.text):
        number = rf"{text[:-1]}\times"
        text = rf"$\underline{{{number}}}$" if cell.emphasis == "underline" else f"${number}$"
    return text + (rf"\textsuperscript{{{cell.mark}}}" if cell.mark else "")


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    text = {"bold": f"**{text}**", "underline": f"<ins>{text}</ins>"}.get(cell.emphasis, text)
    return text + (f" [{cell.mark}]" if cell.mark else "")


NAME = "tables.pdf"
# Debian's packages of what the tables need and pdflatex alone does not have.
PACKAGES = {"booktabs.sty": "texlive-latex-recommended", "multirow.sty": "texlive-latex-extra"}
DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs,multirow,graphicx}
\pdfinfoomitdate=1 \pdftrailerid{} \pdfsuppressptexinfo=-1
\begin{document}
TABLES\end{document}
"""


def write_pdf(tables: Sequence[str], folder: Path) -> Path:
    """Compile tables, as `latex` writes them, into `folder`/tables.pdf; nothing else is left there.

    Raises UserError with LaTeX's first complaint if it does not compile, or if the file cannot be
    written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        build = Path(scratch)
        # One run suffices: there are no references. \clearpage: LaTeX queues few floats, and none
        # may be lost.
        text = DOCUMENT.replace("TABLES", "\\clearpage\n".join(tables))
        (build / "tables.tex").write_text(text, encoding="utf-8")
        command = [
            "pdflatex",
            "-interaction=nonstopmode",
            "-halt-on-error",
            "-no-shell-escape",
            "tables.tex",
        ]
        done = subprocess.run(
            command, cwd=build, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            complaints = [line for line in done.stdout.splitlines() if line.startswith("!")]
            complaint = (complaints or ["no reason given"])[0]
            missing = [package for file, package in PACKAGES.items() if file in complaint]
            advice = f"; apt-get install {missing[0]}" if missing else ""
            raise UserError(f"pdflatex could not compile the tables: {complaint}{advice}")
        path = folder / NAME
        part = folder / f".{NAME}.part"
        with explained(f"cannot write {path}", OSError, instead="choose another folder with --out"):
            shutil.copyfile(build / NAME, part)
            part.replace(path)
    return path
