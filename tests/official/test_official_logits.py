"""Logits of every family equal those of the official implementation on the same weights (see
README.md)."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from official_weights import kernels, random_weights
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.registry import FAMILIES

GOLDENS = Path(__file__).parent / "goldens" / "logits"
GOLDEN = {path.stem: path for path in sorted(GOLDENS.glob("*.safetensors"))}
DTYPES = ("float32", "bfloat16")
SHARE = 0.5  # see is_close


def golden(name: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """A golden record: what is told of it, and its tensors."""
    with safe_open(GOLDEN[name], "pt") as file:
        return file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def one_by_one(
    experts: Any, hidden_ND: torch.Tensor, expert_NK: torch.Tensor, weight_NK: torch.Tensor
) -> torch.Tensor:
    """One expert after the other, gate and up in two products: how the official code of LLaDA-MoE
    sums."""
    out_ND = torch.zeros_like(hidden_ND)
    for number in range(experts.num_experts):
        # rows in its order: they round by place
        slot_M, token_M = expert_NK.T.eq(number).nonzero(as_tuple=True)
        gate, up = experts.gate_up_proj[number].chunk(2)
        inner = F.silu(F.linear(hidden_ND[token_M], gate)) * F.linear(hidden_ND[token_M], up)
        made = F.linear(inner, experts.down_proj[number]) * weight_NK[token_M, slot_M, None]
        out_ND.index_add_(0, token_M, made)
    return out_ND


def summed_at_last(
    experts: Any, hidden_ND: torch.Tensor, expert_NK: torch.Tensor, weight_NK: torch.Tensor
) -> torch.Tensor:
    """One expert after the other, and what they give weighed and summed together: the official code
    of LLaDA2."""
    made_NKD = hidden_ND.new_empty(*expert_NK.shape, hidden_ND.shape[1])
    for number in range(experts.num_experts):
        token_M, slot_M = expert_NK.eq(number).nonzero(as_tuple=True)
        gate, up = experts.gate_up_proj[number].chunk(2)
        inner = F.silu(F.linear(hidden_ND[token_M], gate)) * F.linear(hidden_ND[token_M], up)
        made_NKD[token_M, slot_M] = F.linear(inner, experts.down_proj[number])
    return (made_NKD.to(weight_NK.dtype) * weight_NK[..., None]).sum(1).to(hidden_ND.dtype)


# How the official code of these families sums over experts.
EXPERTS = {"llada_moe": one_by_one, "llada2_moe": summed_at_last}
for each in EXPERTS.values():
    ALL_EXPERTS_FUNCTIONS.register(each.__name__, each)


@pytest.fixture(scope="module", params=sorted(GOLDEN))
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Name, description, tensors, and the folder of the checkpoint made again."""
    about, tensors = golden(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "config.json").write_text(about["config"])
    weights = random_weights(json.loads(about["shapes"]), int(about["seed"]))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return request.param, about, tensors, folder


def raw_logits(backbone: Backbone, ids_BL: torch.Tensor) -> torch.Tensor:
    """The model's logits as they come: the official code shifts them in its sampler."""
    seen = {}
    if backbone.blocks is not None:
        number_L = torch.arange(ids_BL.shape[1]) // backbone.blocks.length
        seen = {"attention_mask": (number_L <= number_L[:, None])[None, None]}
    with torch.inference_mode():
        logits_BLV: torch.Tensor = backbone.model(input_ids=ids_BL, use_cache=False, **seen).logits
    return logits_BLV


def is_close(logits_BLV: torch.Tensor, tensors: dict[str, torch.Tensor], dtype: str) -> bool:
    """Whether logits are the official ones but for the order in which kernels sum.

    In bf16 the measure is the official code's own rounding error, its distance from its fp32 logits
    (root mean square): ours may be SHARE of that from it. Code that rounds elsewhere is as far from
    fp32 and independent of it, so sqrt(2) away. The same code with other kernels (no vector
    instructions, AVX2, AVX512; experts one by one or grouped) is 0 to 0.43 away.
    """
    if dtype == "float32":
        return torch.allclose(logits_BLV, tensors["float32"], atol=2e-5, rtol=2e-5)
    exact_BLV, official_BLV = tensors["float32"], tensors["bfloat16"].float()
    return bool(rms(logits_BLV.float() - official_BLV) < SHARE * rms(official_BLV - exact_BLV))


def rms(values: torch.Tensor) -> float:
    """Root mean square of a tensor of any shape."""
    return float(values.square().mean().sqrt())


def test_every_family_has_a_record() -> None:
    # DiffusionGemma's class is transformers' own, and so is its sampler; SDAR-MoE's is on the hub
    # alone.
    assert len(GOLDEN) == len([each for each in FAMILIES.values() if not each.causal]) - 2
    assert sum(path.stat().st_size for path in GOLDEN.values()) < 200_000


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_are_those_of_the_official_code(record: Any, dtype: str) -> None:
    """Bit for bit where the record was made with the same kernels."""
    name, about, tensors, folder = record
    backbone = load_backbone(folder, dtype=dtype)
    if name in EXPERTS:
        backbone.model.set_experts_implementation(EXPERTS[name].__name__)
    logits_BLV = raw_logits(backbone, tensors["ids"])
    assert is_close(logits_BLV, tensors, dtype)
    if (about["torch"], about["kernels"]) == (torch.__version__, kernels()):
        assert torch.equal(logits_BLV, tensors[dtype])


# Summed one by one in bfloat16 a router's near tie may choose another expert, as it does on some
# processors.
@pytest.mark.parametrize(
    ("experts", "dtype"),
    [("grouped_mm", "float32"), ("grouped_mm", "bfloat16"), ("eager", "float32")],
)
@pytest.mark.parametrize("record", EXPERTS, indirect=True)
def test_transformers_ways_to_run_experts_round_otherwise_and_no_more(
    record: Any, experts: str, dtype: str
) -> None:
    _, _, tensors, folder = record
    backbone = load_backbone(folder, dtype=dtype)
    assert backbone.model.get_experts_implementation()[""] == "grouped_mm"
    backbone.model.set_experts_implementation(experts)
    assert is_close(raw_logits(backbone, tensors["ids"]), tensors, dtype)


def test_a_record_is_what_its_hash_says(record: Any) -> None:
    _, about, tensors, _ = record
    assert hashlib.sha256(tensors["float32"].numpy().tobytes()).hexdigest() == about["sha256"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_change_of_one_weight_shows(record: Any, tmp_path: Path, dtype: str) -> None:
    """By 0.1, a third of the weights' standard deviation."""
    kind, about, tensors, _ = record
    weights = random_weights(json.loads(about["shapes"]), int(about["seed"]))
    name = next(
        key for key in sorted(weights) if "q_proj.weight" in key or "query_key_value" in key
    )
    weights[name][0, 0] += 0.1
    (tmp_path / "config.json").write_text(about["config"])
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    backbone = load_backbone(tmp_path, dtype=dtype)
    if kind == "llada_moe":
        backbone.model.set_experts_implementation("one_by_one")
    assert not is_close(raw_logits(backbone, tensors["ids"]), tensors, dtype)
