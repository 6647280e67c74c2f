"""Ties: responses that differ from golden ones because another class of platform rounds otherwise, and proof of it.

Two processors' logits differ by a few units of rounding. Where two candidates are closer than that, either may win, and
no code has changed. The proof: decoded again with logits moved at random by no more than rounding moves them, the item
is the golden one, in its tokens, its text and its costs. An extra forward or a token that was no tie is never had so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from harness.errors import UserError
from harness.records.schema import RunConfig
from harness.records.store import Run
from harness.regression.golden import RESPONSE, Key
from harness.runs.loading import load
from harness.runs.resolve import recorded

if TYPE_CHECKING:
    from harness.runs.respond import SuiteJob
    from model_wrappers import Backbone

# Of a logit in float32, in eps of the largest one. From AVX512 to AVX2 nano's logits move by up to 7 of these, to no
# vector instructions by up to 12: a small multiple of what was measured.
ROUNDING = 32
TRIES = 16  # each decides a tie by chance, so that of two ties in one item both are met at odds of 99%
MOST = 10  # items; among 1,000 responses on two processors there was no tie, so that more are a change
Decode = Callable[[Key, int | None], dict[str, Any]]  # an item's record; with a number, under logits moved by it


def tied_items(golden: Run, run: Run, keys: Sequence[Key]) -> tuple[list[Key], list[str]]:
    """Those of the items that differ by a tie alone, up to one that does not, and a sentence on why others are not."""
    if not keys:
        return [], []
    config = run.config
    if len(keys) > MOST:
        return [], [f"no ties are looked for: {len(keys)} items differ, and ties are rare (at most {MOST})"]
    if config.dtype != "float32" or config.compile or config.graphs:
        return [], ["no ties are looked for: they can be proven of eager runs in float32 alone"]
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        try:
            decode = _decoder(run, keys, Path(scratch))
        except UserError as error:
            return [], [f"no ties can be proven: {error}"]
        return proven(golden, run, keys, decode)


def proven(golden: Run, run: Run, keys: Sequence[Key], decode: Decode) -> tuple[list[Key], list[str]]:
    """The items that `decode` proves to differ by a tie, up to one that it does not, and a sentence on that one."""
    wanted, recorded = rows_of(golden), rows_of(run)
    ties: list[Key] = []
    for key in keys:
        name = " ".join(map(str, key))
        if _same_response(recorded[key], wanted[key]):
            return ties, [f"{name} is no tie: the response is the golden one, and its verdict is not"]
        if not _same(decode(key, None), recorded[key]):
            return ties, [f"{name} is no proven tie: decoded again, it is not what the run recorded"]
        if not any(_same(decode(key, number), wanted[key]) for number in range(TRIES)):
            return ties, [f"{name} is no tie: no rounding of the logits gives the golden response ({TRIES} tries)"]
        ties.append(key)
    return ties, []


def rows_of(run: Run) -> dict[Key, dict[Any, Any]]:
    """The items of a run by their keys."""
    rows: list[dict[Any, Any]] = run.items.to_dict("records")
    return {(row["method"], row["suite"], row["item"]): row for row in rows}


def _same(record: dict[str, Any], row: dict[Any, Any]) -> bool:
    """Whether a response just decoded is a recorded one, also in its verdict where it is judged while decoding."""
    return _same_response(record, row) and record.get("correct") in (None, row.get("correct"))


def _same_response(record: dict[Any, Any], row: dict[Any, Any]) -> bool:
    return all(record.get(measure) == row.get(measure) for measure in RESPONSE)


def loaded_again(
    run: Run, keys: Sequence[Key], scratch: Path
) -> tuple[RunConfig, dict[str, SuiteJob], dict[str, Backbone]]:
    """What of a run's configuration these items need, and the suites and models of that, ready to decode.

    Raises UserError where the run does not name its models, or for what cannot be loaded.
    """
    methods, suites = ({key[place] for key in keys} for place in (0, 1))
    config = replace(
        run.config,
        methods={name: own for name, own in run.config.methods.items() if name in methods},
        suites={suite: own for suite, own in run.config.suites.items() if suite in suites},
    )
    roles = {role for method in config.methods.values() for role in (method.role, method.draft_role) if role}
    if not roles <= set(config.models):
        raise UserError("the run does not name its models")
    jobs, backbones = load(recorded(config, run.meta.data), scratch)
    return config, {job.suite: job for job in jobs}, backbones


def _decoder(run: Run, keys: Sequence[Key], scratch: Path) -> Decode:
    config, jobs, backbones = loaded_again(run, keys, scratch)
    from harness.runs.respond import decode_item, item_seed  # with OpenCompass, which takes seconds to import

    def decode(key: Key, number: int | None) -> dict[str, Any]:
        method, suite, item = key
        with ExitStack() as stack:
            if number is not None:
                stack.enter_context(moved(list(backbones.values()), number))
            return decode_item(jobs[suite], method, item, item_seed(config.seed or 0, suite, item))[0]

    return decode


@contextmanager
def moved(backbones: Sequence[Backbone], seed: int) -> Iterator[None]:
    """Inside, every logit of the models is moved at random, by at most ROUNDING eps of the largest."""
    random = torch.Generator().manual_seed(seed)

    def move(module: torch.nn.Module, given: Any, logits: torch.Tensor) -> torch.Tensor:
        noise = (2 * torch.rand(logits.shape, generator=random) - 1).to(logits)
        return logits + ROUNDING * torch.finfo(logits.dtype).eps * logits.abs().max() * noise

    with ExitStack() as stack:
        for backbone in backbones:
            stack.callback(backbone.model.lm_head.register_forward_hook(move).remove)
        yield
