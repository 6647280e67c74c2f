"""What the passes of decoding cost on a made-up sequence, c_rho and c_pi, with their peak memory.

Costs are relative to a plain forward: one row, the logits of half of the response read. A draft
pass (c_rho) is one row, a window read; literal verification of b drafts (c_pi) is b rows, one
position each read; two-stream verification is what the decoder runs, its inputs and cache included.
Shapes: B batch, L length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch

from harness.errors import UserError, explained
from harness.records.environment import interleaved
from harness.stats import linear_fit
from model_wrappers import Backbone
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.decoders.fef import FeFOptions, Proposal, TwoStreamVerifier
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler

DRAFTS = 16  # the window of the paper's main table
ROWS = (1, 2, 4, 8, 16, 32)
WINDOWS = (4, 8, 16, 32, 64)
SHARES = (0.25, 0.5, 1, 2)  # lengths, relative to prompt and response
# The column names of committed records, and how many positions of a row are read.
HEADS = {"all logits": None, f"window of {DRAFTS}": DRAFTS, "one place a row": 1}


def random_ids(vocab_size: int, length: int, device: torch.device) -> torch.Tensor:
    """The same random ids on every call: LongTensor (1, L)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocab_size, (1, length), generator=generator).to(device)


class SequencePasses:
    """Forwards of a random prompt and a masked response. Raises UserError for lengths that cannot
    be measured."""

    def __init__(self, backbone: Backbone, prompt: int, response: int) -> None:
        length = prompt + response
        if not DRAFTS <= length <= backbone.max_length:
            raise UserError(
                f"a prompt of {prompt} and a response of {response} tokens cannot be measured:"
                f" together they must have from {DRAFTS} to {backbone.max_length}, the model's"
                " limit"
            )
        self.backbone = backbone
        self.length = length
        self._response = response
        self.x_1L = random_ids(backbone.vocab_size, length, torch.device("cpu"))
        self.x_1L[0, prompt:] = backbone.mask_id

    def forward(self, rows: int = 1, positions: int | None = None) -> None:
        """One forward; logits of the last `positions` of every row are read, None for all."""
        device = self.x_1L.device
        first = self.length - (positions or 0)
        read = None if positions is None else torch.arange(first, self.length, device=device)
        self.backbone.logits(self.x_1L.repeat(rows, 1), positions=read)

    def plain(self) -> None:
        """A plain forward."""
        self.forward(positions=max(1, self._response // 2))

    def two_stream(self, window: int) -> TwoStream:
        """Two-stream verification of a window in a segment of the whole response, or of a window if
        that is wider."""
        return TwoStream(self.backbone, self.x_1L, window, max(window, self._response))


class TwoStream:
    """The two passes of two-stream verification as the decoder runs them; `context` comes first."""

    def __init__(self, backbone: Backbone, x_1L: torch.Tensor, window: int, segment: int) -> None:
        self._ledger = Ledger(backbone)
        start = x_1L.shape[1] - segment
        request = Request(self._ledger, self._ledger, x_1L, start, segment, 0.0, Sampler(0))
        self._verifier = TwoStreamVerifier(request, FeFOptions(window=window))
        self._segment = list(range(start, x_1L.shape[1]))
        drafts = random_ids(backbone.vocab_size, window, torch.device("cpu"))[0].tolist()
        self._proposal = Proposal(drafts)

    def context(self) -> None:
        """The context pass: the whole sequence, of which the segment is read."""
        self._verifier.begin(self._segment)

    def verify(self) -> int:
        """Verify all drafts of a window at the segment's start; returns the tokens added after the
        cached ones."""
        before = self._ledger.tokens
        self._verifier.verify(self._segment, self._proposal)
        return self._ledger.tokens - before

    def both(self) -> None:
        """The context pass and the verification."""
        self.context()
        self.verify()


@dataclass(frozen=True)
class Costs:
    """Seconds of passes; literal: by rows of a verification; two_stream: by tokens added, without a
    context pass."""

    plain: float
    draft: float
    context: float
    literal: dict[int, float]
    two_stream: dict[int, float]

    def passes(self) -> dict[str, float]:
        """Seconds of the passes that decoding is made of, at a window of DRAFTS."""
        fit = linear_fit(self.literal)
        literal = self.literal.get(DRAFTS, fit.fixed + DRAFTS * fit.each)
        verification = self.two_stream[2 * DRAFTS - 1]  # no query attends to the last draft
        return {
            "plain forward": self.plain,
            "draft pass (c_rho)": self.draft,
            f"literal verification of {DRAFTS} drafts (c_pi)": literal,
            "context pass": self.context,
            f"two-stream verification of {DRAFTS} drafts (c_pi)": verification,
            "context pass and two-stream verification": self.context + verification,
        }


def bench_costs(
    backbone: Backbone, prompt: int, response: int, repeats: int, rows: Sequence[int] = ROWS
) -> tuple[Costs, dict[str, pd.DataFrame]]:
    """Medians over interleaved rounds, and the tables `rows`, `lengths`, `two-stream`, `passes` and
    `fits` of them.

    Lengths beyond the model's limit and windows beyond the sequence are left out. Raises UserError
    for what cannot be measured, or does not fit into a GPU's memory.
    """
    rows = sorted(set(rows))
    if len(rows) < 2 or rows[0] < 1:
        raise UserError(f"rows {rows}: give at least two different numbers")
    passes = SequencePasses(backbone, prompt, response)
    lengths = [
        n for n in (int(share * passes.length) for share in SHARES) if n <= backbone.max_length
    ]
    first = torch.zeros(1, dtype=torch.long, device=backbone.device)
    calls: dict[str, Callable[[], object]] = {}
    windows: list[dict[str, int]] = []
    what = (
        f"{rows[-1]} rows of {passes.length} tokens do not fit into the memory of {backbone.device}"
    )
    with explained(what, torch.OutOfMemoryError, instead="give fewer --rows"):
        for window in (each for each in WINDOWS if each <= passes.length):
            stream = passes.two_stream(window)
            stream.context()
            calls[f"window {window}"] = stream.verify
            windows.append({"window": window, "tokens": stream.verify()})
        calls |= {
            f"{n} {head}": partial(passes.forward, n, read)
            for n in rows
            for head, read in HEADS.items()
        }
        for n in lengths:
            ids_1L = random_ids(backbone.vocab_size, n, backbone.device)
            calls[f"{n} tokens"] = partial(backbone.logits, ids_1L, positions=first)
        calls |= {"plain": passes.plain, "context": passes.two_stream(DRAFTS).context}
        calls["draft"] = partial(passes.forward, positions=DRAFTS)
        medians = interleaved(calls, backbone.device, repeats).median()
    seconds = {str(name): float(median) for name, median in medians.items()}
    by_window = pd.DataFrame(windows).assign(
        seconds=[seconds[f"window {each['window']}"] for each in windows]
    )
    costs = Costs(
        plain=seconds["plain"],
        draft=seconds["draft"],
        context=seconds["context"],
        literal={n: seconds[f"{n} one place a row"] for n in rows},
        two_stream=dict(
            zip(by_window["tokens"].tolist(), by_window["seconds"].tolist(), strict=True)
        ),
    )

    def relative(table: pd.DataFrame) -> pd.DataFrame:
        """The table with its seconds as milliseconds and in plain forwards."""
        in_plain = table["seconds"] / costs.plain
        return table.drop(columns="seconds").assign(
            **{"ms": 1e3 * table["seconds"], "plain forwards": in_plain}
        )

    by_rows = pd.DataFrame({"rows": rows, "seconds": costs.literal.values()})
    for head in HEADS:
        by_rows[f"ms, {head}"] = [1e3 * seconds[f"{n} {head}"] for n in rows]
    by_length = pd.DataFrame(
        {"tokens": lengths, "seconds": [seconds[f"{n} tokens"] for n in lengths]}
    )
    by_window["with context pass"] = (by_window["seconds"] + costs.context) / costs.plain
    fits = {
        "literal, rows": linear_fit(costs.literal),
        "two-stream, tokens": linear_fit(costs.two_stream),
    }
    return costs, {
        "rows": relative(by_rows).drop(columns="ms"),
        "lengths": relative(by_length),
        "two-stream": relative(by_window),
        "passes": relative(pd.DataFrame(costs.passes().items(), columns=["pass", "seconds"])),
        "fits": (
            (pd.DataFrame.from_dict(fits, orient="index") / costs.plain)
            .rename_axis("c_pi")
            .reset_index()
        ),
    }


def statements(costs: Costs) -> list[str]:
    """The main costs in words."""
    _, draft, literal, _, verification, both = (
        seconds / costs.plain for seconds in costs.passes().values()
    )
    return [
        (
            f"A {DRAFTS}-token verification pass costs {verification:.2f} plain forwards; context"
            f" pass and verification together {both:.2f}."
        ),
        (
            f"Literal verification of {DRAFTS} drafts costs {literal:.2f} plain forwards, a draft"
            f" pass {draft:.2f}."
        ),
    ]


def bench_memory(backbone: Backbone, prompt: int, response: int) -> pd.DataFrame:
    """Peak memory of a plain forward, of literal and of two-stream verification with its context
    pass, on a GPU.

    Columns: megabytes (1e6 bytes) above what was there before, their ratio to a plain forward's,
    and that ratio with the weights on both sides; NaN for a pass that does not fit.
    """
    passes = SequencePasses(backbone, prompt, response)
    calls: dict[str, Callable[[], object]] = {
        "plain forward": passes.plain,
        f"literal verification, {DRAFTS} rows": partial(passes.forward, DRAFTS, 1),
    }
    for window in (DRAFTS, 64):
        if window <= passes.length:
            calls[f"two-stream verification, window {window}"] = passes.two_stream(window).both
    peaks = pd.Series({name: _peak_bytes(call, backbone.device) for name, call in calls.items()})
    plain = peaks["plain forward"]
    weights = sum(weight.nbytes for weight in backbone.model.parameters())
    relative = {
        "plain forwards": peaks / plain,
        "with weights": (peaks + weights) / (plain + weights),
    }
    return pd.DataFrame({"MB": peaks / 1e6, **relative}).rename_axis("pass").reset_index()


def _peak_bytes(call: Callable[[], object], device: torch.device) -> float:
    """The most bytes allocated during a call, above what was before it; NaN if it does not fit."""
    try:
        call()  # the first call also allocates what libraries keep
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    except torch.OutOfMemoryError:
        return math.nan
