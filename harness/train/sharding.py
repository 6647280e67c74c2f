"""Training on several processes: the batch of a step whatever their number, and models that are sharded over them.

Sharding is PyTorch's FSDP2 (`fully_shard`) through accelerate and transformers' Trainer.
"""

import os
from typing import Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from harness.errors import UserError
from harness.train.recipes import Recipe


def processes() -> int:
    """How many processes train together, as torchrun says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def accumulation(recipe: Recipe) -> int:
    """Forwards and backwards of each process in a step, so that all processes together see `global_batch` examples.

    Without `global_batch` it is the recipe's own. Raises UserError if the batch cannot be divided so.
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


def shards(layer: str) -> dict[str, Any]:
    """TrainingArguments that shard a model by its layers, of a class of this name. Raises UserError for one process."""
    if processes() < 2:
        raise UserError("--shard needs several processes: torchrun --nproc-per-node N -m harness.train ...")
    settings = {"version": 2, "transformer_layer_cls_to_wrap": [layer], "state_dict_type": "FULL_STATE_DICT"}
    return {"fsdp": True, "fsdp_config": settings}


def shard_on_cpus() -> None:
    """Let accelerate shard on processes without an accelerator, which it would else replicate the model on."""
    state = PartialState()
    if state.distributed_type == DistributedType.MULTI_CPU:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def set_weights(model: torch.nn.Module, weights: dict[str, Any]) -> None:
    """Load whole weights into a model, also one that is sharded."""
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
