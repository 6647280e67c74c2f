"""Decoders from outside may do what they like, but for the weights; random states are an item's,
and put back."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_lines import resolved_run
from fakes import tiny_llada

from harness.errors import UserError
from harness.runs.loading import load
from harness.runs.pool import Chunk
from harness.runs.problems import SuiteJob
from harness.runs.respond import decoded
from harness.runs.responses import Response, add_unlogged
from harness.runs.selection import methods_named
from harness.runs.worker import Worker
from model_wrappers import Backbone, Decoded
from model_wrappers.decoders import Decoder
from model_wrappers.opencompass_model import DiffusionModel
from model_wrappers.options import Options
from model_wrappers.request import Request
from model_wrappers.trace import EventLog

Step = Callable[[Request], object]


@pytest.fixture
def backbone() -> Iterator[Backbone]:
    """A model that no other test has, and the environment as it was."""
    before = dict(os.environ)
    yield tiny_llada(seed=5)
    os.environ.clear()
    os.environ.update(before)


def filling(step: Step) -> Callable[[Request, Options], None]:
    """A decoder that fills the response at once, after a step of its own."""

    def decoder(request: Request, options: Options) -> None:
        masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
        logits_NV = request.backbone.logits(request.x_1L, positions=masked)[0]
        tokens = step(request)
        request.commit(
            masked,
            tokens if isinstance(tokens, torch.Tensor) else logits_NV.argmax(-1),
            None,
            "filled",
        )

    return decoder


def job_of(step: Step, backbone: Backbone) -> SuiteJob:
    model = DiffusionModel(backbone, Decoder(filling(step), "mine"), {}, 4)
    return SuiteJob(
        "gsm8k", [torch.tensor([3, 4]), torch.tensor([5, 6])], ["", ""], None, {"mine": model}
    )


def respond(step: Step, backbone: Backbone, seed: int = 0, log: EventLog | None = None) -> Decoded:
    job = job_of(step, backbone)
    return decoded(job, "mine", 1, job.prompts[1], seed, log)


def draw(request: Request) -> torch.Tensor:
    numbers = torch.randint(5, 12, (request.length,))
    return numbers + random.randint(0, 9) + int(np.random.randint(9))


def states() -> tuple[bytes, Any, bytes]:
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),
    )  # type: ignore


def test_random_states_are_those_of_the_item_and_are_put_back(backbone: Backbone) -> None:
    before = states()
    first = respond(draw, backbone, 1).tokens
    assert states() == before
    torch.rand(5)
    random.random()
    np.random.rand()
    assert torch.equal(first, respond(draw, backbone, 1).tokens)
    assert not torch.equal(first, respond(draw, backbone, 2).tokens)


def test_changed_weights_are_named(backbone: Backbone) -> None:
    def scale(request: Request) -> None:
        with torch.inference_mode():
            next(backbone.model.parameters()).mul_(0.2)

    with pytest.raises(
        UserError, match="mine on gsm8k, item 1: the decoder changed the weights of"
    ):
        respond(scale, backbone)


KEPT: dict[str, int] = {}


def keep(request: Request) -> None:
    os.environ["KEPT"] = "1"
    KEPT["calls"] = KEPT.get("calls", 0) + 1


@pytest.mark.parametrize("change", ["environment and module", "config", "another model"])
def test_environment_config_state_and_other_models_are_the_decoders_own_affair(
    change: str, backbone: Backbone
) -> None:
    other = tiny_llada(seed=6)
    steps: dict[str, Step] = {
        "environment and module": keep,
        "config": lambda request: setattr(backbone.model.config, "my_counter", 3),
        "another model": lambda request: len(other.logits(torch.ones(1, 4, dtype=torch.long))),
    }
    assert respond(steps[change], backbone).trace.forwards >= 1


def test_a_decoder_need_not_call_the_model(backbone: Backbone) -> None:
    def guess(request: Request, options: Options) -> None:
        request.commit(list(range(request.start, request.x_1L.shape[1])), 7, None, "filled")

    model = DiffusionModel(backbone, Decoder(guess, "guess"), {}, 4)
    job = SuiteJob("gsm8k", [torch.tensor([3, 4])], [""], None, {"guess": model})
    assert decoded(job, "guess", 0, job.prompts[0], 0).trace.forwards == 0


def test_what_is_written_in_place_is_in_the_trace(backbone: Backbone) -> None:
    def write(request: Request, options: Options) -> None:
        request.commit([request.start], 7, None, "unmasked")
        request.x_1L[0, request.start :] = request.backbone.logits(request.x_1L)[
            0, request.start :
        ].argmax(-1)

    model, log = DiffusionModel(backbone, Decoder(write, "write"), {}, 4), EventLog()
    job = SuiteJob("gsm8k", [torch.tensor([3, 4])], [""], None, {"write": model})
    tokens = decoded(job, "write", 0, job.prompts[0], 0, log).tokens
    add_unlogged(log, tokens, backbone.mask_id)
    last = dict(zip(log.position, log.token, strict=True))
    assert [last[at] for at in range(4)] == tokens.tolist()


def test_functions_of_one_name_are_numbered() -> None:
    lambdas: list[Any] = [filling(keep), filling(draw), filling(draw)]
    assert list(methods_named(lambdas)) == ["decoder", "decoder-2", "decoder-3"]
    assert [preset.method.name for preset in methods_named(lambdas).values()] == [
        "decoder",
        "decoder-2",
        "decoder-3",
    ]  # type: ignore
    with pytest.raises(UserError, match="twice: decoder"):
        methods_named([lambdas[0], lambdas[0]])


COUNTING = """
from model_wrappers import register
from model_wrappers.options import Options

UNDER_WAY = []


@register("counting")
def counting(request, options: Options):
    UNDER_WAY.append(1)
    assert len(UNDER_WAY) == 1
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.commit(masked, request.backbone.logits(request.x_1L, positions=masked)[0].argmax(-1), None, "filled")
    UNDER_WAY.pop()
"""


def test_one_from_outside_decodes_alone_and_changes_nothing_for_the_others(
    registries: None, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(COUNTING)
    line = ["--suite", "lists", "--limit", "101", "--untimed", "--methods"]
    methods = f"threshold; {tmp_path}/mine.py:counting"
    run = resolved_run(*line, methods)
    assert run.config.batch == resolved_run(*line, "threshold").config.batch == 16
    assert run.one_at_a_time == {"counting"}
    assert resolved_run(*line, methods, "--batch", "4").one_at_a_time == frozenset()
    worker = Worker(run, tmp_path, *load(run, tmp_path))
    done = [*worker.decode(Chunk("lists", {"threshold": [0, 1, 2], "counting": [0, 1, 2]}))]
    assert [each.item["method"] for each in done if isinstance(each, Response)].count(
        "counting"
    ) == 3
