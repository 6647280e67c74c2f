"""Training: the corruption, the loss, the data, and a training that was stopped."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from families import SHIFTED, tiny, with_nanos_tokenizer
from msgspec import to_builtins
from msgspec.structs import replace
from safetensors.torch import load_file
from trainers import trainer

from harness.errors import UserError
from harness.suites.registry import encode, generated_exchanges
from harness.train.__main__ import main
from harness.train.data import (
    EOT,
    NANO_SUITES,
    CorruptedBatches,
    FileExamples,
    NanoExamples,
    NextTokenBatches,
    train_tokenizer,
)
from harness.train.objectives import corrupt, llada_loss, next_token_loss, position_rows
from harness.train.recipes import PRESETS, Size
from harness.train.run import train, training_arguments
from model_wrappers import decode, load_backbone
from model_wrappers.backbones.llada import causal_llama

TINY = Size(hidden_size=32, layers=1, heads=2, mlp_size=32, max_length=4096)
SMALL = replace(PRESETS["nano-base"], size=TINY, batch=4, warmup=2, steps=6, positions=2)


def batch(time: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    clean_BL = torch.arange(40).reshape(2, 20)
    response_BL = torch.zeros(2, 20, dtype=torch.bool)
    response_BL[0, 5:], response_BL[1, 10:] = True, True
    return clean_BL, response_BL, torch.full((2,), time)


@pytest.mark.parametrize("time", [0.0, 0.01, 0.3, 0.5, 1.0])
def test_corruption_masks_the_share_asked_for_and_no_prompt(time: float) -> None:
    clean_BL, response_BL, time_B = batch(time)
    corrupted_BL, share_B = corrupt(
        clean_BL, response_BL, time_B, 99, torch.Generator().manual_seed(0)
    )
    masked_BL = corrupted_BL == 99
    assert not (masked_BL & ~response_BL).any() and torch.equal(
        corrupted_BL[~masked_BL], clean_BL[~masked_BL]
    )
    length_B = response_BL.sum(1)
    assert torch.equal(masked_BL.sum(1), (time_B * length_B).ceil().clamp_min(1).long())
    assert torch.equal(share_B, masked_BL.sum(1) / length_B)


def test_corruption_is_uniform_over_positions() -> None:
    clean_BL, response_BL, time_B = batch(0.4)
    generator = torch.Generator().manual_seed(0)
    draws = 3000
    count_BL = sum(
        (corrupt(clean_BL, response_BL, time_B, 99, generator)[0] == 99).long()
        for _ in range(draws)
    )
    # Each response position is masked 6/15 and 4/10 of the time: five standard deviations of a
    # binomial.
    bound = 5 * (draws * 0.4 * 0.6) ** 0.5
    assert isinstance(count_BL, torch.Tensor)
    assert ((count_BL[response_BL] - 0.4 * draws).abs() < bound).all()


def test_loss_is_the_weighted_cross_entropy_per_response_token() -> None:
    clean_BL, response_BL, time_B = batch(0.4)
    corrupted_BL, share_B = corrupt(
        clean_BL, response_BL, time_B, 99, torch.Generator().manual_seed(1)
    )
    logits_BLV = torch.randn(2, 20, 100, generator=torch.Generator().manual_seed(2))
    log_probs_BLV = logits_BLV.log_softmax(-1)
    expected = {"1/t": 0.0, "none": 0.0}
    for b, i in (corrupted_BL != clean_BL).nonzero().tolist():
        nll = -float(log_probs_BLV[b, i, clean_BL[b, i]])
        expected["none"] += nll / 25
        expected["1/t"] += nll / float(share_B[b]) / 25
    for weight, value in expected.items():
        loss = llada_loss(logits_BLV, clean_BL, corrupted_BL, response_BL, share_B, weight)
        assert float(loss) == pytest.approx(value, rel=1e-5)


def test_generated_examples_repeat_with_new_corruptions() -> None:
    tokenizer = train_tokenizer(examples_per_suite=200)
    data = NanoExamples(tokenizer, count=24, block=4, seed=3, distinct=6)
    first, again = data[5], data[11]
    assert first | {"index": 11} == dict(again)
    assert (
        first
        == NanoExamples(tokenizer, count=24, block=4, seed=3)[5]
        != NanoExamples(tokenizer, 24, 4, seed=4)[5]
    )
    assert first["response"][-1] == tokenizer.get_vocab()[EOT]
    batches = CorruptedBatches(eos_id=0, mask_id=1, seed=3)
    assert batches([first])["share"] != batches([again])["share"]


def test_batches_pad_with_eos_and_count_it_as_response() -> None:
    examples = [
        {"index": 0, "prompt": [1, 2], "response": [3, 4, 5]},
        {"index": 1, "prompt": [1], "response": [6, 7]},
    ]
    batch = CorruptedBatches(eos_id=9, mask_id=99, seed=0)(examples)  # type: ignore[arg-type]
    assert batch["clean"][1, :3].tolist() == [1, 6, 7] and (batch["clean"][1, 3:] == 9).all()
    assert batch["response"][1].tolist() == [False] + [True] * (batch["clean"].shape[1] - 1)


def test_the_tokenizer_encodes_any_text_and_every_list_word_as_one_token() -> None:
    from harness.suites.lists import WORDS

    tokenizer = train_tokenizer()
    text = "Ünïcode ≤ \\boxed{12}\n\tdef f(x):\n    return x**2  # 日本"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert all(
        len(tokenizer(f" {word}", add_special_tokens=False).input_ids) == 1 for word in WORDS
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "mask"), [("llada", "full"), ("fef", "full"), ("fef", "two-stream")]
)
def test_a_stopped_training_goes_on_to_the_weights_of_a_whole_one(
    tmp_path: Path, objective: str, mask: str
) -> None:
    recipe = replace(SMALL, mask=mask)
    train(objective, recipe, tmp_path / "whole", save_every=3)
    train(objective, recipe, tmp_path / "stopped", save_every=3)
    for name in ("model.safetensors", "loss.csv"):
        (tmp_path / "stopped" / name).unlink()
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "checkpoint-6")
    train(objective, recipe, tmp_path / "stopped", resume=True, save_every=3)
    whole, resumed = (
        load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped")
    )
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


def test_a_folder_of_another_training_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.json").write_text(
        json.dumps({"objective": "llada", **to_builtins(PRESETS["nano"])})
    )
    command = ["--objective", "llada", "--preset", "nano", "--out"]
    with pytest.raises(UserError, match="--resume"):
        main([*command, str(tmp_path)])
    with pytest.raises(UserError, match="lr, steps differ"):
        main([*command, str(tmp_path), "--resume", "--steps", "3", "--lr", "0.1"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        main([*command, str(tmp_path / "other")])
    with pytest.raises(UserError, match="nothing to resume"):
        main([*command, str(tmp_path / "new"), "--resume"])
    assert (tmp_path / "other" / "notes.txt").read_text() == "mine"


def data_file(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_read_in_a_new_order_every_epoch(tmp_path: Path) -> None:
    path = data_file(tmp_path, *({"prompt": f"p{i}", "response": f"r{i}"} for i in range(20)))
    data = FileExamples(train_tokenizer(examples_per_suite=200), path, seed=0, limit=500).repeated(
        40
    )
    responses = [tuple(data[i]["response"]) for i in range(40)]
    assert (
        len(data) == 40
        and set(responses[:20]) == set(responses[20:])
        and responses[:20] != responses[20:]
    )
    assert len(set(responses[:20])) == 20 and [e["index"] for e in (data[3], data[33])] == [3, 33]


def test_an_example_longer_than_the_model_is_refused_by_its_line(tmp_path: Path) -> None:
    path = data_file(
        tmp_path, {"prompt": "p", "response": "r"}, {"prompt": "p", "response": "long " * 100}
    )
    with pytest.raises(
        UserError, match=r"data.jsonl, line 2: \d+ tokens exceed the model's limit of 50"
    ):
        FileExamples(train_tokenizer(examples_per_suite=200), path, seed=0, limit=50)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["llada", "fef"])
def test_the_papers_recipe_runs_on_an_official_folder(
    tmp_path: Path, objective: str, official_with_tokenizer: Path
) -> None:
    path = data_file(
        tmp_path, *({"question": f"{i} and 1?", "answer": f"#### {i + 1}"} for i in range(5))
    )
    out = tmp_path / "out"
    command = [
        "--objective",
        objective,
        "--init",
        str(official_with_tokenizer),
        "--data",
        str(path),
        "--out",
        str(out),
    ]
    assert main(command) == 0
    assert pd.read_csv(out / "loss.csv")["step"].to_list() == [3]  # 5 of 2 a step
    assert all(
        (out / name).exists() for name in ("model.safetensors", "tokenizer.json", "loss.png")
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--positions", "0"], "--positions .0."),
        (["--objective", "llada", "--mask", "two-stream"], "needs objective fef, not llada"),
        (["--mask", "two-stream", "--positions", "4"], "--positions 4 needs --mask full"),
        (["--random-orders", "0.5"], "needs --mask two-stream"),
        (["--mix", '{"gsm9k": 1}'], "for suites of gsm8k"),
        (["--prefixes", "0.5"], "--prefixes and --first-weight are of blocks: add --block-length"),
        (
            ["--mask", "two-stream", "--block-length", "8", "--random-orders", "0.5"],
            "without --block-length",
        ),
        (
            ["--objective", "llada", "--prefixes", "0.5", "--block-length", "8"],
            "0.5 is what FeF-DLLM's targets see",
        ),
        (["--preset", "nano-long-control"], "nano-long-control corrupts in blocks"),
        (
            ["--objective", "ar", "--preset", "nano-block-control"],
            "--block-length 16 is of diffusion models",
        ),
        (["--global-batch", "12", "--accumulation", "2"], "leave --accumulation out"),
        (["--epochs", "2"], "--epochs 2.0 are of --data FILE"),
        (["--preset", "papers"], "--preset papers is not known; did you mean paper?"),
        (["--preset", "paper"], "--init is needed"),
        (["--preset", "paper", "--init", "nano"], "--data FILE is needed"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--init", "nowhere"], "nowhere"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    tmp_path: Path, options: list[str], named: str
) -> None:
    with pytest.raises((UserError, ValueError), match=named):
        main(["--objective", "fef", "--preset", "nano", "--out", str(tmp_path / "out"), *options])
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_processes_train_as_one_that_accumulates_more(
    tmp_path: Path, official_with_tokenizer: Path
) -> None:
    """Whatever the numbers of positions in their examples are: each process has as many pieces as
    the other."""
    path = data_file(
        tmp_path, *({"prompt": f"{i}?", "response": "and so on " * (1 + i % 4)} for i in range(8))
    )
    command = ["--objective", "fef", "--init", str(official_with_tokenizer), "--data", str(path)]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    launch += ["-m", "harness.train"]
    subprocess.run(
        [*launch, *command, "--out", str(tmp_path / "two")],
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert main([*command, "--out", str(tmp_path / "one"), "--accumulation", "4"]) == 0
    curves = (pd.read_csv(tmp_path / name / "loss.csv") for name in ("two", "one"))
    two, one = (curve.drop(columns="tokens_per_second") for curve in curves)
    pd.testing.assert_frame_equal(two, one, rtol=1e-2)


def test_what_nano_was_trained_on_is_frozen() -> None:
    """A new suite must not change nano's tokenizer or the order of its training data."""
    assert NANO_SUITES == ("gsm8k", "math", "humaneval", "mbpp", "lists")
    drawn = NanoExamples(train_tokenizer(), count=10, block=2, seed=0)
    assert len(drawn.round) == len(NANO_SUITES) and drawn[0]["index"] == 0


