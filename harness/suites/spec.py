"""The types of suites and generated problems. OpenCompass's classes are named by import paths, for
importing it takes seconds."""

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

# The prefix of a suite that is named by OpenCompass's configuration.
FOREIGN = "opencompass:"
# OpenCompass's evaluators of programs: harness/sandbox/evaluators.py replaces the function with
# which they execute them, so that programs run confined.
CONFINED = ("HumanEvalEvaluator", "MBPPEvaluator")
# Calls in an evaluator's source that can run a response as code. Methods, such as model.eval(), are
# left out.
RUNS_CODE = re.compile(
    r"(?<![\w.])(?:exec|eval|compile|__import__)\("
    r"|\b(?:subprocess|multiprocessing|importlib)\b|ProcessPool"
    r"|\bos\.(?:system|popen|fork|exec\w*)\b"
)
Rounds = list[dict[str, str]]
# OpenCompass's configuration of a dataset.
Config = dict[str, Any]
# Evaluators of judges that read more than the answer.
EVALUATORS = {CHOICE: "ChoicesEvaluator", TESTS: "ProgramsEvaluator"}
BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Problem:
    """A generated problem.

    Attributes:
        key: what is asked, without names and wordings; its hash decides the split.
        question: the user's turn.
        response: a correct response, of which there may be others.
        row: the problem in its suite's file format.
    """

    key: str
    question: str
    response: str
    row: Row = field(default_factory=dict)


def split_of(problem: Problem) -> str:
    """The split of a problem by a hash of its key: test and dev have one in sixteen each, train has
    the rest."""
    bucket = hashlib.sha256(problem.key.encode()).digest()[0] % 16
    return {0: "test", 1: "dev"}.get(bucket, "train")


def json_lines(rows: list[Row]) -> str:
    """Rows as a JSON-lines file."""
    return "".join(json.dumps(row) + "\n" for row in rows)


