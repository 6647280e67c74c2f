"""What a pass costs against rows, length, the vocabulary head and tokens put after cached ones: c_rho and c_pi.

Costs are relative to a plain forward: one row, of which the logits of half of the response are read. A step of LLaDA
reads as many on average. A draft pass (c_rho) is one row, of which a window is read. Literal verification of b drafts
(c_pi) is only the model's call: b rows, of which one position each is read. Two-stream verification is what the decoder
runs: building its inputs and cropping the cache are part of its cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.interpolate import make_interp_spline
from scipy.stats import linregress

from harness.costs.passes import DRAFTS, Passes
from harness.costs.timing import interleaved, random_ids
from harness.errors import UserError
from model_wrappers import Backbone

ROWS = (1, 2, 4, 8, 16, 32)
WINDOWS = (4, 8, 16, 32, 64)
SHARES = (0.25, 0.5, 1, 2)  # lengths, relative to prompt and response
HEADS = {"all logits": None, f"window of {DRAFTS}": DRAFTS, "one place a row": 1}  # positions of a row that are read


@dataclass(frozen=True)
class Costs:
    """Seconds of passes on a sequence of `length` tokens.

    plain, draft, context: of a plain forward, a draft pass, and the context pass of two-stream verification. literal:
    of a literal verification, by its rows. two_stream: of a two-stream verification without its context pass, by the
    tokens that it adds after the cached ones.
    """

    length: int
    plain: float
    draft: float
    context: float
    literal: dict[int, float]
    two_stream: dict[int, float]


class Fit(NamedTuple):
    """seconds = fixed + each * size. residual: root mean square of measured - fitted seconds."""

    fixed: float
    each: float
    residual: float


def linear_fit(seconds: dict[int, float]) -> Fit:
    """Least squares over seconds by size (rows or tokens); at least two sizes."""
    sizes, measured = np.array(list(seconds)), np.array(list(seconds.values()))
    line = linregress(sizes, measured)
    off = measured - (line.intercept + line.slope * sizes)
    return Fit(float(line.intercept), float(line.slope), float(np.sqrt(np.mean(off**2))))


def cost_at(seconds: dict[int, float], size: float) -> float:
    """Seconds at any size: linear between neighbouring measured sizes, the outermost lines continued."""
    sizes = sorted(seconds)
    return float(make_interp_spline(sizes, [seconds[measured] for measured in sizes], k=1)(size))


def bench_costs(
    backbone: Backbone, prompt: int, response: int, repeats: int, rows: Sequence[int] = ROWS
) -> tuple[Costs, dict[str, pd.DataFrame]]:
    """Medians over interleaved rounds, and the tables `rows`, `lengths`, `two-stream`, `passes` and `fits` of them.

    prompt, response: tokens. rows: numbers of rows, two different ones at least. Lengths beyond the model's limit and
    windows beyond the sequence are left out. Raises UserError for what cannot be measured, or if a GPU's memory is too
    small for it.
    """
    rows = sorted(set(rows))
    if len(rows) < 2 or rows[0] < 1 or repeats < 1:
        raise UserError(f"rows {rows} and {repeats} repeats: give at least two different numbers of rows and 1 repeat")
    passes = Passes(backbone, prompt, response)
    lengths = [n for n in (int(share * passes.length) for share in SHARES) if n <= backbone.max_length]
    try:
        windows, calls = _verifications(passes)
        calls |= {f"{n} {head}": partial(passes.forward, n, read) for n in rows for head, read in HEADS.items()}
        calls |= {f"{n} tokens": _one_position(backbone, n) for n in lengths}
        calls |= {"plain": passes.plain, "draft": passes.draft, "context": passes.two_stream(DRAFTS).context}
        medians = interleaved(calls, backbone.device, repeats).median()
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{backbone.device} has too little memory for {rows[-1]} rows of {passes.length} tokens; give fewer --rows"
        ) from error
    seconds = {str(name): float(median) for name, median in medians.items()}
    windows["seconds"] = [seconds[name] for name in windows.index]
    by_tokens = windows.groupby("tokens")["seconds"].mean()  # different windows may add the same number of tokens
    costs = Costs(
        length=passes.length,
        plain=seconds["plain"],
        draft=seconds["draft"],
        context=seconds["context"],
        literal={n: seconds[f"{n} one place a row"] for n in rows},
        two_stream=dict(zip(by_tokens.index.tolist(), by_tokens.tolist(), strict=True)),
    )
    by_rows = pd.DataFrame({"rows": rows, "seconds": costs.literal.values()})
    for head in HEADS:
        by_rows[f"ms, {head}"] = [1e3 * seconds[f"{n} {head}"] for n in rows]
    by_length = pd.DataFrame({"tokens": lengths, "seconds": [seconds[f"{n} tokens"] for n in lengths]})
    by_pass = pd.DataFrame(goals(costs).items(), columns=["pass", "seconds"])
    windows["with context pass"] = (windows["seconds"] + costs.context) / costs.plain
    return costs, {
        "rows": _relative(by_rows, costs).drop(columns="ms"),
        "lengths": _relative(by_length, costs),
        "two-stream": _relative(windows, costs),
        "passes": _relative(by_pass, costs),
        "fits": fits_table(costs),
    }


def goals(costs: Costs) -> dict[str, float]:
    """Seconds of the passes that decoding is made of, at a window of DRAFTS."""
    verification = cost_at(costs.two_stream, 2 * DRAFTS - 1)  # no query attends to the last draft
    return {
        "plain forward": costs.plain,
        "draft pass (c_rho)": costs.draft,
        f"literal verification of {DRAFTS} drafts (c_pi)": cost_at(costs.literal, DRAFTS),
        "context pass": costs.context,
        f"two-stream verification of {DRAFTS} drafts (c_pi)": verification,
        "context pass and two-stream verification": costs.context + verification,
    }


def fits_table(costs: Costs) -> pd.DataFrame:
    """The linear fits of c_pi in plain forwards: fixed + each * rows, or tokens; residual as in Fit."""
    measured = {"literal, rows": costs.literal, "two-stream, tokens": costs.two_stream}
    rows = [{"c_pi": name, **linear_fit(seconds)._asdict()} for name, seconds in measured.items()]
    fits = pd.DataFrame(rows).set_index("c_pi") / costs.plain
    return fits.reset_index()


def statements(costs: Costs) -> list[str]:
    """What was measured, in words."""
    passes = {name: seconds / costs.plain for name, seconds in goals(costs).items()}
    _, draft, literal, _, verification, both = passes.values()
    return [
        f"A {DRAFTS}-token verification pass costs {verification:.2f} plain forwards; context pass and verification "
        f"together {both:.2f}.",
        f"Literal verification of {DRAFTS} drafts costs {literal:.2f} plain forwards, a draft pass {draft:.2f}.",
    ]


def _relative(table: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """The table with its seconds as milliseconds and relative to a plain forward."""
    seconds = table["seconds"]
    return table.drop(columns="seconds").assign(**{"ms": 1e3 * seconds, "plain forwards": seconds / costs.plain})


def _verifications(passes: Passes) -> tuple[pd.DataFrame, dict[str, Callable[[], object]]]:
    """Two-stream verifications of every window that fits: a table of windows and tokens, and the calls by name."""
    rows: list[dict[str, int]] = []
    calls: dict[str, Callable[[], object]] = {}
    for window in WINDOWS:
        if window <= passes.length:
            stream = passes.two_stream(window)
            stream.context()
            calls[f"window {window}"] = stream.verify
            rows.append({"window": window, "tokens": stream.verify()})
    return pd.DataFrame(rows, index=list(calls)), calls


def _one_position(backbone: Backbone, length: int) -> Callable[[], object]:
    ids_1L = random_ids(backbone.vocab_size, length, backbone.device)
    return partial(backbone.logits, ids_1L, positions=torch.zeros(1, dtype=torch.long, device=backbone.device))
