"""What a suite and a generated problem are. Types of OpenCompass are import paths: it is imported
late."""

import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from harness.errors import UserError
from harness.suites.choices import Row
from harness.suites.published import settings_of_model
from harness.suites.questions import CHOICE, TESTS, Questions
from model_wrappers.options import meant

FOREIGN = "opencompass:"  # then the name of one of OpenCompass's configurations
# OpenCompass's evaluators whose function that executes a program is replaced
# (harness/sandbox/evaluators.py).
CONFINED = ("HumanEvalEvaluator", "MBPPEvaluator")
# Calls in the source of an evaluator that run a response.
RUNS_CODE = re.compile(
    r"(?<![\w.])(?:exec|eval|compile|__import__)\("
    r"|\b(?:subprocess|multiprocessing|importlib)\b|ProcessPool"
    r"|\bos\.(?:system|popen|fork|exec\w*)\b"
)
Rounds = list[dict[str, str]]
Config = dict[str, Any]  # of a dataset, as OpenCompass has it
# Of judges that read more than the answer.
EVALUATORS = {CHOICE: "ChoicesEvaluator", TESTS: "ProgramsEvaluator"}
BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Problem:
    """A generated problem.

    Attributes:
        key: what is asked, without names and wordings; the split is a hash of it.
        question: the user's turn.
        response: one of its correct responses.
        row: the problem in its suite's file format.
    """

    key: str
    question: str
    response: str
    row: Row = field(default_factory=dict)


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

    Attributes:
        draw: gives one problem with one correct response of varying wording: with one alone every
            decoder scores the same.
        file: of the problems, below `data/`.
        dataset: OpenCompass's class, which loads the file.
        columns: that the prompt reads.
        output: the column that the evaluator reads.
        rounds: the conversation, with columns in braces.
        evaluation: OpenCompass's evaluator and postprocessors.
        length: tokens of a response.
        content: the file's text from its rows.
        train_file: a second file that the loader wants.
        by_folder: the class loads the folder of the file.
        block_length: tokens of a block of the response (None: one block).
        problems_of: the suite whose problems these are.
        load: further arguments of the class.
        reader: further settings of OpenCompass's reader.
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
    """The format of a suite's train file: its columns, the prompt of a question, and what an answer
    becomes."""

    question: str
    answer: str
    prompt: str
    clean: Callable[[str], str] = str


@dataclass(frozen=True)
class Suite:
    """One benchmark.

    Attributes:
        name: on the command line.
        title: in tables.
        lengths: settings for LLaDA-8B-Instruct.
        configuration: OpenCompass's for the real problems (None: there are generated ones alone).
        changes: to the configuration's dataset.
        file: of the real problems, below `data/`; None is where the configuration says.
        generator: of generated problems.
        executes: whether scoring runs model-written code.
        training: the format of its train file.
        foreign: it is known by its configuration alone.
        questions: a user's file of problems.
        of_base: what its evaluator does with some responses of base models.
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
    of_base: str = ""

    def settings_for(self, model: str, small: bool) -> dict[str, Any]:
        """Default lengths and options for a model; small: a small model, or generated problems,
        whatever the model."""
        if not small:
            return settings_of_model(model, self.name) or self.lengths
        if self.generator is None:
            return {"gen_length": 64}
        lengths = {"gen_length": self.generator.length}
        if self.generator.block_length is not None:
            lengths["block_length"] = self.generator.block_length
        return lengths

    @property
    def generated(self) -> Generator:
        """Its generator. Raises UserError for a suite without one."""
        if self.generator is None:
            raise UserError(f"suite {self.name} has no generated problems; give --data FOLDER")
        return self.generator

    def files(self, generated: bool, data: Path) -> list[Path]:
        """The files of its problems, generated or real ones below `data`. Raises UserError if real
        ones are missing."""
        if self.questions is not None:
            return [self.questions.file]
        if generated:
            return [data / "data" / self.generated.file]
        if self.file is not None:
            return [self._present(data, f"data/{self.file}")]
        files: list[Path] = []
        for dataset in self.datasets(False, data):
            path = Path(dataset["path"])
            below = sorted(path.rglob("*")) if path.is_dir() else [path]
            files += filter(Path.is_file, below)
        return list(dict.fromkeys(files))

    def datasets(self, generated: bool, data: Path) -> list[Config]:
        """OpenCompass's configurations of its problems, generated or real ones below `data`. Raises
        UserError."""
        if self.questions is not None:
            asked = self.questions
            named = {"prompt": asked.prompt, "answer": asked.answer}
            rounds = human("{prompt}")
            judged = judged_by(
                asked.judge, named, draw=None, file="", columns=("prompt",), rounds=rounds
            )
            return [self._dataset(judged, asked.file)]
        if generated:
            return [self._dataset(self.generated, self.files(True, data)[0].resolve())]
        from opencompass.utils.datasets_info import DATASETS_MAPPING

        found = self._shipped()
        for dataset in found:
            inferencer = dataset["infer_cfg"]["inferencer"]["type"]
            if not inferencer.rsplit(".", 1)[-1].endswith("GenInferencer"):
                raise UserError(
                    f"configuration {self.configuration} does not generate text, it uses"
                    f" {inferencer}; fef-dllm opencompass runs it"
                )
            if self.file is not None:
                self._present(data, f"data/{self.file}")
            path = str(dataset.get("path", ""))
            # where OpenCompass looks for it, below data/
            path = DATASETS_MAPPING.get(path, {}).get("local") or path
            dataset["path"] = str(self._present(data, path).resolve())
        return found

    def configuration_hash(self) -> str:
        """SHA-256 of the configuration as it ships, with what this suite changes of it."""
        return hashlib.sha256(json.dumps(self._shipped(), sort_keys=True).encode()).hexdigest()

    def runs_programs(self) -> bool:
        """Whether scoring runs model-written programs confined one by one."""
        if self.foreign:
            return any(map(is_replaced, self._shipped()))
        return self.executes

    def is_confined(self) -> bool:
        """Whether its evaluator runs a response in a way of its own, and is confined itself."""
        return self.foreign and self.runs_code()

    def misjudged(self, prompt: object) -> str:
        """What to say of a base model's responses, "" if they are judged as they should be."""
        return f"{self.configuration} {self.of_base}" if prompt == "plain" and self.of_base else ""

    def runs_code(self) -> bool:
        """Whether the source of an evaluator or postprocessor of the configuration has calls that
        run a response.

        CONFINED ones are left out.
        """
        return any(
            RUNS_CODE.search(source)
            for dataset in self._shipped()
            for source in _judging_source(dataset)
        )

    def _shipped(self) -> list[Config]:
        if self.configuration is None:
            raise UserError(
                f"suite {self.name} has generated problems alone; leave out --data, or the suite"
            )
        return [dataset | self.changes for dataset in shipped(self.configuration)]

    def _present(self, data: Path, name: str) -> Path:
        path = data / name
        if not path.exists():
            wanted = f"OpenCompass's configuration {self.configuration} wants it there"
            raise UserError(
                f"data file for {self.name} is missing: {path}; {wanted}, and --data names the"
                " folder above data/"
            )
        return path

    def _dataset(self, generator: Generator, path: Path) -> Config:
        """OpenCompass's configuration of a file of problems, its prompt without solved ones
        retrieved for it."""
        template = "opencompass.openicl.icl_prompt_template.PromptTemplate"
        return {
            "abbr": self.name,
            "type": generator.dataset,
            "path": str(path.parent if generator.by_folder else path),
            **generator.load,
            "reader_cfg": (
                {
                    "input_columns": list(generator.columns),
                    "output_column": generator.output,
                }
                | generator.reader
            ),
            "infer_cfg": {
                "prompt_template": {"type": template, "template": {"round": generator.rounds}},
                "retriever": {"type": "opencompass.openicl.icl_retriever.ZeroRetriever"},
                "inferencer": {"type": "opencompass.openicl.icl_inferencer.GenInferencer"},
            },
            "eval_cfg": generator.evaluation,
        }


