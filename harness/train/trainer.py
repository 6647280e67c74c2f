"""transformers' Trainer with a diffusion objective, on one process or several, where the batch of a step is the same.

A model is sharded over processes by PyTorch's FSDP2 (`fully_shard`) through accelerate and transformers' Trainer.
"""

import math
import os
import time
from contextlib import nullcontext
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from transformers import Trainer

from harness.errors import UserError
from harness.train.objectives import block_loss, fef_loss, llada_loss, next_token_loss, two_stream_loss
from harness.train.recipes import Recipe

Inputs = dict[str, torch.Tensor]


def processes() -> int:
    """How many processes train together, as torchrun says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def accumulation(recipe: Recipe) -> int:
    """Forwards and backwards of each process in a step, so that all processes together see `global_batch` examples.

    Without `global_batch` it is the recipe's. Raises UserError if the batch cannot be divided so.
    """
    if recipe.global_batch is None:
        return recipe.accumulation
    together = recipe.batch * processes()
    if recipe.global_batch % together:
        raise UserError(
            f"--global-batch {recipe.global_batch} is no multiple of {together}, the examples of one forward "
            f"(--batch {recipe.batch}) of {processes()} processes; give another --batch, or number of processes"
        )
    return recipe.global_batch // together


def sharding(layer: str) -> dict[str, Any]:
    """TrainingArguments that shard a model by its layers, of a class of this name. Raises UserError for one process."""
    if processes() < 2:
        raise UserError("--shard needs several processes: torchrun --nproc-per-node N -m harness.train ...")
    settings = {"version": 2, "transformer_layer_cls_to_wrap": [layer], "state_dict_type": "FULL_STATE_DICT"}
    return {"fsdp": True, "fsdp_config": settings}


def set_weights(model: torch.nn.Module, weights: dict[str, Any]) -> None:
    """Load whole weights into a model, also one that is sharded."""
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))


class DiffusionTrainer(Trainer):
    """Trainer of batches as the collators make them, which tell the objective; loss_weight: of objective `llada`.

    rows_per_forward: position-conditioned rows that go through the model at once, so that memory does not grow with
    them.
    """

    loss_weight: str = "1/t"
    rows_per_forward: int = 64
    _tokens = 0
    _since = 0.0

    def training_step(
        self, model: torch.nn.Module, inputs: Inputs, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """One backward pass of a batch, in pieces of rows; returns the loss."""
        self._since = self._since or time.perf_counter()
        self._tokens += inputs["corrupted" if "corrupted" in inputs else "inputs"].numel()
        pieces = self._pieces(inputs)
        losses = []
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            with nullcontext() if last else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, piece, num_items_in_batch))
        loss = torch.stack(losses).sum()
        if not bool(torch.isfinite(loss)):
            raise UserError(
                f"the loss became {float(loss)} at step {self.state.global_step}; the last checkpoint is intact: "
                "go on from it with a lower --lr"
            )
        return loss

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: Inputs,
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        if "position" in inputs:
            logits_RV = model(input_ids=inputs["inputs"], positions=inputs["position"][:, None]).logits[:, 0]
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
            return two_stream_loss(draft_BCV, target_BCV, inputs["target"], inputs["used"], int(inputs["tokens"]))
        if "predicted" in inputs:
            return next_token_loss(model(input_ids=inputs["inputs"]).logits, inputs["inputs"], inputs["predicted"])
        logits_BLV = model(input_ids=inputs["corrupted"]).logits
        return llada_loss(
            logits_BLV, inputs["clean"], inputs["corrupted"], inputs["response"], inputs["share"], self.loss_weight
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the tokens that went through the model per second since the last time, on this process."""
        if "loss" in logs and self._tokens:
            now = time.perf_counter()
            logs["tokens_per_second"] = self._tokens / (now - self._since)
            self._tokens, self._since = 0, now
        super().log(logs, start_time)

    def _pieces(self, inputs: Inputs) -> list[Inputs]:
        """A batch in pieces of at most rows_per_forward rows; every process makes the same number of pieces."""
        if "position" not in inputs:
            return [inputs]
        rows = len(inputs["position"])
        count = torch.tensor([math.ceil(rows / self.rows_per_forward)], device=self.args.device)
        most = int(self.accelerator.gather(count).max())
        names = ("inputs", "position", "target", "weight")
        split = [[inputs[name][i :: int(count)] for name in names] for i in range(int(count))]
        pieces = [dict(zip(names, piece, strict=True)) | {"tokens": inputs["tokens"]} for piece in split]
        # Sharded models communicate at every forward, so a process with fewer pieces repeats one with weight 0.
        idle = pieces[0] | {"weight": torch.zeros_like(pieces[0]["weight"])}
        return [idle] * (most - len(pieces)) + pieces

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: torch.nn.Module | None = None) -> None:
        # Checkpoints carry the official names of the weights, which only from_pretrained translates: the trainer's
        # loading would leave the weights as they are.
        target: Any = self.model if model is None else model
        kind = type(self.accelerator.unwrap_model(target))
        set_weights(target, kind.from_pretrained(resume_from_checkpoint, dtype=torch.float32).state_dict())
