"""What two-stream verification must equal: one query at a time without a cache, and one position
after the other."""

from collections import defaultdict

import torch
from fakes import logits_under

from harness.audit.oracle import Law
from model_wrappers import Backbone
from model_wrappers.sampling import token_probs


def query_logits(
    backbone: Backbone, row: list[int], segment: list[int], clean: list[int]
) -> torch.Tensor:
    """Logits (V,) at position len(clean) of the segment, without a cache: context, the clean
    tokens, one query.

    row: the context, the whole segment corrupted. clean: the segment's tokens before the position.
    Where logits come from the token before, the query stands behind a copy of that token, which
    sees what the query sees.
    """
    length, m = len(row), len(clean)
    at, lead = segment[m], -backbone.reads_at
    filled = list(row)
    for position, token in zip(segment, clean, strict=False):
        filled[position] = token
    behind = list(range(at - lead, at + 1))
    ids = [*row, *clean, *(filled[position] for position in behind)]
    total = len(ids)
    visible = torch.zeros(total, total, dtype=torch.bool)
    visible[:length, :length] = True
    # clean token n: the context but for the segment up to it, and the clean tokens up to it
    for n in range(m):
        visible[length + n, :length] = True
        visible[length + n, segment[: n + 1]] = False
        visible[length + n, length : length + n + 1] = True
    for query in range(length + m, total):
        visible[query] = True
        visible[query, segment[:m]] = False
        visible[query, behind] = False  # at its positions it sees what stands behind alone
        for n in range(m):
            visible[query, length + n] = segment[n] not in behind
    return logits_under(backbone, ids, [*range(length), *segment[:m], *behind], visible)[-1 - lead]


def sequential_law(
    backbone: Backbone,
    prompt: list[int],
    length: int,
    temperature: float,
    steps: int = 1,
    anchor: int | None = None,
    refresh_below: float = 0.0,
    order: str = "left-to-right",
) -> Law:
    """The response's law when positions are filled one by one under the two-stream mask; half
    re-masked in between.

    refresh_below: a position whose best token has less than this probability begins a segment, if
    it does not already. order: by "confidence", a segment begins with the position whose best token
    is the likeliest when it begins, etc.
    """
    outcome: defaultdict[tuple[int, ...], float] = defaultdict(float)

    def fill(
        row: list[int], left: list[int], steps_left: int, sure: dict[int, float], probability: float
    ) -> None:
        if not left:
            if steps_left:
                ranked = sorted(sure, key=lambda position: (sure[position], position))[
                    : length // 2
                ]
                again = [
                    backbone.mask_id if position in ranked else token
                    for position, token in enumerate(row)
                ]
                fill(again, sorted(ranked), steps_left - 1, sure, probability)
            else:
                outcome[tuple(row[len(prompt) :])] += probability
            return
        segment = left[:anchor]
        if order == "confidence":
            segment = sorted(segment, key=lambda position: -best(row, position))
        grow(row, segment, [], left, steps_left, sure, probability)

    def best(row: list[int], position: int) -> float:
        logits_1V = query_logits(backbone, row, [position], [])[None]
        return float(token_probs(logits_1V, 1.0, exclude=backbone.mask_id).amax())

    def grow(
        row: list[int],
        segment: list[int],
        clean: list[int],
        left: list[int],
        steps_left: int,
        sure: dict[int, float],
        probability: float,
    ) -> None:
        if len(clean) == len(segment):
            filled = list(row)
            for position, token in zip(segment, clean, strict=True):
                filled[position] = token
            rest = [position for position in left if position not in segment]
            fill(filled, rest, steps_left, sure, probability)
            return
        logits_1V = query_logits(backbone, row, segment, clean)[None]
        confidence_V = token_probs(logits_1V, 1.0, exclude=backbone.mask_id)[0].tolist()
        if clean and max(confidence_V) < refresh_below:
            grow(row, segment[: len(clean)], clean, left, steps_left, sure, probability)
            return
        for token, chance in enumerate(
            token_probs(logits_1V, temperature, exclude=backbone.mask_id)[0].tolist()
        ):
            if chance:
                latest = sure | {segment[len(clean)]: confidence_V[token]}
                grow(row, segment, [*clean, token], left, steps_left, latest, probability * chance)

    start = len(prompt)
    everything = list(range(start, start + length))
    fill([*prompt, *[backbone.mask_id] * length], everything, steps - 1, {}, 1.0)
    return dict(outcome)
