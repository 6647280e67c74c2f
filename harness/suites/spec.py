"""What a suite is, and what a generated problem is; every suite is one file of this folder.

Types of OpenCompass are import paths, so that nothing of it is imported here.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from harness.errors import UserError
from harness.suites import parallelbench
from harness.suites.configurations import SANDBOXED, evaluator_of, local_path, shipped
from harness.suites.published import settings_of_model
from harness.suites.questions import Questions

SMALL_LENGTH = 64  # tokens of a response of a small model, on suites without generated problems
Row = dict[str, Any]
Rounds = list[dict[str, str]]
BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Problem:
    """One generated problem.

    key: what is asked, without names and wordings; the split is a hash of it.
    question: the user's turn.
    response: one of its correct responses.
    row: the problem in the file format of its suite.
    """

    key: str
    question: str
    response: str
    row: dict[str, Any] = field(default_factory=dict)


def split_of(problem: Problem) -> str:
    """`test`, `dev` (one in sixteen each) or `train`, by a hash of the problem's key."""
    bucket = hashlib.sha256(problem.key.encode()).digest()[0] % 16
    return {0: "test", 1: "dev"}.get(bucket, "train")


def json_lines(rows: list[Row]) -> str:
    """Rows as a JSON-lines file."""
    return "".join(json.dumps(row) + "\n" for row in rows)


@dataclass(frozen=True)
class Generator:
    """Generated problems of a suite, as a dataset in the format of a real file.

    draw: one problem, with one correct response drawn from many: names, wordings and the order of steps vary, because
    with one wording per problem every decoder scores the same. file: below the data folder's `data/`; content: the rows
    of problems as what is in it; train_file: the name of a second file of the same content, where the dataset's loader
    wants one. dataset: its OpenCompass class, by_folder: whether that takes the file's folder, load: what it takes
    besides. columns: what the prompt reads; output: the column of the reference; reader: more of OpenCompass's
    reader_cfg. rounds: the chat turns of the prompt; evaluation: its eval_cfg. length: tokens of a response.
    block_length: LLaDA's for them (None: one block). problems_of: the suite whose problems these are, if another.
    """

    draw: Callable[[Random], Problem]
    file: str
    dataset: str
    columns: tuple[str, ...]
    output: str
    rounds: Rounds
    evaluation: dict[str, Any]
    length: int
    content: Callable[[list[Row]], str] = json_lines
    train_file: str | None = None
    by_folder: bool = False
    block_length: int | None = None
    problems_of: str | None = None
    load: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)

    @property
    def shots(self) -> Rounds:
        """The turns before the problem's: solved problems."""
        return self.rounds[:-1]


@dataclass(frozen=True)
class Training:
    """The format of a suite's train file: its columns, the prompt of a question, and what an answer becomes."""

    question: str
    answer: str
    prompt: str
    clean: Callable[[str], str] = str


