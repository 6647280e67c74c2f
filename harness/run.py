"""The main job: benchmark problems through decoders, timed against LLaDA, recorded, scored and
tabulated.

    python harness/run.py --suite gsm8k,math,humaneval,mbpp
    python harness/run.py --suite gsm8k,mbpp --data FOLDER --model GSAI-ML/LLaDA-8B-Instruct \\
        --device cuda
    python harness/run.py --methods "llada; fef(steps=3,window=12); ./mine.py:mine(k=2)" \\
        --suite "mine=./q.jsonl"
    python harness/run.py --list

Writes run.json, items.jsonl, windows.jsonl and the tables to --out (default:
results/runs/<time>-<model>); with --trace also every commit, re-mask and rejected draft, and a
report that plays them in a browser. A run that was stopped goes on with --resume --out FOLDER and
repeats at most the item in flight. In Python: `harness.evaluate`.
"""

from __future__ import annotations

import inspect
import io
import logging
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from harness.errors import UserError, one_line_errors
from harness.methods.presets import GROUPS, describe_presets
from harness.options import checked, command_name, parsed
from harness.runs.options import RunOptions
from harness.suites.registry import PAPER_SUITES, SUITES

COMMANDS = ("plan", "status", "list")  # options that do something else than a run

if TYPE_CHECKING:
    from harness.measures.intervals import Evaluation
    from harness.runs.pool import WorkerPool
    from harness.runs.resolve import ResolvedRun
    from model_wrappers.decoders import Method, WithOptions


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(RunOptions, line, __doc__)
    if options.status is not None:
        from harness.runs.record import describe_status

        print(describe_status(options.status))
        return 0
    if options.list:
        from harness.plugins import load_all

        load_all(options.plugin)
        print(describe_presets(str(options.methods)))
        print(f"\nsuites: {', '.join(SUITES)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
        if options.plan:
            plan(options, Path(scratch))
        else:
            run(options, Path(scratch))
    return 0


def evaluate(
    methods: Method | Iterable[Method | WithOptions] | None = None,
    suites: str | Iterable[str] | None = None,
    model: str | None = None,
    limit: int | None = None,
    **options: Any,
) -> Evaluation:
    """Do what the command line does, and return the run as pandas frames.

    Args:
        methods: as --methods, or a list of such elements and of decoders, functions of (request,
            options), alone or as (function, {option: value}).
        suites: as --suite, or a list of such elements.
        model: as --model.
        limit: the first items of each suite; None is all.
        options: those of the command line, but plan, status and list. None and False stand for no
            value.

    Returns:
        What the run measured.

    Raises:
        UserError or ValueError: what the command refuses.
    """
    if other := [name for name in COMMANDS if options.get(name)]:
        raise UserError(f"evaluate makes a run; --{other[0]} is of the command alone")
    values = {
        "methods": _elements(methods),
        "suite": _elements(suites),
        "model": model,
        "limit": limit,
        **options,
    }
    # Whoever calls from Python may have set a level, which must not change for good.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # as the command does
    try:
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            folder = run(checked(RunOptions, values), Path(scratch))
    finally:
        logging.disable(before)
    return open_run(folder)


def _elements(values: Any) -> Any:
    """Methods or suites as the command's options have them: text, or a tuple; others are refused
    there."""
    if values is None or isinstance(values, str | Mapping):
        return values
    return (values,) if callable(values) else tuple(values)


def _signature() -> inspect.Signature:
    """The signature of `evaluate` with the options in place of **options, for editors to show."""
    signature = inspect.signature(evaluate)
    hints = get_type_hints(RunOptions)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(RunOptions)
        if field.name not in {"suite", *signature.parameters, *COMMANDS}
    ]
    return signature.replace(parameters=[*named, *options])


evaluate.__signature__ = _signature()  # type: ignore[attr-defined]


def open_run(folder: str | Path) -> Evaluation:
    """What `evaluate` returned for a run, read from its folder.

    Args:
        folder: of the run.

    Raises:
        UserError: it holds no run, or a damaged one.
    """
    from harness.measures.intervals import evaluated
    from harness.measures.seconds import read_measured

    return evaluated(read_measured(Path(folder)))


def plan(options: RunOptions, scratch: Path) -> None:
    """Print what a run will cost, with --resume what is left of it, and write nothing; `scratch` is
    a folder for temporary files."""
    from harness.runs.folder import continued_options
    from harness.runs.record import announcement, kept_responses
    from harness.runs.resolve import resolve

    resolved = resolve(continued_options(options))
    kept = kept_responses(options.out) if options.resume and options.out else frozenset()
    with pool_for(resolved, scratch) as pool:
        for line in announcement(pool.config, pool, True, lambda *key: key in kept):
            print(line, flush=True)


