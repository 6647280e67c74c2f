"""The problems of a suite through OpenCompass: loaded, and as the conversations that its own inferencer would send."""

import tempfile
from dataclasses import dataclass
from typing import Any

import datasets
from mmengine.config import ConfigDict
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.registry import ICL_PROMPT_TEMPLATES, ICL_RETRIEVERS
from opencompass.utils.build import build_dataset_from_cfg

from harness.errors import UserError
from harness.suites.spec import Suite
from model_wrappers.opencompass_model import DiffusionModel

datasets.disable_progress_bars()


@dataclass(frozen=True)
class Problems:
    """One dataset of a suite: OpenCompass's configuration of it, the loaded dataset, its test problems."""

    config: dict[str, Any]
    dataset: Any

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rows(self) -> Any:
        """The test problems, as far as the run's limit goes."""
        return self.dataset.reader.dataset["test"]

    @property
    def golds(self) -> list[str]:
        """The references; empty where the dataset has none."""
        column = self.config["reader_cfg"].get("output_column")
        return [""] * len(self) if column is None else [str(gold) for gold in self.rows[column]]


def load_problems(suite: Suite, configs: list[dict[str, Any]], limit: int | None) -> list[Problems]:
    """The datasets of a suite, each up to `limit` problems. Raises UserError for a malformed file."""
    loaded = []
    for config in configs:
        try:
            dataset = build_dataset_from_cfg(ConfigDict(config))
            test = dataset.reader.dataset["test"]
            dataset.reader.dataset["test"] = test.select(range(min(len(test), limit or len(test))))
        except Exception as error:  # whatever a loader makes of a broken file
            raise UserError(f"data file of {suite.name} is malformed: {config['path']}: {error}") from error
        loaded.append(Problems(config, dataset))
        _check_rows(suite, loaded[-1])
    return loaded


def _check_rows(suite: Suite, problems: Problems) -> None:
    """Raise UserError unless every problem has what its prompt and its judging read.

    OpenCompass would leave a placeholder in the prompt for a column that is not there, and write None for a null.
    """
    reader, path = problems.config["reader_cfg"], problems.config["path"]
    if not len(problems):
        raise UserError(f"data file of {suite.name} holds no problems: {path}")
    columns = [name for name in (*reader["input_columns"], reader.get("output_column")) if name is not None]
    missing = [name for name in columns if name not in problems.rows.column_names]
    if missing:
        raise UserError(
            f"data file of {suite.name} has no column {', '.join(missing)}: {path}; it has "
            f"{', '.join(problems.rows.column_names)}"
        )
    for name in columns:
        for item, value in enumerate(problems.rows[name]):
            if isinstance(value, str) and value.strip():
                continue
            if value is None or not suite.foreign:  # whose columns may hold anything, but not nothing
                raise UserError(f"data file of {suite.name}, item {item}: {name} must be text, not {value!r}: {path}")


def conversations(problems: Problems, model: DiffusionModel) -> list[Any]:
    """The prompt of every problem as chat turns, as OpenCompass's own inference task makes it."""
    inference = ConfigDict(problems.config["infer_cfg"])
    templates = {
        name: ICL_PROMPT_TEMPLATES.build(inference[name])
        for name in ("ice_template", "prompt_template")
        if inference.get(name) is not None
    }
    retriever = ICL_RETRIEVERS.build({**inference["retriever"], "dataset": problems.dataset})
    with tempfile.TemporaryDirectory() as folder:  # the inferencer makes its output folder on the spot, used or not
        inferencer = GenInferencer(model, max_out_len=model.gen_length, output_json_filepath=folder)
    entries = inferencer.get_generation_prompt_list_from_retriever_indices(
        retriever.retrieve(),
        retriever,
        inferencer.gen_field_replace_token,
        max_seq_len=None,
        ice_template=templates.get("ice_template"),
        prompt_template=templates.get("prompt_template"),
    )
    return list(model.parse_template(entries, mode="gen"))
