"""The law section of the audit: every decoder's output law, against the known joint law.

The backbone is a table of the joint (`oracle.py`) and makes no error itself, so that a distance to
the joint is the decoder's: it commits several tokens at once from their marginals (factorization
error), or the drawn tokens decide which of them are committed (selection bias). Decoders run as
shipped, through `decode`, at temperature 1.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

from harness.audit import oracle
from harness.audit.oracle import Law, TableBackbone, total_variation
from harness.methods.schedules import optimal_schedule
from harness.records.store import write_atomically
from harness.stats import sampling_bound
from model_wrappers import METHODS, decode
from model_wrappers.options import SampleOptions
from model_wrappers.sampling import Sampler
from model_wrappers.trace import Decoded

EXACT = 1e-12  # total variation that is rounding: an enumerated law nearer than this is equal
SEEN = 1e-3  # total variation by which a decoder that is broken on purpose must be caught
LEVEL = 0.05  # of a bound on a sampled law
PROBES = 50  # random branches that estimate how many there are
DIFFUSION_STEPS = (1, 2, 4)
TRUNCATED = SampleOptions(top_p=0.7)  # of the rows whose joint is the truncated chain's
PROMPT = torch.tensor([0])  # oracles ignore it
NOTE = """\
TV: total variation to the joint p*. exact: all branches of the decoder's randomness were walked
(runs: how many). sampled: from as many samples as runs; the TV is right within the bound with 95%
confidence. KL: KL(p* || law), exact laws only. Factorization error: LLaDA in random order is exact
at one token a step and not at more, where tokens that depend on one another are drawn
independently. Selection bias: ranked by confidence even one token a step misses the joint, because
the drawn tokens decide which of them are committed. Ranked by entropy they do not, and one at a
time is exact too. FeF at one diffusion step is exact. At more steps its re-masking by low
confidence is such a selection, but its law is the same for every window, every draft and without
speculation. With top_p the joint is the product of the truncated conditionals. SSD is left out: it
is defined at temperature 0 only."""


@dataclass(frozen=True)
class Budget:
    """Limits of an exact law: up to so many branches all are walked, beyond them so many samples
    are drawn."""

    branches: int = 25_000
    samples: int = 4000
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """A decoder's law and expected forward passes.

    Attributes:
        law: probabilities or frequencies of responses.
        forwards: expected forward passes of a response.
        outcomes: how many responses are possible, R^d.
        branches: how many were walked; 0 if the law was sampled.
        samples: how many were drawn; 0 if every branch was walked.
    """

    law: Law
    forwards: float
    outcomes: int
    branches: int = 0
    samples: int = 0

    def bound(self, level: float = LEVEL) -> float:
        """A bound on the total variation between this law and the true one, which holds except with
        probability `level`; 0 for an exact law."""
        return sampling_bound(self.outcomes, self.samples, level) if self.samples else 0.0


@dataclass(frozen=True)
class Case:
    """A decoder with its options, and the check of its law.

    Attributes:
        decoder: its name in the table.
        shown: its options in the table.
        method, options: for `decode`.
        must: "equal" (to the joint), "differ" (from it), "broken" (on purpose, so that it must
            differ clearly), or "" for no claim.
        reference: a group of cases that must all have the law of its first one, or "".
        quota: tokens per step, of a decoder in random order; see `ChoiceSampler`.
    """

    decoder: str
    shown: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    must: str = ""
    reference: str = ""
    quota: int | None = None


@dataclass(frozen=True)
class Result:
    """A measured case.

    Attributes:
        case: the decoder and its claim.
        measured: its law.
        distance: total variation to the joint.
        divergence: KL(joint || law) in nats; NaN for a sampled law.
        reference: the law of the first case of its group; None for that one, and without a group.
    """

    case: Case
    measured: Measured
    distance: float
    divergence: float
    reference: Measured | None

    @property
    def to_reference(self) -> float | None:
        """Total variation to the law of the reference."""
        return (
            None
            if self.reference is None
            else total_variation(self.measured.law, self.reference.law)
        )


def measure(
    run: Callable[[Any], Decoded], outcomes: int, budget: Budget, quota: int | None = None
) -> Measured:
    """The law of a decoder: exact if its estimated branches are within the budget, else sampled.

    Args:
        run: the decoder; all its randomness comes from the sampler that it gets.
        outcomes: how many responses are possible.
        budget: of branches and samples.
        quota: of `ChoiceSampler`.
    """
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)
    forwards = 0.0
    count = 0
    exact = oracle.count_branches(run, PROBES, budget.seed, quota) <= budget.branches
    sampler = Sampler(budget.seed)
    # A generator, so that nothing is sampled where the branches are walked.
    sampled = ((run(sampler), 1 / budget.samples) for _ in range(budget.samples))
    for decoded, probability in oracle.branches(run, quota) if exact else sampled:
        law[tuple(decoded.tokens.tolist())] += probability
        forwards += probability * decoded.trace.forwards
        count += 1
    return Measured(dict(law), forwards, outcomes, **{"branches" if exact else "samples": count})


def broken_residual() -> AbstractContextManager[object]:
    """FeF with a wrong residual: a rejected draft is replaced by a draw from the target itself."""
    return mock.patch("model_wrappers.sampling.residual", lambda target_V, draft_V: target_V)


def cases(table: torch.Tensor, unlike: TableBackbone, schedule: Path) -> list[Case]:
    """Cases of every decoder that is defined at temperature 1.

    Args:
        table: the joint.
        unlike: a draft model with another joint, so that drafts are rejected.
        schedule: the path where DDOSP's schedule for this table is written.
    """
    length = table.dim()
    listed = llada_cases(length)
    quotas = optimal_schedule(oracle.information_profile(table), max(1, length // 2))
    write_atomically(schedule, json.dumps({"quotas": [quotas]}) + "\n")
    options = {"steps": len(quotas), "schedule": str(schedule)}
    listed += [
        Case("DDOSP", f"{'+'.join(map(str, quotas))} a step", "ddosp", options, "differ"),
        Case("DCD", "one pass a step", "dcd"),
        Case("DCD", "sequential", "dcd", {"sequential": True}),
        Case("threshold", "tau 0.9", "threshold"),
        Case("factor", "f 1.0", "factor"),
        Case("entropy", "gamma 0.1", "entropy"),
        Case("entropy", "gamma 1.0", "entropy", {"gamma": 1.0}),
    ]
    known = {case.method for case in listed} | {"fef"}
    for method, decoder in METHODS.items():
        # Whatever else is registered is audited with its defaults; but a table has no attention,
        # whose keys and values some decoders extend.
        if method not in known and not decoder.greedy_only and not decoder.needs_extend:
            listed.append(Case(method, "defaults", method))
    return listed + fef_cases(length, unlike)


def llada_cases(length: int) -> list[Case]:
    """LLaDA at one, two and all tokens a step: in random order it is exact at one a step, and in no
    order at several, which are drawn independently."""
    at_random = []
    by_confidence = []
    for quota in sorted({1, 2, length}):
        # LLaDA's steps must divide the length.
        if length % quota:
            continue
        shown = f"{quota} a step"
        must = "differ" if quota > 1 else ""
        options = {"steps": length // quota, "remasking": "random"}
        at_random.append(
            Case("LLaDA, random order", shown, "llada", options, must or "equal", quota=quota)
        )
        options = {"steps": length // quota, "remasking": "low_confidence"}
        by_confidence.append(Case("LLaDA, low confidence", shown, "llada", options, must))
    return at_random + by_confidence


def fef_cases(length: int, unlike: TableBackbone) -> list[Case]:
    """FeF-DLLM with several windows, drafts and acceptance rules: exact at one diffusion step, also
    with top_p; at more steps all must have one law. The last case is wrong on purpose."""
    windows = sorted({min(window, length) for window in (1, 2, 4)})
    other_draft = {"window": 2, "draft": unlike}
    variants: list[tuple[str, dict[str, Any]]] = [("no speculation", {"speculative": False})]
    variants += [(f"window {window}", {"window": window}) for window in windows]
    variants += [
        ("window 2, other draft", other_draft),
        ("window 2, other draft, accepted jointly", other_draft | {"acceptance": "block"}),
    ]
    settings: list[tuple[str, dict[str, Any], str]] = []
    for steps in DIFFUSION_STEPS:
        if steps == 1:
            settings.append(("FeF, 1 step", {"steps": 1}, "equal"))
        else:
            settings.append((f"FeF, {steps} steps", {"steps": steps}, ""))
    truncated = {"steps": 1, "top_p": TRUNCATED.top_p}
    settings.append((f"FeF, top_p {TRUNCATED.top_p}", truncated, "equal"))
    listed = []
    for label, options, must in settings:
        # The variant without speculation comes first, so that it is the reference of the others.
        for shown, more in variants:
            listed.append(Case(label, shown, "fef", options | more, must, label))
    broken = "self-check, 1 step, window 2, other draft"
    options = {"steps": 1} | other_draft
    return [*listed, Case("FeF, broken residual", broken, "fef", options, "broken")]


def audit_law(
    tokens: int,
    positions: int,
    budget: Budget,
    folder: Path,
    progress: Callable[[list[Case]], Any] = iter,
) -> list[Result]:
    """The law of every case on a random joint table, decoded from nothing but masks.

    Args:
        tokens: R, real tokens.
        positions: d, the length of a response.
        budget: of branches and samples; its seed is the table's too.
        folder: where DDOSP's schedule is written.
        progress: wraps the list of cases.
    """
    table = oracle.random_table(tokens, positions, budget.seed)
    joint = oracle.table_law(table)
    truncated = oracle.table_law(oracle.truncated_table(table, TRUNCATED))
    outcomes = table.numel()
    backbone = TableBackbone(table)
    unlike = TableBackbone(oracle.random_table(tokens, positions, budget.seed + 1))
    references: dict[str, Measured] = {}
    results = []
    for case in progress(cases(table, unlike, folder / "schedule.json")):
        # The default binds this turn's case: a closure would see the last one.
        def run(sampler: Sampler, case: Case = case) -> Decoded:
            return decode(
                backbone,
                PROMPT,
                case.method,
                gen_length=positions,
                temperature=1.0,
                sampler=sampler,
                **case.options,
            )

        with broken_residual() if case.must == "broken" else nullcontext():
            measured = measure(run, outcomes, budget, case.quota)
        reference = references.setdefault(case.reference, measured) if case.reference else None
        expected = truncated if "top_p" in case.options else joint
        # A sample misses outcomes, whose KL would be infinite whatever the decoder.
        divergence = math.nan if measured.samples else oracle.kl(expected, measured.law)
        distance = total_variation(measured.law, expected)
        results.append(
            Result(
                case, measured, distance, divergence, None if reference is measured else reference
            )
        )
    return results


def law_table(results: list[Result]) -> pd.DataFrame:
    """One row per case: whether its law is exact or sampled, its expected forward passes, and its
    distances."""
    return pd.DataFrame(
        {
            "decoder": result.case.decoder,
            "options": result.case.shown,
            "law": "sampled" if result.measured.samples else "exact",
            "runs": result.measured.samples or result.measured.branches,
            "forwards": result.measured.forwards,
            "TV": result.distance,
            # An exact law has the bound 0, which the table leaves empty.
            "95% bound": result.measured.bound() or math.nan,
            "KL": result.divergence,
            "TV to no speculation": (
                math.nan if result.to_reference is None else result.to_reference
            ),
        }
        for result in results
    )


def law_failures(results: list[Result]) -> list[str]:
    """The failed checks, one line each; a sampled law fails only beyond its sampling bound."""
    # Bonferroni: all bounds together hold with probability 1 - LEVEL.
    level = LEVEL / len(results)
    failures = []
    for result in results:
        name = f"{result.case.decoder} ({result.case.shown})"
        for failure in (_joint_failure(result, level), _reference_failure(result, level)):
            if failure:
                failures.append(f"{name} {failure}")
    return failures


def _joint_failure(result: Result, level: float) -> str:
    """How a law fails the claim about it and the joint; "" if it does not."""
    bound = result.measured.bound(level)
    must = result.case.must
    distance = f"total variation {result.distance:.3g} to the joint"
    if must == "equal" and result.distance > EXACT + bound:
        return f"is not exact: {distance}"
    if must == "differ" and result.distance <= EXACT and not bound:
        return f"looks exact: {distance}"
    if must == "broken" and result.distance <= SEEN + bound:
        hint = "; raise --samples" if bound else ""
        return f"is not caught: {distance}{hint}"
    return ""


def _reference_failure(result: Result, level: float) -> str:
    """How a law differs from that of the first case in its group; "" if it does not."""
    if result.reference is None or result.to_reference is None:
        return ""
    bound = result.measured.bound(level) + result.reference.bound(level)
    if result.to_reference <= EXACT + bound:
        return ""
    return f"has another law than without speculation: total variation {result.to_reference:.3g}"


def draw_laws(results: list[Result], folder: Path) -> None:
    """error.png and .pdf: total variation against expected forward passes, a marker per decoder,
    bars where sampled."""
    figure = Figure(figsize=(6.5, 3.8))
    axes = figure.subplots()
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    for number, decoder in enumerate(dict.fromkeys(result.case.decoder for result in results)):
        shown = [result for result in results if result.case.decoder == decoder]
        distances = [result.distance for result in shown]
        bounds = [result.measured.bound() for result in shown]
        axes.errorbar(
            [result.measured.forwards for result in shown],
            distances,
            # no bar reaches below 0
            yerr=[[min(pair) for pair in zip(bounds, distances, strict=True)], bounds],
            fmt="os^Dv<>pP*X"[number % 11],
            color=colormaps["tab20"](2 * number % 20 + number // 10),
            # open, because markers of decoders with the same law overlap
            fillstyle="none",
            elinewidth=0.8,
            label=decoder,
        )
    axes.set(xlabel="expected forward passes", ylabel="total variation to the joint")
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    for kind in ("png", "pdf"):
        figure.savefig(folder / f"error.{kind}", dpi=150, bbox_inches="tight")
