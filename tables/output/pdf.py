"""All LaTeX tables of a run as one PDF, by pdflatex; the same tables give the same bytes."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UserError, cannot

NAME = "tables.pdf"
DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs,multirow,graphicx}
\pdfinfoomitdate=1 \pdftrailerid{} \pdfsuppressptexinfo=-1
\begin{document}
TABLES\end{document}
"""


def write_pdf(tables: Sequence[str], folder: Path) -> Path:
    """Compile tables, LaTeX as `writers.latex` gives it, into `folder`/tables.pdf; nothing else is left there.

    Raises UserError with LaTeX's own first complaint if it does not compile (booktabs, multirow and graphicx are
    needed), or if the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        build = Path(scratch)
        # One run suffices: there are no references. \clearpage: LaTeX queues few floats, and none may be lost.
        text = DOCUMENT.replace("TABLES", "\\clearpage\n".join(tables))
        (build / "tables.tex").write_text(text, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "tables.tex"]
        done = subprocess.run(command, cwd=build, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            complaints = [line for line in done.stdout.splitlines() if line.startswith("!")]
            raise UserError(f"pdflatex could not compile the tables: {(complaints or ['no reason given'])[0]}")
        path, part = folder / NAME, folder / f".{NAME}.part"
        with cannot(f"write {path}", "choose another folder with --out"):
            shutil.copyfile(build / NAME, part)
            part.replace(path)
    return path