def human(prompt: str) -> Rounds:
    """A conversation of one user turn."""
    return [{"role": "HUMAN", "prompt": prompt}]


def judged_by(judge: str, named: dict[str, str], **how: Any) -> Generator:
    """Problems in a file of questions and answers, named as its columns are, scored by a judge."""
    evaluator = {"type": "harness.sandbox.evaluators.QuestionsEvaluator", "judge": judge}
    if judge in EVALUATORS:
        evaluator = {"type": f"harness.sandbox.evaluators.{EVALUATORS[judge]}"}
    return Generator(
        dataset="harness.sandbox.evaluators.QuestionsDataset",
        load={"columns": named, "judge": judge},
        output="answer",
        evaluation={"evaluator": evaluator},
        length=32,
        **how,
    )


def shipped(configuration: str) -> list[Config]:
    """The datasets of an OpenCompass configuration as plain values. Raises UserError for one that
    it does not have."""
    import opencompass
    from mmengine.config import Config

    folder = Path(opencompass.__file__).parent / "configs" / "datasets"
    files = {path.stem: path for path in sorted(folder.rglob("*.py"))}
    found = []
    if configuration in files:
        config = Config.fromfile(str(files[configuration]), format_python_code=False)
        found = [
            each for name, value in config.items() if name.endswith("_datasets") for each in value
        ]
    if not found:
        wrong = f"configuration {configuration}{' with datasets' if configuration in files else ''}"
        raise UserError(
            f"OpenCompass has no {wrong}{meant(configuration, sorted({*files} - {configuration}))}"
        )
    return [_plain(each) for each in found]


def is_replaced(dataset: Config) -> bool:
    """Whether the function with which a dataset's evaluator executes programs is replaced. The
    evaluator of MBPP leaves MBPP+ to the package evalplus, which has functions of its own."""
    evaluator = dataset["eval_cfg"]["evaluator"]
    is_known = str(evaluator.get("type")).endswith(CONFINED)
    return is_known and evaluator.get("metric") != "MBPPPlus"


def _judging_source(dataset: Config) -> Iterator[str]:
    """The source of what judges: of functions, and of classes' modules with the datasets' modules
    that they import."""
    from opencompass.registry import TEXT_POSTPROCESSORS

    evaluator = dataset["eval_cfg"]["evaluator"]
    postprocessor = dataset["eval_cfg"].get("pred_postprocessor", {})
    for part in (postprocessor, *([] if is_replaced(dataset) else [evaluator])):
        module, _, name = str(part.get("type")).rpartition(".")
        judge = (
            getattr(importlib.import_module(module), name)
            if module
            else TEXT_POSTPROCESSORS.get(name)
        )
        if inspect.isfunction(judge):
            yield inspect.getsource(judge)
        elif inspect.isclass(judge):
            used = [
                getattr(each, "__module__", None) or ""
                for each in vars(sys.modules[judge.__module__]).values()
            ]
            modules = [each.__module__ for each in judge.__mro__[:-1]]
            modules += [each for each in used if each.startswith("opencompass.datasets.")]
            yield from (inspect.getsource(sys.modules[each]) for each in dict.fromkeys(modules))


def _plain(value: Any) -> Any:
    """A configuration's values as JSON has them: classes and functions by their import paths."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return (
        f"{value.__module__}.{value.__qualname__}"
        if inspect.isclass(value) or callable(value)
        else value
    )
