"""How final answers are judged, shared by suites whose responses end in a number or an expression."""

from __future__ import annotations

from typing import Any

BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
MATH_EVALUATION: dict[str, Any] = {
    "evaluator": {"type": "opencompass.datasets.MATHEvaluator", "version": "v2"},
    "pred_postprocessor": {"type": "opencompass.datasets.math_postprocess_v2"},
}