@dataclass(frozen=True)
class Suite:
    """One benchmark.

    title: as tables say. configuration: the name of OpenCompass's configuration for the real problems, None if there
    are generated ones alone; changes: what of its dataset is otherwise here. file: the real problems, below the data
    folder's `data/`. lengths: LLaDA's settings for LLaDA-8B-Instruct with this configuration (gen_length,
    block_length and options of its decoder). executes: whether scoring runs model-written code. foreign: it has
    the name of its configuration alone. questions: its problems, where they are a file of the user's.
    """

    name: str
    title: str
    lengths: dict[str, Any]
    configuration: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    generator: Generator | None = None
    executes: bool = False
    training: Training | None = None
    foreign: bool = False
    questions: Questions | None = None

    def settings_for(self, model: str, small: bool) -> dict[str, Any]:
        """Default lengths and decoder options for a model: gen_length, block_length and options.

        model: nano, a folder or a hub id. small: for a small model or generated problems, whatever the model.
        """
        if not small:
            return settings_of_model(model, self.name) or self.lengths
        if self.generator is None:
            return {"gen_length": SMALL_LENGTH}
        length, block = self.generator.length, self.generator.block_length
        return {"gen_length": length} if block is None else {"gen_length": length, "block_length": block}

    @property
    def generated(self) -> Generator:
        """Its generator. Raises UserError for a suite without one."""
        if self.generator is None:
            raise UserError(f"suite {self.name} has no generated problems; give --data FOLDER")
        return self.generator

    def files(self, generated: bool, data: Path) -> list[Path]:
        """The files of its problems, generated or real ones below `data`, in a fixed order.

        Raises UserError if real ones are missing.
        """
        if self.questions is not None:
            return [self.questions.file]
        if generated:
            return [data / "data" / self.generated.file]
        if self.file is not None:
            return [self._present(data, f"data/{self.file}")]
        found: list[Path] = []
        for dataset in self.datasets(False, data):
            path = Path(dataset["path"])
            found += sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        return list(dict.fromkeys(found))

    def datasets(self, generated: bool, data: Path) -> list[dict[str, Any]]:
        """OpenCompass's dataset configurations of its problems, generated or real ones below `data`.

        Raises UserError for an unknown configuration, one that does not generate text, or a missing file.
        """
        if self.questions is not None:
            return [self._questions_dataset(self.questions)]
        if generated:
            return [self._generated_dataset(self.generated, self.files(True, data)[0].resolve())]
        found = self._shipped()
        for dataset in found:
            inferencer = dataset["infer_cfg"]["inferencer"]["type"]
            if not inferencer.rsplit(".", 1)[-1].endswith("GenInferencer"):
                raise UserError(f"configuration {self.configuration} does not generate text, it uses {inferencer}")
            if self.file is not None:
                self._present(data, f"data/{self.file}")
            dataset["path"] = str(self._present(data, local_path(str(dataset.get("path", "")))).resolve())
            dataset["eval_cfg"]["evaluator"] = SANDBOXED.get(evaluator_of(dataset), dataset["eval_cfg"]["evaluator"])
        return found

    def configuration_hash(self) -> str:
        """SHA-256 of the configuration as it ships, with what this suite changes of it."""
        return hashlib.sha256(json.dumps(self._shipped(), sort_keys=True).encode()).hexdigest()

    def sandboxes_each(self) -> bool:
        """Whether the evaluators of the configuration give every program its own sandbox."""
        return all(evaluator_of(dataset) in SANDBOXED for dataset in self._shipped())

    def _shipped(self) -> list[dict[str, Any]]:
        if self.configuration is None:
            raise UserError(f"suite {self.name} has generated problems alone; leave out --data, or the suite")
        return [dataset | self.changes for dataset in shipped(self.configuration)]

    def _present(self, data: Path, name: str) -> Path:
        path = data / name
        if not path.exists():
            raise UserError(
                f"data file for {self.name} is missing: {path}; OpenCompass's configuration {self.configuration} wants "
                "it there, and --data names the folder above data/"
            )
        return path

    def _generated_dataset(self, generator: Generator, path: Path) -> dict[str, Any]:
        return {
            "abbr": self.name,
            "type": generator.dataset,
            "path": str(path.parent if generator.by_folder else path),
            **generator.load,
            "reader_cfg": {
                "input_columns": list(generator.columns),
                "output_column": generator.output,
                **generator.reader,
            },
            "infer_cfg": _inference(generator.rounds),
            "eval_cfg": generator.evaluation,
        }

    def _questions_dataset(self, questions: Questions) -> dict[str, Any]:
        rounds, columns = human("{prompt}"), ["prompt"]
        if questions.prompt == parallelbench.PROMPT and parallelbench.rows_of(questions.file)[0]["shot"]:
            rounds = [*human("{shot}"), {"role": "BOT", "prompt": "{shown}"}, *rounds]
            columns = ["shot", "shown", "prompt"]
        return {
            "abbr": self.name,
            "type": "harness.suites.datasets.QuestionsDataset",
            "path": str(questions.file),
            "columns": {"prompt": questions.prompt, "answer": questions.answer},
            "reader_cfg": {"input_columns": columns, "output_column": "answer"},
            "infer_cfg": _inference(rounds),
            "eval_cfg": {"evaluator": {"type": "harness.suites.datasets.QuestionsEvaluator", "judge": questions.judge}},
        }


def human(prompt: str) -> Rounds:
    """A conversation of one user turn."""
    return [{"role": "HUMAN", "prompt": prompt}]


def _inference(rounds: Rounds) -> dict[str, Any]:
    """The infer_cfg of a prompt without solved problems before it."""
    return {
        "prompt_template": {
            "type": "opencompass.openicl.icl_prompt_template.PromptTemplate",
            "template": {"round": rounds},
        },
        "retriever": {"type": "opencompass.openicl.icl_retriever.ZeroRetriever"},
        "inferencer": {"type": "opencompass.openicl.icl_inferencer.GenInferencer"},
    }