@dataclass(frozen=True)
class Generator:
    """Generated problems of a suite, as a dataset in the format of a real file.

    Attributes:
        draw: draws a problem with one correct response. Wordings must vary: with a single wording
            all decoders score the same.
        file: of the problems, in `data/`.
        dataset: OpenCompass's class, which loads the file.
        columns: in the prompt.
        output: the column that the evaluator reads.
        rounds: the conversation, with columns in braces.
        evaluation: OpenCompass's evaluator and postprocessors.
        length: tokens of a response.
        content: the file's text from its rows.
        train_file: a second file that the loader opens.
        by_folder: whether the class loads the folder of the file.
        block_length: tokens of a block of the response; None for one block.
        problems_of: the suite whose problems these are; None for the suite's own.
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
        """The turns of the solved problems in the prompt."""
        return self.rounds[:-1]


@dataclass(frozen=True)
class Training:
    """The format of a suite's train file.

    Attributes:
        question: the column of the question.
        answer: the column of the answer.
        prompt: of a question, with the column in braces.
        clean: makes the response of an answer.
    """

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
        configuration: OpenCompass's for the real problems; None if there are only generated ones.
        changes: to the configuration's dataset.
        file: of the real problems, in `data/`; None if the configuration has the path.
        generator: of generated problems.
        executes: whether scoring runs model-written code.
        training: the format of its train file.
        foreign: whether only OpenCompass's configuration of it is known.
        questions: a user's file of problems.
        base_fault: how its evaluator misjudges responses of base models, "" if it does not.
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
    base_fault: str = ""

    def settings_for(self, model: str, small: bool) -> dict[str, Any]:
        """Default lengths and options.

        Args:
            model: a folder or hub id, whose published settings are used.
            small: for a small model, or for generated problems, whatever the model.
        """
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
        """The generator. Raises UserError for a suite without one."""
        if self.generator is None:
            raise UserError(f"suite {self.name} has no generated problems; give --data FOLDER")
        return self.generator

    def files(self, generated: bool, data: Path) -> list[Path]:
        """The files of the problems.

        Args:
            generated: generated problems, or else real ones.
            data: the folder that has `data/`.

        Raises:
            UserError: a real file is missing.
        """
        if self.questions is not None:
            return [self.questions.file]
        if generated:
            return [data / "data" / self.generated.file]
        if self.file is not None:
            return [self._present(data, f"data/{self.file}")]
        # The configuration may name files or folders, and the same one for several datasets.
        files: list[Path] = []
        for dataset in self.datasets(False, data):
            path = Path(dataset["path"])
            below = sorted(path.rglob("*")) if path.is_dir() else [path]
            files += filter(Path.is_file, below)
        return list(dict.fromkeys(files))

    def datasets(self, generated: bool, data: Path) -> list[Config]:
        """OpenCompass's configurations of the problems.

        Args:
            generated: generated problems, or else real ones.
            data: the folder that has `data/`.

        Raises:
            UserError: a real file is missing, or the configuration does not generate text.
        """
        if self.questions is not None:
            questions = self.questions
            columns = {"prompt": questions.prompt, "answer": questions.answer}
            rounds = human("{prompt}")
            judged = judged_by(
                questions.judge, columns, draw=None, file="", columns=("prompt",), rounds=rounds
            )
            return [self._dataset(judged, questions.file)]
        if generated:
            return [self._dataset(self.generated, self.files(True, data)[0].resolve())]
        from opencompass.utils.datasets_info import DATASETS_MAPPING

        datasets = self._shipped()
        for dataset in datasets:
            inferencer = dataset["infer_cfg"]["inferencer"]["type"]
            if not inferencer.rsplit(".", 1)[-1].endswith("GenInferencer"):
                raise UserError(
                    f"configuration {self.configuration} does not generate text, it uses"
                    f" {inferencer}; fef-dllm opencompass runs it"
                )
            if self.file is not None:
                self._present(data, f"data/{self.file}")
            path = str(dataset.get("path", ""))
            # A name of OpenCompass's table stands for a path.
            path = DATASETS_MAPPING.get(path, {}).get("local") or path
            dataset["path"] = str(self._present(data, path).resolve())
        return datasets

    def configuration_hash(self) -> str:
        """SHA-256 of OpenCompass's configuration with this suite's changes."""
        return hashlib.sha256(json.dumps(self._shipped(), sort_keys=True).encode()).hexdigest()

    def runs_programs(self) -> bool:
        """Whether scoring runs model-written programs, each confined by itself."""
        if self.foreign:
            return any(map(is_replaced, self._shipped()))
        return self.executes

    def is_confined(self) -> bool:
        """Whether the whole evaluator is confined: an evaluator or postprocessor of OpenCompass's,
        other than those of CONFINED, has calls in its source that run a response."""
        return self.foreign and any(
            RUNS_CODE.search(source)
            for dataset in self._shipped()
            for source in _judging_source(dataset)
        )

    def misjudged(self, prompt: object) -> str:
        """A warning that responses of a base model are misjudged; "" if they are not.

        Args:
            prompt: of the run's configuration; "plain" stands for a base model.
        """
        fault = f"{self.configuration} {self.base_fault}"
        return fault if prompt == "plain" and self.base_fault else ""

    def _shipped(self) -> list[Config]:
        if self.configuration is None:
            raise UserError(
                f"suite {self.name} has generated problems alone; leave out --data, or the suite"
            )
        return [dataset | self.changes for dataset in shipped(self.configuration)]

    def _present(self, data: Path, name: str) -> Path:
        path = data / name
        if not path.exists():
            reason = f"OpenCompass's configuration {self.configuration} wants it there"
            raise UserError(
                f"data file for {self.name} is missing: {path}; {reason}, and --data names the"
                " folder above data/"
            )
        return path

    def _dataset(self, generator: Generator, path: Path) -> Config:
        """OpenCompass's configuration of a file of problems."""
        # ZeroRetriever: solved problems are in the rounds already, the same ones for every prompt.
        template = "opencompass.openicl.icl_prompt_template.PromptTemplate"
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


