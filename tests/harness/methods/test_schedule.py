"""DDOSP's schedule: the dynamic program against brute force, the profile against a known law, the
command, a run."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_lines import refused, resolved_run
from fakes import Recorder, tiny_llada
from msgspec import convert

from harness.audit.oracle import TableBackbone, random_table
from harness.methods.schedules import estimate_profiles, optimal_schedule, schedule_error
from harness.records.files import model_hashes
from harness.records.schema import RunConfig
from harness.records.store import config_hash
from harness.run import main as run_main
from harness.schedule import main
from harness.suites.registry import Example, suite_named
from harness.train.data import NANO_SUITES
from model_wrappers.backbones.registry import NANO
from model_wrappers.decoders.ddosp import read_schedule
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
        assert schedule_error(profile, counts) == pytest.approx(
            min(schedule_error(profile, c) for c in everything)
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
    profiles = estimate_profiles(
        TableBackbone(table), [Example([0], list(response))], 2, subsets=40, batch=7, seed=0
    )

    def loss(place: int, given: tuple[int, ...]) -> float:
        """-log p(x_place | x_given), by summing the table."""
        axes = {other: response[other] for other in given}
        evidence = table[tuple(axes.get(axis, slice(None)) for axis in range(4))]
        joint = table[
            tuple((axes | {place: response[place]}).get(axis, slice(None)) for axis in range(4))
        ]
        return -float((joint.sum() / evidence.sum()).log())

    for block, before in ((0, ()), (1, (0, 1))):
        first, second = 2 * block, 2 * block + 1
        assert profiles[block, 0] == pytest.approx(
            (loss(first, before) + loss(second, before)) / 2, rel=1e-5
        )
        ends = sorted([loss(first, (*before, second)), loss(second, (*before, first))])
        assert ends[0] < profiles[block, 1] < ends[1]  # both subsets of one token were drawn


def test_every_number_of_revealed_tokens_is_seen_equally_often() -> None:
    backbone = Recorder(tiny_llada())
    estimate_profiles(
        backbone, [Example([1, 2], [4, 5, 6, 7])], block=2, subsets=3, batch=4, seed=0
    )
    rows = torch.cat(backbone.inputs)
    masks = (rows == backbone.mask_id).sum(1)
    assert sorted(masks.tolist()) == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert (
        rows[masks <= 2, 2:4] == torch.tensor([4, 5])
    ).all()  # the second block's rows have the first block clean


def test_without_eos_the_profile_is_of_the_law_without_it_and_of_the_tokens_that_are_not_it() -> (
    None
):
    backbone = tiny_llada()
    eos = backbone.eos_id
    response = [next(token for token in (4, 5) if token != eos), eos]
    (profile,) = estimate_profiles(
        backbone, [Example([1, 2, 3], response)], 2, 8, 4, seed=0, logits_eos_inf=True
    )
    for revealed, given in ((0, backbone.mask_id), (1, eos)):
        logits = backbone.logits(torch.tensor([[1, 2, 3, backbone.mask_id, given]]))[0, 3].double()
        logits[eos] = -torch.inf
        assert profile[revealed] == pytest.approx(
            -float(logits.log_softmax(-1)[response[0]]), rel=1e-5
        )


def made(folder: Path, *line: str) -> dict[str, Any]:
    out = folder / "schedule.json"
    assert main([*line, "--examples", "2", "--subsets", "1", "--out", str(out)]) == 0
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_the_command_writes_a_schedule_with_its_provenance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = made(tmp_path, "--suite", "lists")
    purpose = ("model", "suite", "gen_length", "block_length", "steps")
    assert [content[name] for name in purpose] == ["nano", "lists", 32, 32, 16]
    assert [sum(block) for block in content["quotas"]] == [32] and len(content["quotas"][0]) == 16
    assert content["error"] <= content["uniform_error"] and content["weights"]["model.safetensors"]
    assert content["responses"] == "generated" and content["environment"]["packages"]["torch"]
    assert str(tmp_path) in capsys.readouterr().out


def test_every_block_gets_a_schedule_of_its_own(tmp_path: Path) -> None:
    content = made(
        tmp_path, "--suite", "lists", "--gen-length", "16", "--block-length", "4", "--steps", "8"
    )
    assert [(len(block), sum(block)) for block in content["quotas"]] == [(2, 4)] * 4
    assert (
        np.array(content["profile"]).shape == np.array(content["estimated_profile"]).shape == (4, 4)
    )


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
    assert (
        content["responses"]["name"] == "train.jsonl" and len(content["responses"]["sha256"]) == 64
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["--suite", "gsm8k,math"], "one suite"),
        (["--suite", "gsm8k", "--steps", "49"], "at most the response length 48"),
        (["--suite", "gsm8k", "--block-length", "8", "--steps", "20"], "multiple of the 6 blocks"),
        (["--suite", "gsm8k", "--model", "elsewhere"], "--responses"),
        (["--suite", "gsm8k", "--responses", "nowhere.jsonl"], "cannot be read"),
        (["--suite", "gsm8k", "--gen-length", "4096"], "exceed the limit of nano"),
        (["--suite", "gsm8k", "--out", __file__], "exists"),
    ],
)
def test_bad_input_is_one_line_that_names_what_is_wrong(
    line: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refused(main, ["--out", str(tmp_path / "new.json"), *line], capsys)


# Schedules in a run: checked against what they were made for, refused by name, or uniform


SHIPPED = NANO / "schedules"


def config_of(methods: str = "llada,ddosp", *line: str) -> dict[str, Any]:
    """As run.json has it."""
    return resolved_run("--suite", "gsm8k", "--methods", methods, *line).config.to_json()


def given(folder: Path, **changes: Any) -> Path:
    """A file of nano's schedule for gsm8k, changed."""
    content = json.loads((SHIPPED / "gsm8k.json").read_text()) | changes
    path = folder / "gsm8k.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("suite", NANO_SUITES)