# Responses for DDOSP's profile
def test_responses_end_with_eot_and_are_padded_with_eos_or_cut() -> None:
    nano = load_backbone("nano")
    (exchange,) = generated_exchanges("lists", 1)
    ((prompt, response),) = encode(nano, [exchange], 32)
    text = response[: response.index(nano.eot_id)]
    assert nano.text_tokenizer().decode(text) == exchange.response
    assert set(response[len(text) + 1 :]) == {nano.eos_id} and len(response) == 32
    assert encode(nano, [exchange], 4) == [(prompt, response[:4])]
    with pytest.raises(
        UserError, match=r"training response 1: .* exceed the limit of nano, 4096 tokens"
    ):
        encode(nano, [exchange], 4096)


# Other families
@pytest.fixture(scope="module")
def four_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = ({"prompt": f"{number}?", "response": "and so on"} for number in range(4))
    return data_file(tmp_path_factory.mktemp("data"), *rows)


@pytest.mark.parametrize("objective", ["fef", "llada"])
@pytest.mark.parametrize("name", SHIFTED)
def test_a_shifted_model_is_refused_in_one_line(
    name: str, objective: str, tmp_path: Path, four_lines: Path
) -> None:
    command = [
        "--objective",
        objective,
        "--init",
        str(with_nanos_tokenizer(name, tmp_path / "init")),
    ]
    with pytest.raises(
        UserError, match=f"{name} models predict a token from the one before it"
    ) as refused:
        main([*command, "--data", str(four_lines), "--out", str(tmp_path / "out")])
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a2d-qwen3", "llada_moe"])
def test_what_a_training_writes_loads_as_the_same_family(
    name: str, tmp_path: Path, four_lines: Path
) -> None:
    folder, out = with_nanos_tokenizer(name, tmp_path / "init"), tmp_path / "out"
    command = [
        "--objective",
        "fef",
        "--init",
        str(folder),
        "--data",
        str(four_lines),
        "--lr",
        "1e-3",
        "--warmup",
        "0",
    ]
    assert main([*command, "--out", str(out), "--steps", "2", "--save-every", "1"]) == 0
    before, after = load_backbone(folder), load_backbone(out)
    assert (after.family.model_type, after.mask_id, after.eos_id) == (
        name,
        before.mask_id,
        before.eos_id,
    )
    ids_1L = torch.arange(6)[None]
    assert not torch.allclose(after.logits(ids_1L), before.logits(ids_1L), atol=1e-3)


