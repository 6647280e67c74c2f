"""The rule by which settings are chosen on dev problems, one for all decoders, FeF-DLLM as well.

Of each decoder and checkpoint as many settings are tried, its defaults and random ones of its space, on the same dev
problems. On every suite two of them are chosen: `fast`, the fastest whose dev accuracy is at most TOLERANCE points
below the best of LLaDA's own settings, and `accurate`, the most accurate. Where none is that accurate, `fast` is the
most accurate too. Ties go to the faster one. Then a decoder's checkpoint is chosen by the same rule over the means of
the suites.
"""

from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.methods.tuning import SPACES

TOLERANCE = 1.0  # points of dev accuracy
GOALS = ("fast", "accurate")
TUNED = "-tuned-"  # between decoder and goal in a method's name


def choose(dev: pd.DataFrame) -> pd.DataFrame:
    """The settings that the rule chooses; dev: a row per setting and suite that was run.

    dev's columns: suite, decoder (of SPACES), role, accuracy (percent), seconds (mean of a response), and any others.
    Returns rows of dev with goal (of GOALS) and best, whether the decoder's checkpoint for that goal is this role.
    Raises UserError where LLaDA has no scored row on a suite.
    """
    bars = dev[dev["decoder"] == "llada"].groupby("suite")["accuracy"].max()
    without = [suite for suite in dev["suite"].unique() if pd.isna(bars.get(suite))]
    if without:
        raise UserError(f"LLaDA has no scored dev problems of {', '.join(without)}; tune it with the others")
    dev = dev.assign(enough=dev["accuracy"] >= dev["suite"].map(bars) - TOLERANCE)
    chosen = []
    for goal in GOALS:
        for _, own in dev.groupby(["decoder", "role", "suite"], sort=False):
            chosen.append(own.loc[[_chosen(own, goal)]].assign(goal=goal))
    found = pd.concat(chosen, ignore_index=True)
    slowest = dev[dev["decoder"] == "llada"].groupby("suite")["seconds"].max()
    means = (
        found.assign(seconds=found["seconds"] / found["suite"].map(slowest))
        .groupby(["goal", "decoder", "role"], sort=False)[["accuracy", "seconds"]]
        .mean()
        .reset_index()
    )
    means["enough"] = means["accuracy"] >= bars.mean() - TOLERANCE
    best = {
        (goal, decoder): own.loc[_chosen(own, str(goal)), "role"]
        for (goal, decoder), own in means.groupby(["goal", "decoder"], sort=False)
    }
    found["best"] = [
        best[goal, decoder] == role
        for goal, decoder, role in found[["goal", "decoder", "role"]].itertuples(index=False, name=None)
    ]
    return found.drop(columns="enough")


def _chosen(own: pd.DataFrame, goal: str) -> Any:
    """The index of the row that the rule takes for a goal; columns accuracy, seconds and enough."""
    if goal == "fast" and own["enough"].any():
        return own[own["enough"]].sort_values(["seconds", "accuracy"], ascending=[True, False]).index[0]
    return own.sort_values(["accuracy", "seconds"], ascending=[False, True]).index[0]


def choice_of(chosen: pd.DataFrame) -> dict[str, Any]:
    """The chosen methods as a file has them: name -> label, method, role, settings and dev figures by suite.

    chosen: of `choose`, with columns method (the decoder's name in METHODS) and settings (lengths and options). A
    method is called DECODER-tuned-GOAL, with /ROLE behind it for other checkpoints than the best. Where both goals have
    the same settings and checkpoint on every suite, `accurate` is left out.
    """
    methods: dict[str, Any] = {}
    for (decoder, goal, role), own in chosen.groupby(["decoder", "goal", "role"], sort=False):
        best = bool(own["best"].iloc[0])
        methods[f"{decoder}{TUNED}{goal}{'' if best else f'/{role}'}"] = {
            "label": f"{SPACES[str(decoder)].label}, tuned ({goal})",
            "method": str(own["method"].iloc[0]),
            "role": str(role),
            "suites": dict(zip(own["suite"], own["settings"], strict=True)),
            "dev": {
                row["suite"]: {"accuracy": row["accuracy"], "seconds": row["seconds"]} for row in own.to_dict("records")
            },
        }
    for decoder in SPACES:
        pair = [methods.get(f"{decoder}{TUNED}{goal}", {}) for goal in GOALS]
        if pair[0] and all(pair[0][name] == pair[1].get(name) for name in ("role", "suites")):
            del methods[f"{decoder}{TUNED}accurate"]
    return methods