def pool_for(run: ResolvedRun, scratch: Path) -> AbstractContextManager[WorkerPool]:
    """The pool that decodes a run, as a context manager: Ray's workers, or this process.

    Args:
        run: resolved.
        scratch: a folder for generated problems and other temporary files.

    Raises:
        UserError or ValueError: what cannot be loaded.
    """
    if run.workers is not None:
        from harness.cluster.pool import RayPool

        return RayPool(run, scratch)
    from harness.runs.loading import worker_for

    return nullcontext(worker_for(run, scratch))


def run(options: RunOptions, scratch: Path, tables: bool = True) -> Path:
    """Decode, record and score a run.

    Args:
        options: of the command.
        scratch: a folder for temporary files.
        tables: whether tables are made.

    Returns:
        The run's folder.
    """
    with redirect_stdout(io.StringIO()) if options.quiet else nullcontext():
        return _run(options, scratch, tables)


def _run(options: RunOptions, scratch: Path, tables: bool) -> Path:
    # torch and transformers take seconds to import, which --help and --list need not wait for.
    from harness.runs.folder import claim_folder, continued_options, exclusive, remove_records
    from harness.runs.follow import follow
    from harness.runs.record import record
    from harness.runs.resolve import resolve
    from harness.sandbox.scoring import describe_scoring, score_run

    options = continued_options(options)
    resolved = resolve(options)
    config = resolved.config
    folder = claim_folder(options.out, config, options.resume, options.overwrite)
    with exclusive(folder), resumable(folder):
        missing = unscored(resolved, options.unsafe_code_execution)
        if missing:
            print(missing, file=sys.stderr)
        with pool_for(resolved, scratch) as pool:
            # Old records are removed only once everything that the new run needs is loaded.
            if options.overwrite:
                remove_records(folder)
            if config.threads is None:
                print(f"decodes as with --threads {pool.config.threads}, the fastest number here")
            left_out = record(folder, resolved, pool)
            loaded = pool.problems
        print(
            describe_scoring(
                score_run(folder, options.unsafe_code_execution, pending=True, loaded=loaded)
            )
        )
        if tables:
            # With the paper's main methods on any of its suites its numbers are worth a table.
            in_paper = set(GROUPS["main"]) <= set(config.methods) and set(config.suites) & set(
                PAPER_SUITES
            )
            paper = ["--paper"] if in_paper else []
            follow("render", folder, *paper)
    if config.traced:
        follow("report", folder)
    print(next_steps(folder, next(iter(config.methods)), config.traced))
    # Last, and as an error: whoever starts the command must see that the record is incomplete.
    if left_out:
        named = "; ".join(
            f"{' '.join(map(str, key))} ({reason})" for key, reason in left_out.items()
        )
        raise UserError(
            f"left out: {named}; all else is recorded, and --resume --out {folder} tries it again"
        )
    return folder


def unscored(run: ResolvedRun, unsafe: bool) -> str:
    """A line on the suites that cannot be scored on this machine; "" if all can be.

    Args:
        run: resolved.
        unsafe: whether model-written code may run unprotected.
    """
    from harness.sandbox.program import choose

    suites = [
        suite.title for suite in run.suites.values() if suite.runs_programs() or suite.is_confined()
    ]
    missing = choose(unsafe).missing if suites else ""
    return f"{', '.join(suites)} will be decoded and not scored: {missing}" if missing else ""


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Add to a Ctrl-C in the block how the run in a folder goes on."""
    try:
        yield
    except KeyboardInterrupt as error:
        again = f"{command_name()} run --resume --out {folder}"
        raise KeyboardInterrupt(f"finished responses are kept; go on with {again}") from error


def next_steps(folder: Path, reference: str, traced: bool) -> str:
    """The last lines of a run: what to open, and what to try.

    Args:
        folder: of the run.
        reference: one of its methods, to compare the others with.
        traced: whether there is a report.
    """
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    report = folder / "report" / "index.html" if traced else folder / "tables" / "main.md"
    command = command_name()
    compare = f"{command} tables {folder} --intervals --against {shlex.quote(reference)}"
    add = f"{command} run --resume --out {folder} --methods entropy"
    return "\n".join(
        [
            f"records and tables: {folder}; open {report}",
            f"is a difference more than chance?     {compare}",
            f"another method on the same items:     {add}",
            f"a figure of accuracy against speed:   {command} figures {folder}",
        ]
    )


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
