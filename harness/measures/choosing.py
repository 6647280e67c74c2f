"""The rule that chooses among settings and checkpoints, from their verdicts and seconds on dev
problems."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.records.store import Run
from harness.stats import Flips, mean_difference_p_values

ALPHA = 0.05  # of the test that a setting is below LLaDA's best
GOALS = ("fast", "accurate")
FINALISTS = 4  # of each decoder that all dev problems are decoded with
RULE = (
    f"of each decoder's settings and checkpoints {FINALISTS} go on from the first dev problems to"
    " all of them, first those that no other beats in accuracy and speed; of these, fast is the"
    " fastest that an exact paired test (one-sided, 5%) does not show to be below LLaDA's best,"
    " accurate the most accurate"
)


def dev_of(run: Run, decoders: Mapping[str, str], usual: Mapping[str, int]) -> pd.DataFrame:
    """A row for each of these methods of a dev run, as `choose` takes them. decoders: whose setting
    each method is.

    usual: tokens of a response by suite; others are part of a setting.
    """
    rows = []
    for name, decoder in decoders.items():
        method = run.config.methods[name]
        items = run.items[run.items["method"].astype(str) == name].sort_values("item")
        by_suite = {str(suite): group for suite, group in items.groupby("suite", observed=True)}
        rows.append(
            {
                "name": name,
                "decoder": decoder,
                "role": method.role,
                "checkpoint": ", ".join(dict.fromkeys(run.config.models[method.role].values())),
                "method": method.method,
                "settings": {
                    suite: (
                        (
                            {"gen_length": own.gen_length}
                            if own.gen_length != usual.get(suite)
                            else {}
                        )
                        | {"block_length": own.block_length, **own.options}
                    )
                    for suite, own in method.suites.items()
                },
                "right": {
                    suite: group["correct"].to_numpy(dtype=float)
                    for suite, group in by_suite.items()
                },
                "seconds": {
                    suite: float(group["seconds"].mean()) for suite, group in by_suite.items()
                },
            }
        )
    return pd.DataFrame(rows)


def finalists(dev: pd.DataFrame) -> pd.DataFrame:
    """The rows of dev, on the first problems, that are worth all of them: FINALISTS of each
    decoder, if it has as many.

    First those that no other of the decoder beats, at least as accurate and faster, or more
    accurate and as fast; then those that are left without a better one once these are taken, and so
    on, the most accurate first. (Successive halving, Jamieson and Talwalkar 2016, by non-dominated
    sorting, Deb et al. 2002.) Raises UserError as `choose`.
    """
    kept = []
    for _, group in _rated(dev).groupby("decoder", sort=False):
        left = group.sort_values(["speed", "accuracy"], ascending=False, kind="stable")
        room = FINALISTS
        while room and len(left):
            front = left[left["accuracy"] > left["accuracy"].cummax().shift(fill_value=-1.0)]
            kept.append(front.tail(room))  # towards its end it is slower and more accurate
            room = room - len(kept[-1])
            left = left.drop(front.index)
    return pd.concat(kept).sort_index()


def choose(dev: pd.DataFrame) -> pd.DataFrame:
    """The rows of dev that the rule chooses, with goal (of GOALS), accuracy (percent), speed and
    p_below.

    dev: a row for each decoder's setting and checkpoint: decoder, role, right and seconds by suite
    (1 or 0 of each problem; a response), and others. accuracy, speed: means over the suites, speed
    over LLaDA's best. p_below: exact, one-sided, of the hypothesis that it is as accurate as
    LLaDA's best. Raises UserError where a problem has no verdict, or LLaDA has no row.
    """
    chosen = []
    dev = _rated(dev)
    for goal in GOALS:
        for _, group in dev.groupby("decoder", sort=False):
            fast = group[group["p_below"] >= ALPHA] if goal == "fast" else group[:0]
            if len(fast):
                ranked = fast.sort_values(["speed", "accuracy"], ascending=False, kind="stable")
            else:
                ranked = group.sort_values(
                    ["accuracy", "speed"], ascending=[False, True], kind="stable"
                )
            chosen.append(ranked.head(1).assign(goal=goal))
    return pd.concat(chosen, ignore_index=True)


def _rated(dev: pd.DataFrame) -> pd.DataFrame:
    """dev with accuracy, speed and p_below, beside LLaDA's best."""
    unscored = sorted(
        {suite for right in dev["right"] for suite, each in right.items() if np.isnan(each).any()}
    )
    if unscored or "llada" not in set(dev["decoder"]):
        wrong = (
            f"problems of {', '.join(unscored)} have no verdict"
            if unscored
            else "LLaDA is not among the decoders"
        )
        raise UserError(
            f"{wrong}: the rule compares every setting with LLaDA's best on all dev problems"
        )
    dev = dev.assign(
        accuracy=[100 * np.mean([each.mean() for each in right.values()]) for right in dev["right"]]
    )
    seconds = pd.DataFrame(list(dev["seconds"]), index=dev.index)
    llada = dev[dev["decoder"] == "llada"].assign(total=seconds.sum(axis=1))
    bar = llada.sort_values(["accuracy", "total"], ascending=False, kind="stable").index[0]
    dev = dev.assign(speed=(seconds.loc[bar] / seconds).mean(axis=1))
    dev["p_below"] = [
        mean_difference_p_values(_flips(dev.loc[bar, "right"], right))[1] for right in dev["right"]
    ]
    return dev


def _flips(reference: Mapping[str, Any], right: Mapping[str, Any]) -> list[Flips]:
    """Of each suite the problems that only the reference has right, those that only the other has,
    and all."""
    return [
        (int((theirs > right[suite]).sum()), int((theirs < right[suite]).sum()), len(theirs))
        for suite, theirs in reference.items()
    ]