# The trainer
def test_the_learning_rate_is_the_papers_at_every_step(tmp_path: Path) -> None:
    steps, paper = 1000, PRESETS["paper"]
    made = trainer(tmp_path, training_arguments(paper, tmp_path, steps, steps))
    made.create_optimizer_and_scheduler(steps)
    assert made.lr_scheduler is not None and made.optimizer is not None
    for step in range(steps):
        # the paper does not say from where; get_wsd_schedule warms up from its lowest rate
        if step < 50:
            expected = 1e-5 * (0.1 + 0.9 * step / 50)
        elif step < 900:
            expected = 1e-5
        else:
            expected = 1e-5 * (1 - 0.9 * (step - 900) / 100)
        assert made.lr_scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9), step
        made.optimizer.step()
        made.lr_scheduler.step()
    assert made.lr_scheduler.get_last_lr()[0] == pytest.approx(1e-6)


def gradients(folder: Path, rows_per_forward: int) -> tuple[float, list[torch.Tensor]]:
    clean = torch.arange(1, 17).reshape(2, 8)
    corrupted = clean.clone()
    corrupted[:, 3:] = 39
    rows = position_rows(clean, corrupted, None, torch.Generator())
    arguments = training_arguments(
        replace(PRESETS["nano"], trainer={"bf16": False}), folder, 10, 10
    )
    made = trainer(folder, arguments, rows_per_forward=rows_per_forward)
    loss = made.training_step(made.model, rows._asdict() | {"tokens": torch.tensor(10)})
    return float(loss), [p.grad for p in made.model.parameters() if p.grad is not None]