def judged_by(judge: str, columns_of: dict[str, str], **arguments: Any) -> Generator:
    """Problems in a file of questions and answers, scored by a judge.

    Args:
        judge: see `harness.suites.questions`.
        columns_of: the columns of `prompt` and `answer`.
        arguments: further ones of Generator.
    """
    evaluator = {"type": "harness.sandbox.evaluators.QuestionsEvaluator", "judge": judge}
    if judge in EVALUATORS:
        evaluator = {"type": f"harness.sandbox.evaluators.{EVALUATORS[judge]}"}
    return Generator(
        dataset="harness.sandbox.evaluators.QuestionsDataset",
        load={"columns": columns_of, "judge": judge},
        output="answer",
        evaluation={"evaluator": evaluator},
        length=32,
        **arguments,
    )


def shipped(configuration: str) -> list[Config]:
    """The datasets of one of OpenCompass's configurations, as plain values.

    Args:
        configuration: its name, that of its file.

    Raises:
        UserError: OpenCompass has no such configuration, or it has no datasets.
    """
    import opencompass
    from mmengine.config import Config

    folder = Path(opencompass.__file__).parent / "configs" / "datasets"
    files = {path.stem: path for path in sorted(folder.rglob("*.py"))}
    datasets = []
    if configuration in files:
        config = Config.fromfile(str(files[configuration]), format_python_code=False)
        # OpenCompass's convention: datasets are in the variables of this ending.
        for name, value in config.items():
            if name.endswith("_datasets"):
                datasets += value
    if not datasets:
        kind = " with datasets" if configuration in files else ""
        similar = meant(configuration, sorted({*files} - {configuration}))
        raise UserError(f"OpenCompass has no configuration {configuration}{kind}{similar}")
    return [_plain(dataset) for dataset in datasets]


def is_replaced(dataset: Config) -> bool:
    """Whether the function with which a dataset's evaluator executes programs is replaced.

    Args:
        dataset: OpenCompass's configuration.
    """
    # The evaluator of MBPP leaves MBPP+ to the package evalplus, which has functions of its own.
    evaluator = dataset["eval_cfg"]["evaluator"]
    is_known = str(evaluator.get("type")).endswith(CONFINED)
    return is_known and evaluator.get("metric") != "MBPPPlus"


def _judging_source(dataset: Config) -> Iterator[str]:
    """The source code that judges: of a function itself, of a class its module and the modules of
    its bases, and those of OpenCompass's datasets that its module uses."""
    from opencompass.registry import TEXT_POSTPROCESSORS

    evaluator = dataset["eval_cfg"]["evaluator"]
    postprocessor = dataset["eval_cfg"].get("pred_postprocessor", {})
    for part in (postprocessor, *([] if is_replaced(dataset) else [evaluator])):
        # A name without a module is one of OpenCompass's registry.
        module, _, name = str(part.get("type")).rpartition(".")
        judge = (
            getattr(importlib.import_module(module), name)
            if module
            else TEXT_POSTPROCESSORS.get(name)
        )
        if inspect.isfunction(judge):
            yield inspect.getsource(judge)
        elif inspect.isclass(judge):
            imported = [
                getattr(value, "__module__", None) or ""
                for value in vars(sys.modules[judge.__module__]).values()
            ]
            # The last base is object, whose module has no source.
            modules = [base.__module__ for base in judge.__mro__[:-1]]
            modules += [name for name in imported if name.startswith("opencompass.datasets.")]
            yield from (inspect.getsource(sys.modules[name]) for name in dict.fromkeys(modules))


def _plain(value: Any) -> Any:
    """A configuration's values for JSON: classes and functions become their import paths."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else value
