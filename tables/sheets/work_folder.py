"""The table of an OpenCompass work folder: its own accuracies beside what the responses cost.

OpenCompass leaves `predictions/MODEL/DATA_SET.json` and `summary/*.csv`; our wrapper adds
`predictions/MODEL/DATA_SET.costs.jsonl`, a line for each response and each likelihood.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError, explained
from model_wrappers.trace import SIDE_FILE
from tables.sheets import Cell, Sheet, Table

# Column of the numbers -> heading, decimals.
COLUMNS = {
    "accuracy": ("Acc.", 1),
    "seconds": ("Seconds", 2),
    "forwards": ("Forwards", 1),
    "tokens_per_forward": ("Tok./Fwd.", 2),
    "acceptance": ("Acceptance", 1),
}
MEANS = ("accuracy", "seconds", "forwards")
SENTENCES = (
    "From OpenCompass's work folder {name}: accuracy as OpenCompass reports it ({metrics}).",
    "Costs are means of a response, of a question with its choices where likelihoods are compared.",
    "Each model ran in a process of its own, so seconds of two models are not paired and no speedup is given.",
)
BATCHED = "Responses were decoded up to {most} at once, and have their share of a batch's seconds."


def is_work_folder(folder: Path) -> bool:
    """Whether a folder is OpenCompass's, or holds such folders, as its -w does."""
    return not (folder / "run.json").exists() and any(
        any(folder.glob(f"{depth}predictions/*/*{SIDE_FILE}")) for depth in ("", "*/")
    )


def work_folder_sheet(folder: Path) -> Sheet:
    """The table of a work folder, of the newest one in a folder of several.

    Raises UserError for costs that cannot be read.
    """
    if not any(folder.glob(f"predictions/*/*{SIDE_FILE}")):
        folder = max(path.parents[2] for path in folder.glob(f"*/predictions/*/*{SIDE_FILE}"))
    scores = _scores(folder)
    rows = []
    for path in sorted(folder.glob(f"predictions/*/*{SIDE_FILE}")):
        model, dataset = path.parent.name, path.name.removesuffix(SIDE_FILE)
        part = re.fullmatch(r"(.+)_\d+", dataset)  # OpenCompass cuts a large data set into numbered parts
        if dataset not in scores.index and part is not None and part[1] in scores.index:
            dataset = part[1]
        rows.append(_lines(path).assign(model=model, dataset=dataset, part=path.name))
    costs = pd.concat(rows, ignore_index=True)
    # A killed inference began again, and asked some of it twice.
    costs = costs[costs["began"] == costs.groupby(["model", "part", "item"])["began"].transform("max")]
    summed = ["seconds", "forwards", "content_tokens", "proposed", "accepted"]
    items = costs.groupby(["model", "dataset", "part", "item"], as_index=False)[[*summed]].sum()
    groups = items.groupby(["model", "dataset"])
    numbers = groups[summed].mean().assign(responses=groups.size()).reset_index()
    content, proposed = (numbers[name].where(numbers[name] > 0) for name in ("content_tokens", "proposed"))
    numbers["tokens_per_forward"] = content / numbers["forwards"]
    numbers["acceptance"] = 100 * numbers["accepted"] / proposed
    of = [(str(row.model), str(row.dataset)) for row in numbers.itertuples()]
    numbers["metric"] = [scores["metric"].get(dataset, "") for _, dataset in of]
    found = [scores[model].get(dataset) if model in scores else None for model, dataset in of]
    numbers["accuracy"] = pd.to_numeric(pd.Series(found, dtype=object), errors="coerce")
    metrics = ", ".join(
        f"{dataset}: {metric}" for dataset, metric in scores["metric"].items() if dataset in {*numbers["dataset"]}
    )
    most = int(costs["batch"].max())
    said = [each.format(name=folder.name, metrics=metrics or "it has no summary yet") for each in SENTENCES]
    said += [BATCHED.format(most=most)] if most > 1 else []
    return Sheet(Table("opencompass", said, _cells(numbers)), numbers)


def _cells(numbers: pd.DataFrame) -> pd.DataFrame:
    """A row for each model, the columns of each data set, and means over several where a model has all."""
    wide = numbers.pivot(index="model", columns="dataset", values=list(COLUMNS))
    datasets = list(dict.fromkeys(numbers["dataset"]))
    if len(datasets) > 1:
        for name in MEANS:
            wide[name, "Mean"] = wide[[(name, dataset) for dataset in datasets]].mean(axis=1, skipna=False)
    cells = {
        (group, heading): [Cell("-" if pd.isna(value) else f"{value:.{decimals}f}") for value in wide[name, group]]
        for group in [*datasets, "Mean"]
        for name, (heading, decimals) in COLUMNS.items()
        if (name, group) in wide and wide[name, group].notna().any()
    }
    return pd.DataFrame(cells, index=wide.index)


def _scores(folder: Path) -> pd.DataFrame:
    """OpenCompass's newest summary, by data set its first metric and the models' values; empty without one."""
    summaries = sorted((folder / "summary").glob("summary_*.csv"))
    if not summaries:
        return pd.DataFrame({"metric": pd.Series(dtype=str)})
    table = pd.read_csv(summaries[-1])
    return table.drop_duplicates("dataset").set_index("dataset")


def _lines(path: Path) -> pd.DataFrame:
    """The lines of a file of costs. Raises UserError for one that is torn or of another kind."""
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        with explained(f"{path}, line {number}", ValueError, TypeError, KeyError, instead="remove that line"):
            found = json.loads(line)
            lines.append({"item": int(found["item"]), "began": float(found["began"])} | found)
    if not lines:
        raise UserError(f"{path} is empty")
    frame = pd.DataFrame(lines)
    filled = {"content_tokens": 0, "proposed": 0, "accepted": 0, "batch": 1, "seconds": 0.0, "forwards": 0}
    return frame.reindex(columns=["item", "began", *filled]).fillna(filled)
