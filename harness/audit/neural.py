"""The neural and streams sections of the audit: how far a model's distributions are from those that
they stand for, along prompts and responses.

neural: how far the next w tokens, drawn at once, are from the chain law. q is the product of their
marginals given a fully masked response, p the law of one token after the other, from which FeF-DLLM
samples at one diffusion step; temperature 1, the mask excluded. Their total variation is E_p (1 - q
/ p)_+, estimated from chain samples.

streams: how far the target of two-stream verification is from the paper's, along a reference
response. The paper's target sees the sequence with all tokens before a position filled in. The
two-stream target sees a context, computed anew every `anchor` positions or in doubt, and the clean
tokens since.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from harness.errors import UserError, explained
from harness.stats import hoeffding, mean_interval
from harness.suites.registry import Example, encode, generated_exchanges, problems, suite_named
from harness.train.data import NANO_SUITES
from model_wrappers import Backbone
from model_wrappers.backbones.blocks import ledgers
from model_wrappers.backbones.protocol import BackboneLike, Ledger
from model_wrappers.chat import encode_question
from model_wrappers.decoders.fef import FeFOptions, FullVerifier, Proposal, TwoStreamVerifier
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler, in_doubt, probs_at, token_probs
from model_wrappers.transfers import to_host

GEN_LENGTH = 64  # of the masked response after a prompt of a file
NOTE = """\
TV between the next w response tokens drawn at once from their marginals, given a fully masked
response, and drawn one after the other, at temperature 1. The bound (Hoeffding) is for the mean
over these very prompts."""


@dataclass(frozen=True)
class Prompts:
    """Encoded prompts of one kind, and the length of the masked response after each."""

    name: str
    ids: list[list[int]]
    gen_length: int


def prompts_of(
    backbone: Backbone, file: Path | None, count: int, gen_length: int | None
) -> list[Prompts]:
    """Prompts as user turns, of a file or of generated problems.

    Args:
        backbone: has the tokenizer.
        file: JSON lines of {"prompt": text}; None for generated dev problems of NANO_SUITES.
        count: how many problems of each suite, without a file.
        gen_length: tokens of the masked response; None: the suite's, or GEN_LENGTH for a file.

    Raises:
        UserError: a file that cannot be used; the message has the line.
    """
    tokenizer = backbone.text_tokenizer()
    if file is None:
        groups = []
        for suite in NANO_SUITES:
            ids = [
                encode_question(tokenizer, problem.question)
                for problem in problems(suite, "dev", count)
            ]
            groups.append(Prompts(suite, ids, gen_length or suite_named(suite).generated.length))
        return groups
    with explained(f"{file} cannot be read", OSError, ValueError):
        # Not splitlines, which also cuts at U+2028 and others that a JSON text may contain.
        lines = file.read_text(encoding="utf-8").split("\n")
    ids = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        # No JSON, no object, or no such key: one message is enough for all three.
        with suppress(ValueError, LookupError, TypeError):
            prompt = json.loads(line)["prompt"]
            if isinstance(prompt, str) and prompt.strip():
                ids.append(encode_question(tokenizer, prompt))
                continue
        raise UserError(f'{file}, line {number}: not a JSON object with a "prompt" of text')
    if not ids:
        raise UserError(f'{file} holds no prompt; write one {{"prompt": "..."}} a line')
    return [Prompts(file.stem, ids, gen_length or GEN_LENGTH)]


@torch.inference_mode()
def chain_terms(
    backbone: BackboneLike,
    prompt: list[int],
    gen_length: int,
    span: int,
    chains: int,
    sampler: Sampler,
) -> torch.Tensor:
    """(1 - q / p)_+ of the first w tokens of each chain sample, for w = 1 .. span.

    Args:
        backbone: a block model sees only what its blocks allow.
        prompt: ids.
        gen_length: masks after the prompt.
        span: the largest w.
        chains: samples.
        sampler: draws them.

    Returns:
        float64 (chains, span), in [0, 1]; the mean over chains is an unbiased estimate of the total
        variation.
    """
    start = len(prompt)
    row_L = torch.tensor(prompt + [backbone.mask_id] * gen_length)
    model, _ = ledgers(backbone, backbone, start, getattr(backbone, "blocks", None))
    positions_W = torch.arange(start, start + span)
    marginal_WV = token_probs(
        model.logits(row_L[None], positions=positions_W)[0], 1.0, exclude=backbone.mask_id
    )
    rows_CL = row_L.repeat(chains, 1)
    # log q / p of the tokens so far
    ratio_C = torch.zeros(chains, dtype=torch.float64)
    terms = []
    for position, marginal_V in zip(positions_W.tolist(), marginal_WV, strict=True):
        # Chains often agree in their first tokens: the model sees each sequence once.
        distinct_DL, inverse_C = rows_CL.unique(dim=0, return_inverse=True)
        logits_DV = model.logits(distinct_DL, positions=torch.tensor([position]))[:, 0]
        chain_CV = token_probs(logits_DV, 1.0, exclude=backbone.mask_id)[inverse_C]
        token_C = sampler.tokens(chain_CV)
        token_C, marginal_C, chain_C = to_host(
            token_C, marginal_V[token_C], probs_at(chain_CV, token_C)
        )
        ratio_C += marginal_C.log() - chain_C.log()
        terms.append((1 - ratio_C.exp()).clamp_min(0))
        rows_CL[:, position] = token_C
    return torch.stack(terms, 1)


def check_fit(backbone: BackboneLike, groups: list[Prompts], span: int) -> None:
    """Check that the span fits into every response, and every prompt and response into the model.

    Raises:
        UserError: it does not.
    """
    limit = getattr(backbone, "max_length", None)
    for group in groups:
        longest = max(map(len, group.ids)) + group.gen_length
        wrong = ""
        if span > group.gen_length:
            wrong = (
                f"--span {span} exceeds the response of {group.gen_length} tokens of {group.name}"
            )
        elif limit is not None and longest > limit:
            wrong = (
                f"{group.name}: prompt and response of {longest} tokens exceed the model's {limit}"
            )
        if wrong:
            raise UserError(wrong)


def audit_neural(
    backbone: BackboneLike,
    groups: list[Prompts],
    span: int,
    chains: int,
    seed: int,
    level: float,
    progress: Callable[[list[tuple[Prompts, list[int]]]], Any] = iter,
) -> pd.DataFrame:
    """Total variation between the product of the marginals and the chain law.

    Returns:
        A row per w = 1 .. span and a column per group, with several groups also `all`. The last row
        is Hoeffding's bound at `level` for the mean over these very prompts, given which the
        samples are independent.
    """
    sampler = Sampler(seed)
    terms: dict[str, list[torch.Tensor]] = {group.name: [] for group in groups}
    pairs = [(group, prompt) for group in groups for prompt in group.ids]
    for group, prompt in progress(pairs):
        terms[group.name].append(
            chain_terms(backbone, prompt, group.gen_length, span, chains, sampler)
        )
    if len(groups) > 1:
        terms["all"] = [term for group in groups for term in terms[group.name]]
    columns = {name: [*torch.cat(parts).mean(0).tolist()] for name, parts in terms.items()}
    bounds = {name: [hoeffding(chains * len(parts), level)] for name, parts in terms.items()}
    index = pd.Index([*map(str, range(1, span + 1)), f"{1 - level:.0%} bound"], name="w")
    return pd.DataFrame({name: columns[name] + bounds[name] for name in columns}, index=index)


def draw_neural(table: pd.DataFrame, folder: Path) -> None:
    """neural.png and .pdf: total variation against w, a line per column, the last row being the
    bound."""
    figure = Figure(figsize=(4.5, 3.2))
    axes = figure.subplots()
    # The line over all groups stands out; it is there only beside others.
    for name in table:
        style: dict[str, Any] = {"color": "black", "linewidth": 2} if name == "all" else {}
        axes.plot(range(1, len(table)), table[name].iloc[:-1], label=name, **style)
    axes.set(xlabel="tokens drawn at once, w", ylabel="total variation to the chain law")
    axes.set(xticks=range(1, len(table), 3), ylim=(-0.02, 1.02))
    axes.legend(frameon=False, fontsize="small")
    for kind in ("png", "pdf"):
        figure.savefig(folder / f"neural.{kind}", dpi=150, bbox_inches="tight")


ANCHORS: tuple[int | None, ...] = (1, 8, 16, 24, 32, None)
FRESH_BELOW = (0.5, 0.7, 0.9)
STREAM_SUITES = ("gsm8k", "math", "humaneval", "mbpp")
STREAMS_NOTE = """\
TV between the target of two-stream verification and the paper's at the same position, given the
same tokens before it: mean over the positions of reference responses (dev problems), with a 95%
interval over responses; and how often both have the same most likely token. anchor: positions per
context pass; whole: one pass for all, and another one where the best token has a probability below
`fresh below`. contexts: context passes a response."""


@dataclass(frozen=True)
class Contexts:
    """When a context is computed: every `anchor` positions (None: once), and anew where the most
    likely token has a probability below `fresh_below` (None: never)."""

    anchor: int | None = None
    fresh_below: float | None = None


CONTEXTS = (
    *(Contexts(anchor) for anchor in ANCHORS),
    *(Contexts(fresh_below=c) for c in FRESH_BELOW),
)


@torch.inference_mode()
def probs_along(
    backbone: Backbone, example: Example, contexts: Contexts | None
) -> tuple[torch.Tensor, int]:
    """The target's probs at each position of a reference response, given the tokens before it.

    Args:
        backbone: the model.
        example: ids of prompt and response.
        contexts: of two-stream verification; None for the paper's target.

    Returns:
        float64 (G, V) for a response of G tokens, and the number of context passes.
    """
    prompt, response = example
    ledger = Ledger(backbone)
    start = len(prompt)
    x_1L = torch.tensor([prompt + [backbone.mask_id] * len(response)])
    request = Request(ledger, ledger, x_1L, start, len(response), 1.0, Sampler(0))
    verifier = (FullVerifier if contexts is None else TwoStreamVerifier)(
        request, FeFOptions(window=len(response))
    )
    # The response itself is proposed, and every token accepted, as if the drafts were right.
    width = (contexts.anchor if contexts is not None else None) or len(response)
    parts = list[torch.Tensor]()
    first = 0
    passes = 0
    while first < len(response):
        tokens = response[first : first + width]
        segment = list(range(start + first, start + first + len(tokens)))
        verifier.segment(segment)
        logits_WV = verifier.verify(segment, Proposal(tokens)).logits_WV
        probs_WV = token_probs(logits_WV, 1.0, exclude=backbone.mask_id)
        if contexts is not None:
            # From the first doubtful position on the next context decides.
            doubtful_W = in_doubt(probs_WV.amax(1), contexts.fresh_below, fresh=True)
            probs_WV = probs_WV[: int((~doubtful_W).cumprod(0).sum())]
        count = len(probs_WV)
        request.commit(segment[:count], tokens[:count], None, "drawn")
        parts.append(probs_WV)
        first = first + count
        passes = passes + 1
    return torch.cat(parts), passes


def distances(
    backbone: Backbone,
    examples: Sequence[Example],
    targets: Sequence[torch.Tensor],
    contexts: Contexts,
) -> pd.DataFrame:
    """A row per example: the mean total variation to the paper's `targets`, the share of positions
    with the same most likely token, the positions, and the context passes."""
    rows = []
    for example, target in zip(examples, targets, strict=True):
        other, passes = probs_along(backbone, example, contexts)
        apart = (target - other).abs().sum(1) / 2
        agree = float((target.argmax(1) == other.argmax(1)).double().mean())
        rows.append(
            {"tv": float(apart.mean()), "agree": agree, "positions": len(apart), "contexts": passes}
        )
    return pd.DataFrame(rows)


def audit_streams(
    backbones: dict[str, Backbone],
    count: int,
    progress: Callable[[list[tuple[str, Contexts]]], Any] = iter,
) -> pd.DataFrame:
    """A row per model and element of CONTEXTS, on `count` dev problems of each suite; intervals are
    over responses."""
    rows = []
    examples: dict[str, list[Example]] = {name: [] for name in backbones}
    for name, suite in product(backbones, STREAM_SUITES):
        exchanges = generated_exchanges(suite, count, "dev")
        examples[name] += encode(backbones[name], exchanges, suite_named(suite).generated.length)
    targets: dict[str, list[torch.Tensor]] = {}
    for name, contexts in progress([*product(backbones, CONTEXTS)]):
        # The paper's targets are expensive, a row of the model for every position, and the same for
        # all contexts.
        if name not in targets:
            targets[name] = [
                probs_along(backbones[name], example, None)[0] for example in examples[name]
            ]
        measured = distances(backbones[name], examples[name], targets[name], contexts)
        low, high = mean_interval(measured["tv"].to_numpy())
        rows.append(
            {
                "model": name,
                "anchor": "whole" if contexts.anchor is None else str(contexts.anchor),
                "fresh below": math.nan if contexts.fresh_below is None else contexts.fresh_below,
                "contexts": measured["contexts"].mean(),
                # the name that committed records have for positions
                "places": int(measured["positions"].sum()),
                "TV": measured["tv"].mean(),
                "TV low": low,
                "TV high": high,
                "argmax agreement %": 100 * measured["agree"].mean(),
            }
        )
    return pd.DataFrame(rows)
