"""Costs on another class of platform: golden responses that the golden records' own revision gives at these costs too.

Rounding decides more than tokens. A confidence that saturates is 1 or the number before it in float32, as the
processor's instructions round, and such confidences order SSD's drafts: how many are accepted, and with it the number
of forwards, depends on the processor, and the tokens do not. With a coin thrown at every one of dozens of equal
confidences, moving them at random seldom meets the golden costs, and would excuse any others. So the proof is exact:
decoded on this machine with the code that made the golden records, the item has the tokens and costs that it has now.
"""

import tempfile
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.records.store import Run
from harness.regression.golden import SPENT, Key
from harness.regression.process import Worker, request_of
from harness.regression.revision import checkout, revision_of
from harness.regression.ties import loaded_again, rows_of
from harness.runs.responses import window_sums


def unchanged_items(golden: Run, run: Run, differing: Mapping[Key, Set[str]]) -> tuple[list[Key], list[str]]:
    """Those of the items that differ in acceptance and costs alone, and have them under the golden revision here too.

    differing: the measures that each differs in. The second list has a sentence on why that revision cannot be asked,
    where it cannot.
    """
    keys = [key for key, measures in differing.items() if measures <= set(SPENT)]
    if not keys:
        return [], []
    try:
        answers = _answers(golden, run, keys)
    except UserError as error:
        return [], [f"the golden records' revision cannot be asked for its costs here: {error}"]
    recorded = rows_of(run)
    return [key for key, answer in zip(keys, answers, strict=True) if _spent_alike(answer, recorded[key])], []


def _answers(golden: Run, run: Run, keys: Sequence[Key]) -> list[dict[str, Any]]:
    """What worker.py answers on the items with the code of the golden records' revision."""
    with checkout(revision_of(golden.folder)) as tree, tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        config, jobs, _ = loaded_again(run, keys, Path(scratch))
        from harness.runs.respond import item_seed  # with OpenCompass, which takes seconds to import

        with Worker(tree, config.threads or 1) as worker:
            return [
                worker.decode(
                    request_of(config, jobs[suite].models[method], jobs[suite].prompts[item].tolist())
                    | {"seed": item_seed(config.seed or 0, suite, item)}
                )
                for method, suite, item in keys
            ]


def _spent_alike(answer: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether an answer has the tokens and costs of a recorded item; one that is an error does not."""
    if "error" in answer:
        return False
    spent = answer["costs"] | window_sums(answer["windows"])
    return answer["tokens"].startswith(row["tokens_hash"]) and all(spent.get(each) == row.get(each) for each in SPENT)
