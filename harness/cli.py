"""The command fef-dllm: every command of this project under one name, each the `main` of its file
or room."""

import logging
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from harness.errors import UserError, one_line_errors
from model_wrappers.options import meant

CONFIGS = Path(__file__).resolve().parents[1] / "model_wrappers" / "configs"  # of OpenCompass
# Command -> its module and its line of help. Modules are imported by name when a command runs:
# importing all of them would take seconds.
COMMANDS = {
    "run": ("harness.run", "problems through decoders: timed, recorded, scored, with tables"),
    "tune": ("harness.tune", "settings of every decoder by one rule, on dev problems"),
    "score": ("harness.scoring", "judge a run's responses again"),
    "tables": ("tables.render", "LaTeX, Markdown and CSV from records"),
    "figures": ("tables.figures", "figures from records"),
    "report": ("tables.report", "a page that plays every decoding"),
    "claims": ("tables.claims", "a file of claims, each compared from its record"),
    "gate": ("harness.gate", "a run against an older one, or against golden records"),
    "audit": ("harness.audit.__main__", "decoders' exact output distributions"),
    "bench": ("harness.bench.__main__", "what passes and decoders cost on this machine"),
    "train": ("harness.train.__main__", "train a model"),
    "schedule": ("harness.schedule", "a schedule for DDOSP"),
}
USAGE = "\n".join(
    [
        "usage: fef-dllm COMMAND [OPTIONS]; each COMMAND has --help",
        "",
        *(f"  {name:11} {help_text}" for name, (_, help_text) in COMMANDS.items()),
        "  opencompass OpenCompass's own command, with our model files; alone it prints their"
        " folder",
        "  lm-eval     lm-evaluation-harness's own command, with the model fef-dllm",
    ]
)


def main(line: list[str] | None = None) -> int:
    """The command line. Raises UserError for an unknown command."""
    name, *rest = (sys.argv[1:] if line is None else line) or ["--help"]
    if name in ("-h", "--help"):
        print(USAGE)
        return 0
    if name == "opencompass":
        return opencompass(rest)
    if name == "lm-eval":
        return lm_eval(rest)
    if name not in COMMANDS:
        raise UserError(
            f"there is no command {name}{meant(name, [*COMMANDS, 'opencompass', 'lm-eval'])}"
        )
    sys.argv[0] = f"fef-dllm {name}"  # usage messages begin with it
    code: int = import_module(COMMANDS[name][0]).main(rest)
    return code


def opencompass(line: list[str]) -> int:
    """Run OpenCompass's command with the model files in CONFIGS; without options print that folder.

    Raises:
        UserError: the user gives another --config-dir.
    """
    if not line:
        print(CONFIGS)
        return 0
    if "--config-dir" in line:
        raise UserError(
            "fef-dllm opencompass sets --config-dir; with another one use the command opencompass"
            " itself"
        )
    from opencompass.cli.main import main as run_opencompass  # takes seconds to import

    # OpenCompass's main takes no arguments: it reads the process's command line.
    sys.argv = ["opencompass", *line, "--config-dir", str(CONFIGS)]
    run_opencompass()
    return 0


def lm_eval(line: list[str]) -> int:
    """Run lm-evaluation-harness's command, which then knows the model fef-dllm. Raises UserError if
    it is not installed."""
    if find_spec("lm_eval") is None:
        raise UserError(
            "fef-dllm lm-eval needs lm-evaluation-harness, which is not installed: pip install"
            " 'lm-eval>=0.4.10'"
        )
    from model_wrappers.lm_eval_model import main as run_lm_eval  # takes seconds to import

    # Its warnings, which are off, say which settings of a task it overrides.
    logging.disable(logging.NOTSET)
    run_lm_eval(line)
    return 0


def command() -> None:
    """The entry point of the installed command."""
    sys.exit(one_line_errors(main))
