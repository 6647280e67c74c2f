"""OpenCompass's verdict on one response, as soon as it is there.

For suites whose evaluators compare text. Those that execute model-written code are scored after the run, in sandboxes
(`harness/sandbox/scoring.py`).
"""

from collections.abc import Callable
from typing import Any

from mmengine.config import ConfigDict
from opencompass.registry import ICL_EVALUATORS, TEXT_POSTPROCESSORS

from harness.errors import UserError

LONGEST = 300  # characters of what an evaluator says


class Judge:
    """The evaluator of a dataset's configuration, with its postprocessors, for one item at a time.

    evaluation: the eval_cfg. rows: the dataset's test problems. golds: their references. Raises UserError for a
    reference that the configuration's postprocessor cannot read.
    """

    def __init__(self, evaluation: dict[str, Any], rows: Any, golds: list[str]) -> None:
        config = ConfigDict(evaluation)
        self._evaluator = ICL_EVALUATORS.build(config["evaluator"])
        self._process_text = _processor(config.get("pred_postprocessor"))
        process_gold = _processor(config.get("dataset_postprocessor"))
        self._rows, self._golds = rows, [_processed(process_gold, item, gold) for item, gold in enumerate(golds)]
        self._wants_rows = "test_set" in type(self._evaluator).score.__annotations__

    def explained(self, item: int, text: str) -> tuple[bool, str]:
        """Whether a response to an item is right, and what the evaluator says of it, as `explanation`.

        Raises UserError if it gives no verdict.
        """
        rows = {"test_set": self._rows.select([item])} if self._wants_rows else {}
        predictions, references = [self._process_text(text)], [self._golds[item]]
        result = self._evaluator.score(predictions=predictions, references=references, **rows)
        detail = result["details"][0]
        return verdict_of(detail), explanation(detail)


def explanation(detail: Any) -> str:
    """Why an evaluator came to its verdict: the answer that it read, or how a program ended; "" if it does not say."""
    if not isinstance(detail, dict):
        return ""
    known = {"pred": "read ", "predictions": "read ", "result": "the program: ", "message": ""}
    texts = {name: _short(detail[name]) for name in known if detail.get(name) is not None}
    return "; ".join(f"{known[name]}{text}" for name, text in texts.items() if text)


def _short(value: Any) -> str:
    text = str(value[0] if isinstance(value, list) and len(value) == 1 else value).strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} .."


def verdict_of(detail: dict[str, Any]) -> bool:
    """The verdict in what an evaluator says of one response. Raises UserError if there is none."""
    verdict = verdict_in(detail)
    if verdict is None:
        raise UserError(f"the evaluator gave no verdict per item: {detail}")
    return verdict


def verdict_in(detail: Any) -> bool | None:
    """The verdict in what an evaluator says of one response; None if there is none."""
    verdict = detail.get("correct", detail.get("is_correct")) if isinstance(detail, dict) else None
    if isinstance(verdict, list):
        verdict = verdict[0] if len(verdict) == 1 else None
    return None if verdict is None else bool(verdict)


def _processed(process: Callable[[str], str], item: int, gold: str) -> str:
    try:
        return process(gold)
    except Exception as error:  # whatever a postprocessor makes of text it does not expect
        raise UserError(f"item {item}: the reference {gold!r} is not in the format of its suite ({error})") from error


def _processor(config: dict[str, str] | None) -> Callable[[str], str]:
    if config is None:
        return lambda text: text
    return TEXT_POSTPROCESSORS.get(config["type"])
