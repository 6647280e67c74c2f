"""A training from its recipe to a checkpoint, by transformers' Trainer with a diffusion objective.

On several processes the batch of a step is the same; a model is sharded over them by PyTorch's
FSDP2 (`fully_shard`).
"""

import json
import math
import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pandas as pd
import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from msgspec import to_builtins
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from transformers import Trainer, TrainingArguments, set_seed

from harness.errors import UserError, explained
from harness.suites.registry import suite_named
from harness.train import data
from harness.train.objectives import (
    block_loss,
    fef_loss,
    llada_loss,
    next_token_loss,
    two_stream_loss,
)
from harness.train.recipes import Recipe
from harness.train.rows import BlockBatches, TwoStreamBatches
from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.llada import (
    FAMILY,
    LLAMA_FAMILY,
    LLaDAConfig,
    LLaDAForMaskedLM,
    causal_llama,
)

Inputs = dict[str, Tensor]


def processes() -> int:
    """How many processes train together; torchrun sets it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def accumulation(recipe: Recipe) -> int:
    """Forwards of each process in a step. Raises UserError if they cannot make `global_batch`
    examples."""
    if recipe.global_batch is None:
        return recipe.accumulation
    per_forward = recipe.batch * processes()
    if recipe.global_batch % per_forward:
        raise UserError(
            f"--global-batch {recipe.global_batch} is no multiple of {per_forward}, the examples of"
            f" one forward (--batch {recipe.batch}) of {processes()} processes; give another"
            " --batch, or number of processes"
        )
    return recipe.global_batch // per_forward


def sharding(layer: str) -> dict[str, Any]:
    """TrainingArguments that shard a model by its layers.

    Args:
        layer: the name of the layers' class.

    Raises:
        UserError: there is only one process.
    """
    if processes() < 2:
        raise UserError(
            "--shard needs several processes: torchrun --nproc-per-node N -m harness.train ..."
        )
    settings = {
        "version": 2,
        "transformer_layer_cls_to_wrap": [layer],
        "state_dict_type": "FULL_STATE_DICT",
    }
    return {"fsdp": True, "fsdp_config": settings}


def set_weights(model: torch.nn.Module, weights: dict[str, Any]) -> None:
    """Load weights that are not sharded into a model, which may be."""
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))


class DiffusionTrainer(Trainer):
    """A Trainer for the collators' batches, whose fields tell the objective.

    Attributes:
        loss_weight: of objective `llada`; see `llada_loss`.
        rows_per_forward: position-conditioned rows that go through the model at once, which bounds
            memory.
    """

    loss_weight: str = "1/t"
    rows_per_forward: int = 64
    _tokens = 0
    _since = 0.0

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: Inputs,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Forward and backward of a batch, in pieces of rows; returns the loss."""
        self._since = self._since or time.perf_counter()
        self._tokens += inputs["corrupted" if "corrupted" in inputs else "inputs"].numel()
        pieces = self._pieces(inputs)
        losses = []
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            # Gradients of the processes are averaged once a batch, not once a piece.
            with nullcontext() if last else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, piece, num_items_in_batch))
        loss = torch.stack(losses).sum()
        # Raised before the optimizer steps, so that no NaN gets into the weights.
        if not bool(torch.isfinite(loss)):
            raise UserError(
                f"the loss became {float(loss)} at step {self.state.global_step}; the last"
                " checkpoint is intact: go on from it with a lower --lr"
            )
        return loss

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: Inputs,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        if "position" in inputs:
            logits_RV = model(
                input_ids=inputs["inputs"], positions=inputs["position"][:, None]
            ).logits[:, 0]
            return fef_loss(logits_RV, inputs["target"], inputs["weight"], int(inputs["tokens"]))
        if "visible" in inputs:
            logits = model(
                input_ids=inputs["inputs"],
                attention_mask=inputs["visible"],
                position_ids=inputs["position_ids"],
                positions=inputs["positions"],
            ).logits
            if "block_weight" in inputs:
                return block_loss(logits, inputs["target"], inputs["block_weight"])
            draft_BCV, target_BCV = logits.chunk(2, dim=1)
            return two_stream_loss(
                draft_BCV, target_BCV, inputs["target"], inputs["used"], int(inputs["tokens"])
            )
        if "predicted" in inputs:
            return next_token_loss(
                model(input_ids=inputs["inputs"]).logits, inputs["inputs"], inputs["predicted"]
            )
        logits_BLV = model(input_ids=inputs["corrupted"]).logits
        return llada_loss(
            logits_BLV,
            inputs["clean"],
            inputs["corrupted"],
            inputs["response"],
            inputs["share"],
            self.loss_weight,
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the tokens that went through the model per second since the last time, on this
        process."""
        if "loss" in logs and self._tokens:
            now = time.perf_counter()
            logs["tokens_per_second"] = self._tokens / (now - self._since)
            self._tokens = 0
            self._since = now
        super().log(logs, start_time)

    def _pieces(self, inputs: Inputs) -> list[Inputs]:
        """A batch in pieces of at most rows_per_forward rows, the same number of pieces on every
        process."""
        if "position" not in inputs:
            return [inputs]
        rows = len(inputs["position"])
        count = torch.tensor([math.ceil(rows / self.rows_per_forward)], device=self.args.device)
        most = int(self.accelerator.gather(count).max())
        names = ("inputs", "position", "target", "weight")
        # Every so many-th row, so that the pieces are of one size but for one row.
        split = [[inputs[name][i :: int(count)] for name in names] for i in range(int(count))]
        pieces = [
            dict(zip(names, piece, strict=True)) | {"tokens": inputs["tokens"]} for piece in split
        ]
        # Sharded models communicate at every forward, so a process with fewer pieces repeats one
        # with weight 0.
        idle = pieces[0] | {"weight": torch.zeros_like(pieces[0]["weight"])}
        return [idle] * (most - len(pieces)) + pieces

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: torch.nn.Module | None = None
    ) -> None:
        # Checkpoints carry the official names of the weights, which only from_pretrained
        # translates: the trainer's loading would leave the weights as they are.
        target: Any = self.model if model is None else model
        kind = type(self.accelerator.unwrap_model(target))
        set_weights(
            target, kind.from_pretrained(resume_from_checkpoint, dtype=torch.float32).state_dict()
        )


def start(recipe: Recipe, objective: str = "llada") -> Backbone:
    """The model and tokenizer that a training starts from.

    They are those of `init`, or with the recipe's `size` a new model with random weights and nano's
    tokenizer. For objective `ar` a LLaDA becomes a causal Llama.

    Raises:
        UserError: a model that cannot be trained so, or neither `init` nor `size`.
    """
    if recipe.init is not None:
        backbone = load_backbone(recipe.init, dtype="float32")
    elif recipe.size is not None:
        tokenizer = data.train_tokenizer(seed=0)
        size = recipe.size
        config = LLaDAConfig(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=size.hidden_size,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            intermediate_size=size.mlp_size,
            max_position_embeddings=size.max_length,
            rms_norm_eps=1e-5,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            mask_token_id=tokenizer.mask_token_id,
        )
        backbone = Backbone(FAMILY, LLaDAForMaskedLM(config), tokenizer, "new")
    else:
        raise UserError("--init is needed: the folder or hub id of the model to train")
    if objective == "ar" and isinstance(backbone.model, LLaDAForMaskedLM):
        backbone = Backbone(
            LLAMA_FAMILY, causal_llama(backbone.model), backbone.tokenizer, backbone.name
        )
    blocks = None if backbone.family.causal else backbone.blocks
    length = None if blocks is None else blocks.length
    shifted = (
        f"{backbone.family.model_type} models predict a token from the one before it and cannot be"
        " trained here, where every position is trained to predict its token"
    )
    refusals = {
        shifted: not backbone.family.causal and backbone.reads_at != 0,
        "objective ar trains Llamas, and the others diffusion models": (
            backbone.family.causal != (objective == "ar")
        ),
        "it counts blocks from the sequence's beginning, training from the response's": (
            blocks is not None and blocks.origin != "response"
        ),
        f"it attends in blocks of {length}: add --block-length {length}": (
            length not in (None, recipe.block_length)
        ),
    }
    for reason, refused in refusals.items():
        if refused:
            raise UserError(f"--init {recipe.init}: {reason}")
    backbone.text_tokenizer()  # refused here if there is none
    if recipe.block_length is not None:
        backbone.model.config.update(
            {"block_size": recipe.block_length, "block_origin": "response"}
        )
    backbone.model.train()
    return backbone


def examples_for(recipe: Recipe, backbone: Backbone) -> tuple[data.Examples, int]:
    """The training examples for a model, and the number of steps. Raises UserError for a bad file,
    and if neither a file nor steps are known."""
    tokenizer = backbone.text_tokenizer()
    end = backbone.family.end_of_turn
    per_step = recipe.batch * accumulation(recipe) * processes()
    if recipe.data is not None:
        once = data.FileExamples(
            tokenizer, Path(recipe.data), recipe.seed, backbone.max_length, end
        )
        steps = recipe.steps or math.ceil(recipe.epochs * len(once) / per_step)
        return once.repeated(steps * per_step), steps
    if recipe.steps is None:
        raise UserError("--data FILE is needed, or --steps with nano's generated problems")
    drawn = (recipe.seed, recipe.mix, recipe.examples, recipe.repeats, recipe.shots, end)
    return data.NanoExamples(tokenizer, recipe.steps * per_step, recipe.batch, *drawn), recipe.steps


def collator_for(objective: str, recipe: Recipe, backbone: Backbone) -> data.Collator:
    """The collator of an objective with its mask and blocks."""
    # Some batches of generated examples are as long as responses are when nano is evaluated.
    lengths: tuple[int, ...] = ()
    if recipe.data is None:
        longest = max(suite_named(name).generated.length for name in recipe.mix or data.NANO_SUITES)
        lengths = data.LENGTHS if longest <= data.LENGTHS[-1] else data.LONG_LENGTHS
    batches = data.CorruptedBatches(
        backbone.eos_id, backbone.mask_id, recipe.seed, lengths, blocks=recipe.blocks
    )
    if recipe.block_length is not None:
        return BlockBatches(
            batches, recipe.block_length, recipe.prefixes, recipe.first_weight, recipe.mask
        )
    if objective == "llada":
        return batches
    if objective == "ar":
        return data.NextTokenBatches(batches)
    if recipe.mask == "two-stream":
        return TwoStreamBatches(batches, recipe.random_orders)
    return data.PositionBatches(batches, None if recipe.positions == "all" else recipe.positions)


def prepare_folder(out: Path, recorded: dict[str, Any], resume: bool) -> None:
    """Make `out`, and record the configuration there as train.json.

    Args:
        out: the folder.
        recorded: the configuration, as JSON.
        resume: whether it has to be there already, with this configuration.

    Raises:
        UserError: it is not there to resume, has another configuration, or is not empty.
    """
    note = out / "train.json"
    wrong = ""
    before = json.loads(note.read_text()) if note.exists() else {}
    changed = sorted(name for name in before | recorded if before.get(name) != recorded.get(name))
    if resume and not note.exists():
        wrong = f"nothing to resume: {note} does not exist"
    elif resume and changed:
        wrong = f"--resume with another configuration: {', '.join(changed)} differ from {note}"
    elif not resume and out.exists() and any(out.iterdir()):
        wrong = f"{out} is not empty; choose another --out, or go on with its training by --resume"
    if wrong:
        raise UserError(wrong)
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(recorded, indent=1) + "\n")


def save_curve(history: list[dict[str, Any]], out: Path) -> None:
    """`loss.csv` and `loss.png` from the trainer's log."""
    from matplotlib.figure import Figure

    columns = ["step", "loss", "learning_rate", "grad_norm", "tokens_per_second"]
    frame = pd.DataFrame([entry for entry in history if "loss" in entry])[columns]
    frame.to_csv(out / "loss.csv", index=False)
    figure = Figure(figsize=(4.5, 3))
    axes = figure.subplots()
    axes.plot(frame["step"], frame["loss"], color="black", linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss (nats per response token)", yscale="log")
    figure.tight_layout()
    figure.savefig(out / "loss.png", dpi=150)


def training_arguments(
    recipe: Recipe, out: Path, steps: int, save_every: int, shards: dict[str, Any] | None = None
) -> TrainingArguments:
    """Transformers' arguments: AdamW, and a learning rate that warms up, stays, and decays linearly
    at the end.

    Args:
        recipe: the values.
        out: where checkpoints go.
        steps: optimizer steps.
        save_every: steps between checkpoints.
        shards: arguments from `sharding`.

    Raises:
        UserError: wrong arguments in recipe.trainer, some of which would be used only hours later.
    """
    values: dict[str, Any] = {
        "output_dir": str(out / "checkpoints"),
        "max_steps": steps,
        "per_device_train_batch_size": recipe.batch,
        "gradient_accumulation_steps": accumulation(recipe),
        "learning_rate": recipe.lr,
        "weight_decay": recipe.weight_decay,
        "adam_beta2": recipe.adam_beta2,
        "max_grad_norm": 1.0,
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {
            "num_decay_steps": int(steps * recipe.decay_fraction),
            "min_lr_ratio": recipe.min_lr_ratio,
            "decay_type": "linear",
        },
        # Short trainings have no time for the whole warmup.
        "warmup_steps": min(recipe.warmup, steps // 2),
        # A processor that has to emulate bf16 takes twenty times as long.
        "bf16": torch.cuda.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
        "use_cpu": not torch.cuda.is_available(),
        "logging_steps": min(25, steps),
        "save_steps": save_every,
        "save_total_limit": 2,
        # Examples have their order from their index, and collators need all of their fields.
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
        "report_to": [],
        "seed": recipe.seed,
    }
    kinds = get_type_hints(TrainingArguments)
    with explained(f"--trainer {json.dumps(recipe.trainer)}", TypeError, ValueError):
        for name, value in recipe.trainer.items():
            with suppress(TypeError):  # a type that JSON has not; transformers reads a text for it
                msgspec.convert(value, kinds.get(name, Any))
        return TrainingArguments(**values | (shards or {}) | recipe.trainer)


def train(
    objective: str,
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    save_every: int = 250,
    shard: bool = False,
) -> None:
    """Train a model by a recipe and write it to `out`.

    Args:
        objective: llada, fef or ar.
        recipe: all other values.
        out: the folder.
        resume: go on from the last checkpoint, with any number of processes.
        save_every: steps between checkpoints.
        shard: shard the model over the processes.

    Raises:
        UserError: what cannot be used, and a training that diverged.
    """
    set_seed(recipe.seed)
    backbone = start(recipe, objective)
    model: Any = backbone.model
    examples, steps = examples_for(recipe, backbone)
    layer = type(model.model.layers[0]).__name__
    arguments = training_arguments(recipe, out, steps, save_every, sharding(layer) if shard else {})
    if shard and PartialState().distributed_type == DistributedType.MULTI_CPU:
        # Without an accelerator, accelerate would replicate the model on every process.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    if os.environ.get("RANK", "0") == "0":  # of several processes one claims the folder
        prepare_folder(out, {"objective": objective, **to_builtins(recipe)}, resume)
    collator = collator_for(objective, recipe, backbone)
    trainer = DiffusionTrainer(
        model=model, args=arguments, train_dataset=examples, data_collator=collator
    )
    trainer.loss_weight = recipe.loss_weight
    trainer.rows_per_forward = recipe.rows_per_forward
    # The trainer then averages over the accumulated batches itself.
    trainer.model_accepts_loss_kwargs = False
    checkpoints = list((out / "checkpoints").glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=bool(checkpoints) or None)
    if trainer.is_world_process_zero():
        save_curve(trainer.state.log_history, out)
    # On every process: where weights are sharded, saving gathers them.
    trainer.save_model(str(out / "checkpoints" / "last"))
    if trainer.is_world_process_zero():
        trained = type(model).from_pretrained(out / "checkpoints" / "last", dtype=torch.bfloat16)
        lost = [name for name, weight in trained.named_parameters() if not weight.isfinite().all()]
        if lost:
            raise UserError(
                f"the training diverged: {len(lost)} tensors such as {lost[0]} are not finite;"
                " lower --lr"
            )
        trained.save_pretrained(out)
        backbone.text_tokenizer().save_pretrained(out)
