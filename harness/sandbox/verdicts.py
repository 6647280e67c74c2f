"""The verdicts of OpenCompass's evaluators on a run's records, in the process that runs them."""

import ast
import builtins
import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError, one_line_errors
from harness.options import UNSAFE_HELP, option, parsed
from harness.records.files import file_hash, files_hash
from harness.records.schema import RunRecord
from harness.records.store import read_lines, read_meta, write_atomically
from harness.runs.problems import Problems, explanation, from_files, load_problems, verdict_in
from harness.runs.resolve import ResolvedRun
from harness.sandbox.bubblewrap import Containment, choose, not_enforced
from harness.sandbox.evaluators import taken
from harness.sandbox.execute import Isolation
from harness.sandbox.scoring import restored_suites
from harness.sandbox.supervisor import confine
from harness.suites.registry import write_generated
from harness.suites.spec import Suite

ALL_RIGHT = 100.0 - 1e-6  # percent
# What every stand-in of an object answers alike: functions, and the abstract classes that look at methods.
ASKING = ("id", "callable", "hasattr")
HOOKED = ("Callable", "Collection", "Container", "Hashable", "Iterable", "Iterator", "Sized")
GIB = 2**30
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of this machine
# Of a process that evaluates in a sandbox: bytes, and processes and threads together.
LIMITS = {"RLIMIT_AS": min(32 * GIB, MEMORY), "RLIMIT_FSIZE": GIB, "RLIMIT_CORE": 0, "RLIMIT_NPROC": 1024}


def verdicts_of(
    folder: Path, suites: list[str], unsafe: bool = False, pending: bool = False, confined: bool = False
) -> dict[str, Any]:
    """Run OpenCompass's evaluation task on these suites of a run, or on what of them has no verdicts if `pending`.

    confined: this process is in a sandbox, in which no other can be made. Returns the parts of `Scoring`, `rows` of
    (method, suite, item, correct or None if not scored), and `why`, rows of (method, suite, item, what the evaluator
    said). Raises UserError if the problems are not those of the run.
    """
    meta = read_meta(folder)
    specs = restored_suites(meta, suites)
    choice = Containment(Isolation("bubblewrap")) if confined else choose(unsafe)
    draws, files = len(meta.config.draws), meta.data["files"]
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for item in read_lines(folder / "items.jsonl"):
        if (suite := item["suite"]) in suites:
            if not isinstance(item.get("text"), str):
                named = " ".join(str(item[name]) for name in ("method", "suite", "item"))
                raise UserError(f"{folder}/items.jsonl: {named} has no text to judge; the record is damaged")
            draw = item["item"] // (files[suite]["items"] // draws) if draws > 1 else 0
            groups.setdefault((item["method"], suite, draw), []).append(item)
    if pending:
        groups = {key: items for key, items in groups.items() if any(item.get("correct") is None for item in items)}
    rows: list[tuple[str, str, int, bool | None]] = []
    why: list[tuple[str, str, int, str]] = []
    not_scored: dict[str, str] = {}
    own_objects: dict[str, int] = {}
    judged: dict[tuple[str, int, str], tuple[bool, str]] = {}  # by suite, problem and text: methods often agree
    taken()
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) if meta.config.generated else Path(meta.data["folder"])
        if isinstance(meta.config.data, str):
            write_generated(data, meta.config.data, meta.config.limit, specs.values())
        problems: dict[str, list[Problems]] = {}
        for (method, suite, draw), items in groups.items():
            spec, numbers = specs[suite], [item["item"] for item in items]
            if spec.executes and choice.isolation is None:
                not_scored[suite] = choice.missing
                rows += [(method, suite, number, None) for number in numbers]
                continue
            if suite not in problems:
                problems[suite] = _problems(spec, meta, data, unsafe or confined)
            golds = [gold for part in problems[suite] for gold in part.golds]
            before = draw * len(golds)  # items of other seeds
            other = [item for item in items if item.get("gold") not in (None, golds[item["item"] - before])]
            if other:
                raise UserError(
                    f"{folder}/items.jsonl: {method} {suite} {other[0]['item']} has another gold than its problem: the "
                    "responses are of another run, and would be judged by answers of this one"
                )
            responses = [(suite, item["item"] - before, item["text"]) for item in items]
            new = [response for response in responses if response not in judged]
            if new:
                _, items_of, texts = zip(*new, strict=True)
                verdicts = explained_suite(problems[suite], [*items_of], [*texts])
                judged |= dict(zip(new, verdicts, strict=True))
            for number, response in zip(numbers, responses, strict=True):
                verdict, said = judged[response]
                rows.append((method, suite, number, verdict))
                why += [(method, suite, number, said)] if said else []
            if spec.executes:
                own_objects[suite] = own_objects.get(suite, 0) + taken()
    # Where no suite runs programs, there is nothing to say of how they were run.
    isolation = choice.isolation if any(specs[suite].executes for _, suite, _ in groups) else None
    return {
        "rows": rows,
        "why": why,
        "sandbox": "none" if isolation is None else isolation.name,
        "not_scored": not_scored,
        "not_enforced": [] if confined or isolation is None else not_enforced(isolation),
        "own_objects": own_objects,
    }


