"""A training from its configuration to a checkpoint: model, examples, transformers' Trainer, what is written."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pandas as pd
import torch
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from harness.errors import UserError
from harness.training.data import (
    LENGTHS,
    LONG_LENGTHS,
    Collator,
    CorruptedBatches,
    Examples,
    FileExamples,
    NanoExamples,
    PositionBatches,
)
from harness.training.sharding import accumulation, processes, shard_on_cpus, shards
from harness.training.tokenizer import NANO_SUITES, train_tokenizer
from harness.training.trainer import DiffusionTrainer
from harness.training.two_stream import TwoStreamBatches
from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.llada import FAMILY, LLaDAConfig, LLaDAForMaskedLM

# What the notes of older trainings do not say, which had no other.
UNKNOWN_TO_OLDER: dict[str, Any] = {
    **{"mask": "full", "examples": None, "global_batch": None, "random_orders": 0.0},
    **{"repeats": 1, "shots": True, "blocks": 0.0},
}


def new_model(config: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> LLaDAForMaskedLM:
    """A model of the preset's size with random weights."""
    return LLaDAForMaskedLM(
        LLaDAConfig(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=config["hidden_size"],
            num_hidden_layers=config["layers"],
            num_attention_heads=config["heads"],
            num_key_value_heads=config["heads"],
            intermediate_size=config["mlp_size"],
            max_position_embeddings=config["max_length"],
            rms_norm_eps=1e-5,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            mask_token_id=tokenizer.mask_token_id,
        )
    )


def start(config: dict[str, Any]) -> Backbone:
    """Model and tokenizer to begin with: those of the folder `init`, or new ones where the preset gives their size.

    Raises UserError for a model that cannot be trained here.
    """
    if config["init"] is not None:
        backbone = load_backbone(config["init"], dtype="float32")
        if backbone.reads_at:
            raise UserError(
                f"--init {config['init']}: {backbone.family.model_type} models predict a token from the one before it "
                "and cannot be trained here, where every position is trained to predict its own"
            )
        backbone.text_tokenizer()  # refused here if there is none
    elif "hidden_size" in config:
        tokenizer = train_tokenizer(seed=0)
        backbone = Backbone(FAMILY, new_model(config, tokenizer), tokenizer, "new")
    else:
        raise UserError("--init is needed: the folder or hub id of the model to train")
    backbone.model.train()
    return backbone


def examples_for(config: dict[str, Any], backbone: Backbone) -> tuple[Examples, int]:
    """The training examples for a model, and the optimizer steps they take.

    Raises UserError for a data file that cannot be used, or a preset that says neither steps nor epochs.
    """
    tokenizer, end = backbone.text_tokenizer(), backbone.family.end_of_turn
    per_step = config["batch"] * accumulation(config) * processes()
    if config["data"] is None:
        if config["steps"] is None:
            raise UserError("--data FILE is needed, or --steps with nano's generated problems")
        count = config["steps"] * per_step
        drawn = {"mix": config["mix"], "distinct": config["examples"]}
        drawn |= {"repeats": config["repeats"], "shots": config["shots"], "end": end}
        return NanoExamples(tokenizer, count, config["batch"], config["seed"], **drawn), config["steps"]
    once = FileExamples(tokenizer, Path(config["data"]), config["seed"], backbone.max_length, end)
    steps = config["steps"] or math.ceil(config["epochs"] * len(once) / per_step)
    return once.repeated(steps * per_step), steps


def lengths_of(config: dict[str, Any]) -> tuple[int, ...]:
    """Response lengths that some batches are padded to: those that the trained model will be asked for."""
    if config["data"] is not None:
        return ()
    return LENGTHS if set(config["mix"] or ()) <= set(NANO_SUITES) else LONG_LENGTHS


def collator_for(objective: str, config: dict[str, Any], batches: CorruptedBatches) -> Collator:
    """The collator of an objective and, for `fef`, of its mask."""
    if objective == "llada":
        return batches
    if config["mask"] == "two-stream":
        return TwoStreamBatches(batches, config["random_orders"])
    return PositionBatches(batches, config["positions"])


def prepare_folder(out: Path, asked: dict[str, Any], resume: bool) -> None:
    """Claim `out` for this configuration; refuse one that belongs to another."""
    note = out / "train.json"
    if note.exists():
        if not resume:
            raise UserError(f"{out} already holds a training; add --resume to go on with it, or choose another --out")
        try:
            before = UNKNOWN_TO_OLDER | json.loads(note.read_text())
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{note} is damaged: {error}; choose another --out") from error
        if before != asked:
            changed = sorted(k for k in before | asked if before.get(k) != asked.get(k))
            raise UserError(f"--resume with another configuration: {', '.join(changed)} differ from {note}")
    elif resume:
        raise UserError(f"nothing to resume: {note} does not exist")
    elif out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(asked, indent=1) + "\n")