def test_a_batch_in_pieces_has_the_gradient_of_the_whole(tmp_path: Path) -> None:
    whole, gradient = gradients(tmp_path, 64)
    pieces, in_pieces = gradients(tmp_path, 3)
    assert pieces == pytest.approx(whole, rel=1e-5)
    for one, other in zip(gradient, in_pieces, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_loss_that_is_no_number_ends_the_training_with_a_line(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    rows = position_rows(torch.tensor([[1, 2]]), torch.tensor([[1, 39]]), None, torch.Generator())
    broken = rows._asdict() | {"weight": torch.tensor([float("nan")]), "tokens": torch.tensor(1)}
    with pytest.raises(UserError, match="became nan at step 0"):
        made.training_step(made.model, broken)


@pytest.mark.parametrize("arguments", [{"no_such_thing": 1}, {"max_grad_norm": "much"}])
def test_unknown_training_arguments_and_other_types_are_refused(
    tmp_path: Path, arguments: dict[str, object]
) -> None:
    with pytest.raises(UserError, match=f"--trainer .*{next(iter(arguments))}"):
        training_arguments(replace(PRESETS["nano"], trainer=arguments), tmp_path, 10, 10)


# The autoregressive reference
EOS, MASK = 1, 39
EXAMPLES = [
    {"prompt": [5, 6], "response": [7, 8, 2], "index": 0},
    {"prompt": [9], "response": [4, 2], "index": 1},
]


def test_a_response_is_predicted_up_to_one_eos() -> None:
    batch = NextTokenBatches(CorruptedBatches(EOS, MASK, 0, lengths=()))(EXAMPLES)  # type: ignore[arg-type]
    inputs, predicted = batch["inputs"], batch["predicted"]
    assert inputs.tolist() == [[5, 6, 7, 8, 2, EOS], [9, 4, 2, EOS, EOS, EOS]]
    assert predicted.tolist() == [[False, False, *[True] * 4], [False, *[True] * 3, False, False]]


def test_the_loss_is_that_of_transformers() -> None:
    model = tiny("llama").model
    batch = NextTokenBatches(CorruptedBatches(EOS, MASK, 0))(EXAMPLES)  # type: ignore[arg-type]
    labels = batch["inputs"].masked_fill(~batch["predicted"], -100)
    with torch.no_grad():
        theirs = model(input_ids=batch["inputs"], labels=labels).loss
        own = next_token_loss(
            model(input_ids=batch["inputs"]).logits, batch["inputs"], batch["predicted"]
        )
    torch.testing.assert_close(own, theirs)


def test_a_llada_becomes_a_llama_of_its_weights_that_sees_the_past_alone() -> None:
    llada = tiny("llada").model
    made = causal_llama(llada)
    assert all(
        torch.equal(weight, made.state_dict()[name]) for name, weight in llada.state_dict().items()
    )
    ids = torch.tensor([[3, 4, 5, 6]])
    other = torch.tensor([[3, 4, 5, 9]])
    with torch.no_grad():
        torch.testing.assert_close(
            made(input_ids=ids).logits[:, :3], made(input_ids=other).logits[:, :3]
        )


@pytest.mark.slow
def test_a_trained_llama_decodes_and_is_trained_by_no_other_objective(tmp_path: Path) -> None:
    small = replace(
        PRESETS["nano-ar"], init=None, size=TINY, batch=4, warmup=1, steps=2, examples=8
    )
    train("ar", small, tmp_path / "ar")
    backbone = load_backbone(tmp_path / "ar")
    assert backbone.family.causal and backbone.tokenizer is not None
    assert decode(backbone, [5, 6, 7], "ar", gen_length=8).trace.forwards <= 8
    with pytest.raises(
        UserError, match="objective ar trains Llamas, and the others diffusion models"
    ):
        train("llada", replace(PRESETS["nano"], init=str(tmp_path / "ar")), tmp_path / "llada")