def check_solutions(run: ResolvedRun, unsafe: bool = False) -> None:
    """Raise UserError for a user's file of programming tasks with one that cannot be judged, naming it.

    Its solution is judged wrong, as where tests need more than data of a program, a program that does nothing is judged
    right, or its tests ask what an object is. Where no code is run, nothing is tried.
    """
    for name, suite in run.suites.items():
        if run.data is None or run.config.generated or suite.solutions is None:
            continue
        path = suite.files(False, run.data)[0]
        if file_hash(path) == suite.solutions.sha256 or choose(unsafe).isolation is None:
            continue
        print(f"{name}: trying the solutions in {path}", flush=True)
        configs = _in_sandboxes(suite.datasets(False, run.data), unsafe)
        (part,) = load_problems(suite, configs, run.config.limit)
        where = f"data file of {name}, {path}"
        for number, row in enumerate(part.rows):
            for column in suite.solutions.columns:
                if row.get(column) in (None, ""):
                    raise UserError(f"{where}: item {number} has no {column}, which judging reads")
        verdicts = []
        for write in (suite.solutions.response, suite.solutions.empty):
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # the evaluators' bars
                verdicts.append(explained(part.config, list(range(len(part))), [write(row) for row in part.rows]))
        for row, (right, said), (nothing, _) in zip(part.rows, *verdicts, strict=True):
            cannot = f"{where}: {row['task_id']} cannot be judged here"
            if not right and row["task_id"] not in suite.solutions.wrong:
                raise UserError(
                    f"{cannot}, its own solution is judged wrong ({said}); tests may pass and compare data alone: no "
                    "functions, objects, printed output, identities, or arguments that the program changes; leave the "
                    "task out"
                )
            if asks_what_it_is(str(row.get(suite.solutions.tests) or "")):
                raise UserError(
                    f"{cannot}, its tests ask which object something is, or what it can do (is, is not, id, callable, "
                    "hasattr, inspect, Iterator), and what a program returns reaches them as a copy or a stand-in; "
                    "compare data with ==, or leave the task out"
                )
            if nothing:
                raise UserError(f"{cannot}, its tests pass a program that does nothing; leave the task out")


def asks_what_it_is(tests: str) -> bool:
    """Whether tests ask which object something is, other than None, a truth value, or a builtin such as a type, or
    what it can do: a stand-in can be called and iterated whatever it stands for."""
    try:
        nodes = [*ast.walk(ast.parse(tests))]
    except (SyntaxError, ValueError, RecursionError):
        return False  # what the evaluator says of it is what its solution is judged by
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
                if isinstance(operator, ast.Is | ast.IsNot) and not (_is_single(left) or _is_single(right)):
                    return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKING:
            return True
        imported = node.name if isinstance(node, ast.alias) else getattr(node, "module", "")
        if imported == "inspect" or getattr(node, "attr", getattr(node, "id", "")) in HOOKED:
            return True
    return False