def test_nanos_schedules_are_for_its_weights_and_lengths(suite: str) -> None:
    content = json.loads((SHIPPED / f"{suite}.json").read_text())
    length = suite_named(suite).settings_for("nano", small=True)["gen_length"]
    assert content["model"] == "nano" and content["weights"] == model_hashes(NANO)
    assert content["suite"] == suite and content["gen_length"] == content["block_length"] == length
    assert (
        len(read_schedule(f"nano/{suite}", 1, length // 2, length)[0])
        == content["steps"]
        == length // 2
    )
    assert content["error"] < content["uniform_error"]


def test_a_run_on_nano_takes_the_schedules_shipped_with_it() -> None:
    config = config_of("llada,ddosp", "--suite", ",".join(NANO_SUITES))
    ddosp = config["methods"]["ddosp"]
    assert ddosp["label"] == "DDOSP"
    for suite, setting in ddosp["suites"].items():
        assert (
            setting["options"]["schedule"] == f"nano/{suite}"
            and len(setting["schedule_sha256"]) == 64
        )
    assert str(NANO) not in json.dumps(config)
    assert "schedule_sha256" not in config["methods"]["llada"]["suites"]["gsm8k"]


@pytest.mark.parametrize(
    "line",
    [
        ("--gen-length", "32"),
        ("--suite", "gsm8k-long"),
        ("--model", "someone/llada", "--data", "generated"),
    ],
)
def test_what_no_shipped_schedule_fits_has_the_uniform_one_and_says_so(
    line: tuple[str, ...],
) -> None:
    ddosp = config_of("llada,ddosp", *line)["methods"]["ddosp"]
    assert ddosp["label"] == "DDOSP (uniform schedule)"
    (setting,) = ddosp["suites"].values()
    assert setting["options"]["schedule"] is setting["schedule_sha256"] is None


def test_a_given_schedule_is_used_and_its_content_is_part_of_the_configuration(
    tmp_path: Path,
) -> None:
    path = given(tmp_path)
    for option in (path, tmp_path):  # the file, and the folder that it is in
        (method,) = config_of(f"ddosp(schedule={option})")["methods"].values()
        assert method["suites"]["gsm8k"]["options"]["schedule"] == str(path)
        assert method["label"] == f"DDOSP (schedule={option.name})"
    same = config_of(f"ddosp(schedule={path})")
    quotas = json.loads((SHIPPED / "gsm8k.json").read_text())["quotas"]
    changed = config_of(f"ddosp(schedule={given(tmp_path, quotas=[quotas[0][::-1]])})")
    assert config_hash(convert(changed, RunConfig)) != config_hash(convert(same, RunConfig))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"suite": "math"}, "made for suite math, not for suite gsm8k"),
        ({"logits_eos_inf": True}, "made for logits_eos_inf True, not for logits_eos_inf False"),
        (
            {"weights": {"model.safetensors": "0" * 64}},
            "made for model nano with other weights, not for model nano",
        ),
        ({"model": "x", "weights": {}}, "made for model x, not for model nano"),
    ],
)
def test_a_schedule_made_for_something_else_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], named: str
) -> None:
    line = ["--suite", "gsm8k", "--methods", f"ddosp(schedule={given(tmp_path, **changes)})"]
    error = refused(run_main, [*line, "--out", str(tmp_path / "run")], capsys)
    assert named in error and error.startswith("error: schedule ")
    assert not (tmp_path / "run").exists()
