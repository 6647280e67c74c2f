"""The rule that chooses settings and checkpoints by their verdicts and seconds on dev problems."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.errors import UserError
from harness.records.store import Run
from harness.stats import Flips, mean_difference_p_values

# The size of the test that a setting is below LLaDA's best.
ALPHA = 0.05
GOALS = ("fast", "accurate")
# Settings of each decoder that decode all dev problems.
FINALISTS = 4
RULE = (
    f"of each decoder's settings and checkpoints {FINALISTS} go on from the first dev problems to"
    " all of them, first those that no other beats in accuracy and speed; of these, fast is the"
    " fastest that an exact paired test (one-sided, 5%) does not show to be below LLaDA's best,"
    " accurate the most accurate"
)


def dev_of(run: Run, decoders: Mapping[str, str], usual: Mapping[str, int]) -> pd.DataFrame:
    """The methods of a dev run, a row each, for `finalists` and `choose`.

    Args:
        run: on dev problems.
        decoders: by method the decoder of which it is a setting.
        usual: the usual gen_length by suite; another length becomes a part of the setting.

    Returns:
        name, decoder, role, checkpoint, method; settings by suite; right: 1 or 0 of each problem,
        by suite; seconds: of a response, the mean by suite.
    """
    rows = []
    for name, decoder in decoders.items():
        method = run.config.methods[name]
        items = run.items[run.items["method"].astype(str) == name].sort_values("item")
        by_suite = {str(suite): group for suite, group in items.groupby("suite", observed=True)}
        settings = {}
        for suite, setting in method.suites.items():
            same = setting.gen_length == usual.get(suite)
            lengths = {} if same else {"gen_length": setting.gen_length}
            settings[suite] = lengths | {"block_length": setting.block_length, **setting.options}
        rows.append(
            {
                "name": name,
                "decoder": decoder,
                "role": method.role,
                "checkpoint": ", ".join(dict.fromkeys(run.config.models[method.role].values())),
                "method": method.method,
                "settings": settings,
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
    """The settings that go on from the first dev problems to all: FINALISTS of each decoder, or as
    many as it has.

    First come those that no other setting of the decoder dominates (at least as accurate and
    faster, or more accurate and as fast), then those that only these dominate, and so on, the most
    accurate first. This is successive halving (Jamieson and Talwalkar 2016) by non-dominated
    sorting (Deb et al. 2002).

    Args:
        dev: see `choose`; on the first problems.

    Raises:
        UserError: as `choose`.
    """
    fronts = []
    for _, group in _rated(dev).groupby("decoder", sort=False):
        rest = group.sort_values(["speed", "accuracy"], ascending=False, kind="stable")
        room = FINALISTS
        while room and len(rest):
            # Sorted by speed: a setting is on the front if it is more accurate than all faster
            # ones.
            front = rest[rest["accuracy"] > rest["accuracy"].cummax().shift(fill_value=-1.0)]
            # The tail: the end of a front is slower and more accurate.
            fronts.append(front.tail(room))
            room -= len(fronts[-1])
            rest = rest.drop(front.index)
    return pd.concat(fronts).sort_index()


def choose(dev: pd.DataFrame) -> pd.DataFrame:
    """Choose a setting of each decoder for each of GOALS.

    Args:
        dev: a row for each setting and checkpoint of a decoder, as `dev_of` returns them; at least
            decoder, right and seconds.

    Returns:
        The chosen rows with goal, accuracy (percent), speed (relative to LLaDA's best; both are
        means over the suites) and p_below: the exact one-sided p-value of the hypothesis that the
        setting is as accurate as LLaDA's best.

    Raises:
        UserError: a problem has no verdict.
    """
    chosen = []
    dev = _rated(dev)
    for goal in GOALS:
        for _, group in dev.groupby("decoder", sort=False):
            # Where all settings are below LLaDA's best, `fast` is the most accurate one too.
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
    """dev with accuracy, speed and p_below, compared with LLaDA's best."""
    unscored = sorted(
        {
            suite
            for right in dev["right"]
            for suite, verdicts in right.items()
            if np.isnan(verdicts).any()
        }
    )
    if unscored:
        raise UserError(
            f"problems of {', '.join(unscored)} have no verdict: the rule compares every setting"
            " with LLaDA's best on all dev problems"
        )
    # Means of means: each suite has the same weight, whatever its size.
    shares = [[verdicts.mean() for verdicts in right.values()] for right in dev["right"]]
    dev = dev.assign(accuracy=[100 * np.mean(suites) for suites in shares])
    seconds = pd.DataFrame(list(dev["seconds"]), index=dev.index)
    llada = dev[dev["decoder"] == "llada"].assign(total=seconds.sum(axis=1))
    best = llada.sort_values(["accuracy", "total"], ascending=False, kind="stable").index[0]
    dev = dev.assign(speed=(seconds.loc[best] / seconds).mean(axis=1))
    dev["p_below"] = [
        mean_difference_p_values(_flips(dev.loc[best, "right"], right))[1] for right in dev["right"]
    ]
    return dev


def _flips(reference: Mapping[str, Any], right: Mapping[str, Any]) -> list[Flips]:
    """By suite the number of problems that only the reference has right, that only the other has
    right, and of all."""
    return [
        (int((best > right[suite]).sum()), int((best < right[suite]).sum()), len(best))
        for suite, best in reference.items()
    ]