def _is_single(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return any(node.value is each for each in (None, True, False, ...))
    return isinstance(node, ast.Name) and node.id in vars(builtins)


def _problems(suite: Suite, meta: RunRecord, data: Path, unsafe: bool) -> list[Problems]:
    if files_hash(suite.files(meta.config.generated, data)) != meta.data["files"][suite.name]["sha256"]:
        raise UserError(f"the problems of {suite.name} are not those of the run: their SHA-256 differs from run.json's")
    return load_problems(suite, _in_sandboxes(suite.datasets(meta.config.generated, data), unsafe), meta.config.limit)


def _in_sandboxes(configs: list[dict[str, Any]], unsafe: bool) -> list[dict[str, Any]]:
    """The configurations, their evaluators of code told whether programs may run unprotected."""
    for config in configs:
        evaluator = config["eval_cfg"]["evaluator"]
        if str(evaluator.get("type")).startswith("harness.sandbox.evaluators.Sandboxed"):
            config["eval_cfg"] = config["eval_cfg"] | {"evaluator": evaluator | {"unsafe": unsafe}}
    return configs


def explained_suite(problems: list[Problems], items: list[int], texts: list[str]) -> list[tuple[bool, str]]:
    """Verdicts on responses to items, numbered through the suite's datasets, with what the evaluator says."""
    found: dict[int, tuple[bool, str]] = {}
    first = 0
    for part in problems:
        here = {item: text for item, text in zip(items, texts, strict=True) if first <= item < first + len(part)}
        if here:
            verdicts = explained(part.config, [item - first for item in here], list(here.values()))
            found |= dict(zip(here, verdicts, strict=True))
        first += len(part)
    return [found[item] for item in items]


def explained(dataset: dict[str, Any], items: list[int], texts: list[str]) -> list[tuple[bool, str]]:
    """OpenCompass's verdict on `texts`, the responses to these items of a dataset, each with what the evaluator says.

    An evaluator without a verdict per item gets one item at a time, and its first number says whether that is right
    (100) or wrong (0). Raises UserError where it gives no such number, or would run model-written code and no sandbox
    works.
    """
    result = _evaluated(dataset, items, texts)
    details = result.get("details") or []
    verdicts = [(said, explanation(detail)) for detail in details if (said := verdict_in(detail)) is not None]
    if len(verdicts) == len(items):
        return verdicts
    if len(items) > 1:
        return [explained(dataset, [item], [text])[0] for item, text in zip(items, texts, strict=True)]
    numbers = [value for name, value in result.items() if name != "details" and isinstance(value, int | float)]
    if not numbers:
        raise UserError(f"the evaluator gave no verdict per item and no number: {result}")
    right = bool(numbers[0] >= ALL_RIGHT)
    if not right and numbers[0] != 0:
        raise UserError(f"the evaluator gives one response {numbers[0]:g}; a suite needs 0, wrong, or 100, right")
    return [(right, "")]


def _evaluated(dataset: dict[str, Any], items: list[int], texts: list[str]) -> dict[str, Any]:
    """What OpenCompass's evaluation task finds."""
    from mmengine.config import ConfigDict
    from opencompass.tasks import OpenICLEvalTask

    class RecordedEvalTask(OpenICLEvalTask):  # type: ignore[misc]
        """The evaluation task, its predictions taken from records."""

        result: dict[str, Any]

        def _load_and_preprocess_test_data(self) -> Any:
            return super()._load_and_preprocess_test_data().select(items)

        def _load_predictions(self) -> tuple[list[dict[str, str]], list[str]]:
            return [{"prediction": text} for text in texts], list(texts)

        def _save_results(self, result: dict[str, Any]) -> None:
            self.result = result

    with tempfile.TemporaryDirectory() as work_dir:
        config = {
            "models": [{"abbr": "recorded", "type": "recorded"}],
            "datasets": [[dataset]],
            "work_dir": work_dir,
            "eval": {"runner": {"task": {"dump_details": True}}},
        }
        task = RecordedEvalTask(ConfigDict(config))
        with from_files():  # the task loads the dataset again
            task.run()
    return task.result


@dataclass(frozen=True, kw_only=True)
class VerdictOptions:
    """What `scoring.score_run` wants of this process."""

    run: Path = option("folder of a run", nargs=None)
    verdicts: Path = option("file that receives the verdicts", nargs=None)
    suites: tuple[str, ...] = option("of the run", nargs="+")
    pending: bool = option("only what has no verdicts", False)
    unsafe_code_execution: bool = option(UNSAFE_HELP, False)
    confined: bool = option("within limits, as in a sandbox", False)
    user: int | None = option("become this user")


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(VerdictOptions, line, __doc__)
    if options.confined:
        confine(LIMITS, options.user)
    unsafe = options.unsafe_code_execution
    found = verdicts_of(options.run, [*options.suites], unsafe, options.pending, options.confined)
    write_atomically(options.verdicts, json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