def save_curve(history: list[dict[str, Any]], out: Path) -> None:
    """`loss.csv` and `loss.png` from the trainer's log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = ["step", "loss", "learning_rate", "grad_norm", "tokens_per_second"]
    frame = pd.DataFrame([entry for entry in history if "loss" in entry])[columns]
    frame.to_csv(out / "loss.csv", index=False)
    figure, axes = plt.subplots(figsize=(4.5, 3))
    axes.plot(frame["step"], frame["loss"], color="black", linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss (nats per response token)", yscale="log")
    figure.tight_layout()
    figure.savefig(out / "loss.png", dpi=150)
    plt.close(figure)


def training_arguments(
    config: dict[str, Any], out: Path, steps: int, save_every: int, sharding: dict[str, Any] | None = None
) -> TrainingArguments:
    """Transformers' arguments: AdamW, and a learning rate that warms up, stays, and decays linearly at the end.

    sharding: those of sharding.py.
    """
    values: dict[str, Any] = {
        "output_dir": str(out / "checkpoints"),
        "max_steps": steps,
        "per_device_train_batch_size": config["batch"],
        "gradient_accumulation_steps": accumulation(config),
        "learning_rate": config["lr"],
        "weight_decay": config["weight_decay"],
        "adam_beta2": config["adam_beta2"],
        "max_grad_norm": 1.0,
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {
            "num_decay_steps": int(steps * config["decay_fraction"]),
            "min_lr_ratio": config["min_lr_ratio"],
            "decay_type": "linear",
        },
        "warmup_steps": min(config["warmup"], steps // 2),
        "bf16": computes_bf16(),
        "use_cpu": not torch.cuda.is_available(),
        "logging_steps": min(25, steps),
        "save_steps": save_every,
        "save_total_limit": 2,
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
        "report_to": [],
        "seed": config["seed"],
    }
    _check_trainer(config["trainer"])
    try:
        return TrainingArguments(**values | (sharding or {}) | config["trainer"])
    except (TypeError, ValueError) as error:
        raise UserError(f"--trainer {json.dumps(config['trainer'])}: {error}") from error


def computes_bf16() -> bool:
    """Whether the device multiplies in bf16; a processor that has to emulate it takes twenty times as long."""
    return torch.cuda.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _check_trainer(arguments: dict[str, Any]) -> None:
    """Raise UserError for a value that has not the type of its TrainingArgument: some are used hours later."""
    kinds = get_type_hints(TrainingArguments)
    for name, value in arguments.items():
        try:
            msgspec.convert(value, kinds.get(name, Any))
        except msgspec.ValidationError as error:
            raise UserError(f"--trainer {name}={json.dumps(value)}: {error}") from error
        except TypeError:  # a type that JSON has not; transformers reads a text for it
            continue


def train(
    objective: str,
    config: dict[str, Any],
    out: Path,
    resume: bool = False,
    save_every: int = 250,
    shard: bool = False,
) -> None:
    """Train as `config` says, from random weights or from those of a folder (`init`), and write the result to `out`.

    shard: the model over the processes, which then hold a part of it each; a training may go on with another number of
    them, sharded or not.

    Raises UserError for what cannot be used, and for weights that are not finite in the end: they are not written.
    """
    if save_every < 1:
        raise UserError(f"--save-every {save_every} must be at least 1 step")
    set_seed(config["seed"])
    backbone = start(config)
    model: Any = backbone.model
    examples, steps = examples_for(config, backbone)
    layer = type(model.model.layers[0]).__name__
    arguments = training_arguments(config, out, steps, save_every, shards(layer) if shard else {})
    if shard:
        shard_on_cpus()
    if os.environ.get("RANK", "0") == "0":  # of several processes one claims the folder
        prepare_folder(out, {"objective": objective, **config}, resume)
    batches = CorruptedBatches(
        backbone.eos_id, backbone.mask_id, config["seed"], lengths_of(config), blocks=config["blocks"]
    )
    trainer = DiffusionTrainer(
        model=model,
        args=arguments,
        train_dataset=examples,
        data_collator=collator_for(objective, config, batches),
    )
    trainer.loss_weight, trainer.rows_per_forward = config["loss_weight"], config["rows_per_forward"]
    trainer.model_accepts_loss_kwargs = False  # the trainer then averages over the accumulated batches itself
    checkpoints = list((out / "checkpoints").glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=bool(checkpoints) or None)
    if trainer.is_world_process_zero():
        save_curve(trainer.state.log_history, out)
    trainer.save_model(str(out / "checkpoints" / "last"))  # gathers the weights where they are sharded
    if trainer.is_world_process_zero():
        trained = type(model).from_pretrained(out / "checkpoints" / "last", dtype=torch.bfloat16)
        lost = [name for name, weight in trained.named_parameters() if not weight.isfinite().all()]
        if lost:
            raise UserError(f"the training diverged: {len(lost)} tensors such as {lost[0]} are not finite; lower --lr")
        trained.save_pretrained(out)
        backbone.text_tokenizer().save_pretrained(out)
