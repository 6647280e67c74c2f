"""Backbones: logits, the ledger, and loading official checkpoints."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fakes import official_checkpoint
from safetensors.torch import load_file

from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.backbones.protocol import Ledger

IDS_BL = torch.tensor([[5, 1, 39, 39, 7, 39], [2, 39, 8, 0, 39, 3]])
EACH_ROW_OWN_B2 = torch.tensor([[4, 0], [1, 5]])


def reference_logits(folder: Path, ids_BL: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """LLaDA's forward pass written out on a folder's weights: pre-norm blocks of rotary attention
    and SwiGLU."""
    config = json.loads((folder / "config.json").read_text())
    weights = {
        name: w
        for file in sorted(folder.glob("*.safetensors"))
        for name, w in load_file(file).items()
    }
    heads, kv_heads = config["n_heads"], config["n_kv_heads"]
    size, (batch, length) = config["d_model"] // heads, ids_BL.shape

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ weights[f"model.transformer.{name}.weight"].T

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + config["rms_norm_eps"])
        return x * scale * weights[f"model.transformer.{name}.weight"]

    angles = torch.arange(length)[:, None] * config["rope_theta"] ** (
        -torch.arange(0, size, 2) / size
    )
    turn = torch.polar(torch.ones_like(angles), angles)

    def split(x: torch.Tensor, count: int, rotate: bool) -> torch.Tensor:
        x = x.reshape(batch, length, count, size).transpose(1, 2)
        if rotate:
            turned = torch.complex(*x.chunk(2, -1)) * turn
            x = torch.cat([turned.real, turned.imag], -1)
        return x.repeat_interleave(heads // count, dim=1)

    hidden = weights["model.transformer.wte.weight"][ids_BL]
    for i in range(config["n_layers"]):
        x, block = norm(hidden, f"blocks.{i}.attn_norm"), f"blocks.{i}"
        query = split(linear(x, f"{block}.q_proj"), heads, rotate=True)
        key = split(linear(x, f"{block}.k_proj"), kv_heads, rotate=True)
        value = split(linear(x, f"{block}.v_proj"), kv_heads, rotate=False)
        scores = query @ key.transpose(-1, -2) / size**0.5
        if causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, -1)
        hidden = hidden + linear(mixed, f"{block}.attn_out")
        x = norm(hidden, f"{block}.ff_norm")
        gated = F.silu(linear(x, f"{block}.ff_proj")) * linear(x, f"{block}.up_proj")
        hidden = hidden + linear(gated, f"{block}.ff_out")
    return linear(norm(hidden, "ln_f"), "ff_out")


def test_ledger_counts_calls_rows_and_tokens(tiny: Backbone) -> None:
    ledger = Ledger(tiny)
    ledger.logits(IDS_BL)
    ledger.logits(IDS_BL[:1], positions=torch.tensor([2]))
    ledger.logits(IDS_BL, positions=EACH_ROW_OWN_B2, causal=True)
    assert (ledger.calls, ledger.rows, ledger.tokens) == (3, 5, 30)


def test_a_row_has_the_same_logits_alone_and_in_a_batch(tiny: Backbone) -> None:
    alone_BLV = torch.cat([tiny.logits(row[None]) for row in IDS_BL])
    torch.testing.assert_close(tiny.logits(IDS_BL), alone_BLV, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_official_checkpoint_has_reference_logits(
    tmp_path: Path, n_kv_heads: int, sharded: bool, causal: bool
) -> None:
    folder = official_checkpoint(tmp_path, sharded=sharded, n_kv_heads=n_kv_heads)
    logits_BLV = load_backbone(folder, dtype="float32").logits(IDS_BL, causal=causal)
    torch.testing.assert_close(
        logits_BLV, reference_logits(folder, IDS_BL, causal), rtol=1e-5, atol=1e-5
    )


def test_official_checkpoint_in_bfloat16_is_near_the_reference(official_folder: Path) -> None:
    backbone = load_backbone(official_folder, dtype=torch.bfloat16)
    logits_BLV = backbone.logits(IDS_BL)
    assert backbone.dtype == logits_BLV.dtype == torch.bfloat16
    reference_BLV = reference_logits(official_folder, IDS_BL)
    assert (logits_BLV - reference_BLV).norm() < 0.03 * reference_BLV.norm()


def test_rotary_angles_stay_fp32_in_bfloat16(official_folder: Path) -> None:
    rotary = load_backbone(official_folder, dtype="bfloat16").model.model.rotary_emb
    cosine, _ = rotary(torch.zeros(1, 60, 32, dtype=torch.bfloat16), torch.arange(60)[None])
    torch.testing.assert_close(cosine[0, :, 0], torch.arange(60).float().cos())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_rotary_frequencies_count(official_folder: Path, dtype: str) -> None:
    backbone = load_backbone(official_folder, dtype=dtype)
    before_BLV = backbone.logits(IDS_BL)
    rotary = backbone.model.model.rotary_emb
    frequencies = rotary.inv_freq.clone()
    rotary.inv_freq *= 0.5
    with torch.inference_mode():
        halved_BLV = backbone.model(IDS_BL).logits
    assert not torch.allclose(halved_BLV, before_BLV)
    torch.testing.assert_close(backbone.logits(IDS_BL), halved_BLV)
    rotary.inv_freq = frequencies
    assert torch.equal(backbone.logits(IDS_BL), before_BLV)
    assert rotary.to(torch.float16).inv_freq is frequencies


def test_official_checkpoint_without_tokenizer_decodes_ids(official_folder: Path) -> None:
    backbone = load_backbone(official_folder)
    assert backbone.tokenizer is None
    assert (backbone.mask_id, backbone.eos_id, backbone.vocab_size, backbone.max_length) == (
        39,
        38,
        40,
        64,
    )
    assert decode(backbone, torch.tensor([1, 2, 3]), gen_length=8).tokens.shape == (8,)


@pytest.mark.parametrize(("name", "says"), [("absent", "nano"), ("", r"config\.json")])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_backbone(tmp_path / name)


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        ("dtype", "float12", "bfloat16"),
        ("device", "abacus", "cuda"),
        ("device", "cpu:foo", "cuda"),
        pytest.param(
            "device",
            "cuda",
            "CUDA",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU"),
        ),
    ],
)
def test_an_unknown_load_option_is_refused_with_valid(
    official_folder: Path, option: str, value: str, valid: str
) -> None:
    with pytest.raises(ValueError, match=valid):
        load_backbone(official_folder, **{option: value})
