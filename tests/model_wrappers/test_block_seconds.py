"""Seconds until each block stood: noted where a decoder goes from block to block, and nowhere else."""

from __future__ import annotations

import time

import pytest
import torch
from families import tiny

from harness.runs.responses import cost_and_tokens
from model_wrappers import decode
from model_wrappers.options import Options
from model_wrappers.request import Request

PROMPT = torch.tensor([5, 9, 2])


class Own(Options):
    """No options."""


def slowly(request: Request, options: Own) -> None:
    request.backbone.logits(request.x_1L)
    for end in request.block_ends:
        time.sleep(0.02)
        request.commit(range(end - request.block_length, end), 7, None, "filled")


def test_each_block_has_the_time_at_which_it_stood() -> None:
    trace = decode(tiny("llada"), PROMPT, slowly, gen_length=12, block_length=4).trace
    ends, seconds = zip(*trace.block_seconds, strict=True)
    assert ends == (4, 8, 12) and seconds[2] == trace.seconds
    assert all(later - earlier >= 0.02 for earlier, later in zip((0.0, *seconds), seconds, strict=False))


@pytest.mark.parametrize("method", ["llada", "threshold", "fef", "freedave"])
def test_all_that_go_from_block_to_block_have_them(method: str) -> None:
    trace = decode(tiny("llada"), PROMPT, method, gen_length=12, block_length=4).trace
    assert [end for end, _ in trace.block_seconds] == [4, 8, 12]


def test_a_decoder_that_does_not_take_them_one_by_one_has_none_but_of_a_single_block() -> None:
    assert decode(tiny("llada"), PROMPT, "ssd", gen_length=12, block_length=4).trace.block_seconds == []
    trace = decode(tiny("llada"), PROMPT, "ssd", gen_length=12).trace
    assert trace.block_seconds == [(12, trace.seconds)]


def test_a_record_has_the_block_of_the_last_content() -> None:
    backbone = tiny("sdar")
    outs = (decode(backbone, PROMPT, "llada", gen_length=20, temperature=1.0, seed=seed) for seed in range(99))
    out = next(out for out in outs if backbone.eos_id in out.tokens[6:12] and backbone.eos_id not in out.tokens[:6])
    item = cost_and_tokens({}, 0, backbone, PROMPT, out)
    assert item["first_block_seconds"] == out.trace.block_seconds[0][1] < item["content_seconds"] <= item["seconds"]
    ends = [end for end, at in out.trace.block_seconds if at <= item["content_seconds"]]
    assert ends[-1] >= item["content_tokens"] > ends[-2]
