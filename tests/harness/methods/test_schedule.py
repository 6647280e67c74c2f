"""DDOSP's schedule: the dynamic program against brute force, the profile against a law that is known, the command."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_lines import refused
from fakes import Recorder, tiny_llada

from harness.laws.oracle import TableBackbone, random_table
from harness.methods import estimation
from harness.methods.unmasking import estimate_profiles, monotone, optimal_schedule, schedule_error
from harness.schedule import main
from harness.training.responses import Example
from model_wrappers.sampling import quotas


def falling_profile(length: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).exponential(size=length))[::-1].copy()


@pytest.mark.parametrize("length", range(1, 11))
def test_the_schedule_is_the_best_of_all(length: int) -> None:
    profile = falling_profile(length, seed=length)
    for steps in range(1, length + 1):
        counts = optimal_schedule(profile, steps)
        assert len(counts) == steps and sum(counts) == length and min(counts) >= 1
        cuts = itertools.combinations(range(1, length), steps - 1)
        everything = [np.diff([0, *cut, length]).tolist() for cut in cuts]
        assert schedule_error(profile, counts) == pytest.approx(min(schedule_error(profile, c) for c in everything))


@pytest.mark.parametrize("seed", range(5))
def test_the_schedule_is_never_worse_than_uniform(seed: int) -> None:
    profile = falling_profile(48, seed)
    for steps in (1, 5, 24, 48):
        assert (
            schedule_error(profile, optimal_schedule(profile, steps))
            <= schedule_error(profile, quotas(48, steps)) + 1e-9
        )


def test_where_schedules_are_equally_good_the_most_even_one_is_taken() -> None:
    assert sorted(optimal_schedule(np.zeros(48), 20)) == sorted(quotas(48, 20))
    steep_then_flat = np.concatenate([[3.0, 2.0, 1.0], np.zeros(9)])
    assert optimal_schedule(steep_then_flat, 6) == [1, 1, 1, 3, 3, 3]


def test_the_error_is_the_sum_in_the_paper() -> None:
    profile = falling_profile(7, 0)
    f = profile[0] - profile
    expected = sum(f[i] - f[a] for a, b in ((0, 3), (3, 4), (4, 7)) for i in range(a, b))
    assert schedule_error(profile, [3, 1, 3]) == pytest.approx(expected)


def test_one_token_a_step_has_no_error() -> None:
    assert schedule_error(falling_profile(9, 1), [1] * 9) == pytest.approx(0, abs=1e-12)


def test_the_corrected_profile_never_increases() -> None:
    noisy = falling_profile(30, 2) + np.random.default_rng(0).normal(size=30)
    assert (np.diff(monotone(noisy)) <= 1e-12).all()


def test_more_steps_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="between 1 and the 5"):
        optimal_schedule(falling_profile(5, 0), 6)


def test_the_profile_is_the_mean_loss_over_masked_tokens() -> None:
    backbone = tiny_llada()
    example = Example([1, 2, 3], [4, 5, 6, 7])
    (profile,) = estimate_profiles(backbone, [example], block=4, subsets=1, batch=2, seed=0)
    masked = torch.tensor([example.prompt + [backbone.mask_id] * 4])
    log_law = backbone.logits(masked)[0, 3:].double().log_softmax(-1)
    assert profile[0] == pytest.approx(-float(log_law[range(4), example.response].mean()), rel=1e-5)


def test_every_block_has_its_profile_given_the_blocks_before_it() -> None:
    table = random_table(real=2, length=4).double()
    response = (0, 1, 1, 0)
    profiles = estimate_profiles(TableBackbone(table), [Example([0], list(response))], 2, subsets=40, batch=7, seed=0)

    def loss(place: int, given: tuple[int, ...]) -> float:
        """-log p(x_place | x_given), by summing the table."""
        axes = {other: response[other] for other in given}
        evidence = table[tuple(axes.get(axis, slice(None)) for axis in range(4))]
        joint = table[tuple((axes | {place: response[place]}).get(axis, slice(None)) for axis in range(4))]
        return -float((joint.sum() / evidence.sum()).log())

    for block, before in ((0, ()), (1, (0, 1))):
        first, second = 2 * block, 2 * block + 1
        assert profiles[block, 0] == pytest.approx((loss(first, before) + loss(second, before)) / 2, rel=1e-5)
        ends = sorted([loss(first, (*before, second)), loss(second, (*before, first))])
        assert ends[0] < profiles[block, 1] < ends[1]  # both subsets of one token were drawn


def test_every_number_of_revealed_tokens_is_seen_equally_often() -> None:
    backbone = Recorder(tiny_llada())
    estimate_profiles(backbone, [Example([1, 2], [4, 5, 6, 7])], block=2, subsets=3, batch=4, seed=0)
    rows = torch.cat(backbone.inputs)
    masks = (rows == backbone.mask_id).sum(1)
    assert sorted(masks.tolist()) == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert (rows[masks <= 2, 2:4] == torch.tensor([4, 5])).all()  # the second block's rows have the first block clean


def test_without_eos_the_profile_is_of_the_law_without_it_and_of_the_tokens_that_are_not_it() -> None:
    backbone = tiny_llada()
    eos = backbone.eos_id
    response = [next(token for token in (4, 5) if token != eos), eos]
    (profile,) = estimate_profiles(backbone, [Example([1, 2, 3], response)], 2, 8, 4, seed=0, logits_eos_inf=True)
    for revealed, given in ((0, backbone.mask_id), (1, eos)):
        logits = backbone.logits(torch.tensor([[1, 2, 3, backbone.mask_id, given]]))[0, 3].double()
        logits[eos] = -torch.inf
        assert profile[revealed] == pytest.approx(-float(logits.log_softmax(-1)[response[0]]), rel=1e-5)


def test_without_eos_a_block_of_eos_alone_has_a_flat_profile() -> None:
    backbone = tiny_llada()
    ended = Example([1, 2, 3], [4, 5, backbone.eos_id, backbone.eos_id])
    first, second = estimate_profiles(backbone, [ended], 2, subsets=1, batch=4, seed=0, logits_eos_inf=True)
    assert np.isfinite(first).all() and (first > 0).all() and (second == 0).all()


def made(folder: Path, *line: str) -> dict[str, Any]:
    out = folder / "schedule.json"
    assert main([*line, "--examples", "2", "--subsets", "1", "--out", str(out)]) == 0
    assert out.with_suffix(".png").stat().st_size > 1000
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_the_command_writes_a_schedule_with_its_provenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = made(tmp_path, "--suite", "lists")
    purpose = ("model", "suite", "gen_length", "block_length", "steps")
    assert [content[name] for name in purpose] == ["nano", "lists", 32, 32, 16]
    assert [sum(block) for block in content["quotas"]] == [32] and len(content["quotas"][0]) == 16
    assert content["error"] <= content["uniform_error"] and content["weights"]["model.safetensors"]
    assert content["responses"] == "generated" and content["environment"]["packages"]["torch"]
    assert str(tmp_path) in capsys.readouterr().out


def test_the_file_names_the_options_it_was_made_under(tmp_path: Path) -> None:
    line = ["--suite", "lists", "--gen-length", "4"]
    for folder, given, expected in (("a", [], [False, False]), ("b", ["--logits-eos-inf"], [True, False])):
        content = made(tmp_path / folder, *line, *given)
        assert [content["logits_eos_inf"], content["confidence_eos_eot_inf"]] == expected


def test_every_block_gets_a_schedule_of_its_own(tmp_path: Path) -> None:
    content = made(tmp_path, "--suite", "lists", "--gen-length", "16", "--block-length", "4", "--steps", "8")
    assert [(len(block), sum(block)) for block in content["quotas"]] == [(2, 4)] * 4
    assert np.array(content["profile"]).shape == np.array(content["estimated_profile"]).shape == (4, 4)


def test_without_out_the_schedule_goes_where_it_is_said_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(estimation, "ROOT", tmp_path)
    assert main(["--suite", "lists", "--gen-length", "4", "--examples", "1", "--subsets", "1"]) == 0
    written = tmp_path / "results" / "schedules" / "nano" / "lists.json"
    assert json.loads(written.read_text())["steps"] == 2 and str(written) in capsys.readouterr().out


def test_another_model_takes_a_file_of_responses_and_lladas_own_lengths(
    tmp_path: Path, official_with_tokenizer: Path
) -> None:
    responses = tmp_path / "train.jsonl"
    responses.write_text('{"question": "1 + 1?", "answer": "<<1+1=2>>2\\n#### 2"}\n' * 2)
    content = made(
        tmp_path,
        "--model",
        str(official_with_tokenizer),
        "--suite",
        "gsm8k",
        "--responses",
        str(responses),
        "--gen-length",
        "16",
    )
    assert (content["block_length"], content["steps"]) == (8, 8)
    assert [(len(block), sum(block)) for block in content["quotas"]] == [(4, 8)] * 2
    assert content["responses"]["name"] == "train.jsonl" and len(content["responses"]["sha256"]) == 64


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["--suite", "gsm9k"], "valid: gsm8k"),
        (["--suite", "gsm8k,math"], "one suite"),
        (["--suite", "gsm8k", "--steps", "49"], "at most the response length 48"),
        (["--suite", "gsm8k", "--steps", "0"], "steps=0"),
        (["--suite", "gsm8k", "--block-length", "8", "--steps", "20"], "multiple of the 6 blocks"),
        (["--suite", "gsm8k", "--block-length", "7"], "divide"),
        (["--suite", "gsm8k", "--gen-length", "0"], "at least 1"),
        (["--suite", "gsm8k", "--examples", "0"], "--examples 0"),
        (["--suite", "gsm8k", "--batch", "-1"], "--batch -1"),
        (["--suite", "gsm8k", "--model", "elsewhere"], "--responses"),
        (["--suite", "gsm8k", "--responses", "nowhere.jsonl"], "cannot be read"),
        (["--suite", "gsm8k", "--gen-length", "4095"], "exceed the limit of nano"),
        (["--suite", "gsm8k", "--out", __file__], "exists"),
    ],
)
def test_bad_input_is_one_line_that_names_what_is_wrong(
    line: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refused(main, line, capsys)
