"""Train a LLaDA-architecture model with transformers' Trainer.

    python harness/train.py --objective llada --preset nano --out training/nano
    python harness/train.py --objective llada --preset nano --out training/nano --resume

Objective `llada` is clean-token prediction on absorbing corruption (the paper's Eq. 2). The preset gives every value;
options override it. `--out` receives checkpoints, `train.json` (what was asked), `loss.csv`, `loss.png` and, at the
end, the model in bf16 and its tokenizer. A training that was killed goes on with `--resume` from its last checkpoint
and sees the examples an uninterrupted one would have seen. Limits: data comes from nano's generators.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments, set_seed

from harness.errors import UserError, one_line_errors
from harness.nano_tokenizer import EOS, MASK, token_id, train_tokenizer
from harness.objectives import llada_loss
from harness.train_data import CorruptedBatches, NanoExamples
from model_wrappers import load_backbone
from model_wrappers.llada import LLaDAConfig, LLaDAForMaskedLM

PRESETS: dict[str, dict[str, Any]] = {
    "nano": {
        "hidden_size": 192,
        "layers": 5,
        "heads": 6,
        "mlp_size": 512,
        "max_length": 4096,
        "batch": 32,
        "accumulation": 2,
        "steps": 7000,
        "lr": 1.5e-3,
        "warmup": 200,
        "decay_fraction": 0.3,
        "min_lr_ratio": 0.02,
        "weight_decay": 0.1,
        "loss_weight": "1/t",
        "mix": {"gsm8k": 3, "math": 2, "humaneval": 2, "mbpp": 1, "lists": 2},
        "init": None,
        "seed": 0,
    }
}


class DiffusionTrainer(Trainer):
    """Trainer whose loss is a diffusion objective of a corrupted batch."""

    loss_weight: str = "1/t"

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        logits_BLV = model(input_ids=inputs["corrupted"]).logits
        loss = llada_loss(
            logits_BLV, inputs["clean"], inputs["corrupted"], inputs["response"], inputs["share"], self.loss_weight
        )
        return (loss, logits_BLV) if return_outputs else loss

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: torch.nn.Module | None = None) -> None:
        # Checkpoints carry the official names of the weights, which only from_pretrained translates: the trainer's own
        # loading would leave the weights as they are.
        saved: Any = LLaDAForMaskedLM.from_pretrained(resume_from_checkpoint, dtype=torch.float32)
        target = self.model if model is None else model
        assert target is not None
        target.load_state_dict(saved.state_dict())


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


def start(config: dict[str, Any]) -> tuple[PreTrainedTokenizerBase, LLaDAForMaskedLM]:
    """Tokenizer and model to begin with: new ones, or those of the folder `init`."""
    if config["init"] is None:
        tokenizer = train_tokenizer(seed=0)
        return tokenizer, new_model(config, tokenizer)
    backbone = load_backbone(config["init"])
    return backbone.text_tokenizer(), backbone.model.train()


def prepare_folder(out: Path, asked: dict[str, Any], resume: bool) -> None:
    """Claim `out` for this configuration; refuse one that belongs to another."""
    note = out / "train.json"
    if note.exists():
        before = json.loads(note.read_text())
        if not resume:
            raise UserError(f"{out} already holds a training; add --resume to go on with it, or choose another --out")
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

    frame = pd.DataFrame([entry for entry in history if "loss" in entry])[
        ["step", "loss", "learning_rate", "grad_norm"]
    ]
    frame.to_csv(out / "loss.csv", index=False)
    figure, axes = plt.subplots(figsize=(4.5, 3))
    axes.plot(frame["step"], frame["loss"], color="black", linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss (nats per response token)", yscale="log")
    figure.tight_layout()
    figure.savefig(out / "loss.png", dpi=150)


def train(objective: str, config: dict[str, Any], out: Path, resume: bool = False, save_every: int = 250) -> None:
    """Train as `config` says, from random weights or from those of a folder (`init`), and write the result to `out`."""
    prepare_folder(out, {"objective": objective, **config}, resume)
    set_seed(config["seed"])
    tokenizer, model = start(config)
    examples = config["steps"] * config["batch"] * config["accumulation"]
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=config["steps"],
        per_device_train_batch_size=config["batch"],
        gradient_accumulation_steps=config["accumulation"],
        learning_rate=config["lr"],
        weight_decay=config["weight_decay"],
        adam_beta2=0.98,
        max_grad_norm=1.0,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={
            "num_decay_steps": int(config["steps"] * config["decay_fraction"]),
            "min_lr_ratio": config["min_lr_ratio"],
            "decay_type": "linear",
        },
        warmup_steps=config["warmup"],
        bf16=True,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=min(25, config["steps"]),
        save_steps=save_every,
        save_total_limit=2,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        report_to=[],
        seed=config["seed"],
    )
    trainer = DiffusionTrainer(
        model=model,
        args=arguments,
        train_dataset=NanoExamples(tokenizer, examples, config["batch"], config["seed"], config["mix"]),
        data_collator=CorruptedBatches(token_id(tokenizer, EOS), token_id(tokenizer, MASK), config["seed"]),
    )
    trainer.loss_weight = config["loss_weight"]
    trainer.model_accepts_loss_kwargs = False  # the trainer then averages over the accumulated batches itself
    checkpoints = list((out / "checkpoints").glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=bool(checkpoints) or None)
    save_curve(trainer.state.log_history, out)
    model.bfloat16().save_pretrained(out)
    tokenizer.save_pretrained(out)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objective", choices=["llada"], default="llada")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="nano")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--decay-fraction", type=float, help="share of the steps, at their end, in which lr decays")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mix", type=json.loads, help="JSON object: blocks of examples per suite in a round")
    parser.add_argument("--init", help="folder of a model to start from (default: random weights)")
    parser.add_argument("--save-every", type=int, default=250, help="optimizer steps between checkpoints")
    asked = parser.parse_args(arguments)
    names = ("steps", "lr", "warmup", "decay_fraction", "mix", "seed", "init")
    overrides = {name: value for name in names if (value := getattr(asked, name)) is not None}
    train(asked.objective, PRESETS[asked.preset] | overrides, asked.out, asked.resume, asked.save_every)
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
