"""A model of no known family: its code runs only where that is said, and gives logits alone."""

import json
from pathlib import Path

import pytest
import torch
from fakes import WHOLE
from safetensors.torch import save_file

from model_wrappers import METHODS, Backbone, decode, load_backbone

CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput


class ParrotConfig(PretrainedConfig):
    model_type = "parrot"

    def __init__(self, vocab_size=12, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size


class ParrotModel(PreTrainedModel):
    config_class = ParrotConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, 8)
        self.head = torch.nn.Linear(8, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids):
        x = self.embed(input_ids)
        return MaskedLMOutput(logits=self.head(torch.cumsum(x, 1) + 2 * torch.cumsum(x.flip(1), 1).flip(1)))
"""
IDS_1L = torch.tensor([[5, 1, 11, 7, 11]])
UNSUPPORTED = {name for name in WHOLE if METHODS[name].needs_extend} | {"dcd"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint with code of its own; what transformers copies of that code stays in the test's
    folder."""
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    made = tmp_path / "parrot"
    made.mkdir()
    (made / "modeling_parrot.py").write_text(CODE)
    config = {
        "model_type": "parrot",
        "architectures": ["ParrotModel"],
        "auto_map": {
            "AutoConfig": "modeling_parrot.ParrotConfig",
            "AutoModel": "modeling_parrot.ParrotModel",
        },
        **{
            "vocab_size": 12,
            "mask_token_id": 11,
            "eos_token_id": 10,
            "max_position_embeddings": 64,
        },
    }
    (made / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(12, 8, generator=generator) for name in ("embed.weight", "head.weight")
    }
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    return made


@pytest.fixture
def remote(folder: Path) -> Backbone:
    return load_backbone(folder, trust_remote_code=True)


def test_its_code_is_not_run_unless_that_is_said(folder: Path) -> None:
    (folder / "modeling_parrot.py").write_text("raise SystemExit('this code was run')")
    with pytest.raises(ValueError, match=r"unknown model_type 'parrot'.*--trust-remote-code"):
        load_backbone(folder)


def test_it_gives_logits_at_positions_of_both_shapes(remote: Backbone) -> None:
    whole_1LV = remote.logits(IDS_1L)
    assert whole_1LV.shape == (1, 5, 12) and (remote.mask_id, remote.eos_id, remote.max_length) == (
        11,
        10,
        64,
    )
    assert torch.equal(remote.logits(IDS_1L, torch.tensor([4, 0])), whole_1LV[:, [4, 0]])
    assert torch.equal(remote.logits(IDS_1L, torch.tensor([[3]])), whole_1LV[:, [3]])


def test_it_is_read_where_the_user_says(folder: Path, remote: Backbone) -> None:
    shifted = load_backbone(folder, trust_remote_code=True, reads_at=-1)
    assert torch.equal(shifted.logits(IDS_1L)[:, 1:], remote.logits(IDS_1L)[:, :-1])


@pytest.mark.parametrize("method", sorted(set(WHOLE) - UNSUPPORTED))
def test_decoders_that_need_logits_alone_decode_with_it(remote: Backbone, method: str) -> None:
    assert decode(remote, torch.tensor([1, 2]), method, gen_length=4).tokens.shape == (4,)


@pytest.mark.parametrize("method", sorted(UNSUPPORTED))
def test_the_others_are_refused(remote: Backbone, method: str) -> None:
    with pytest.raises(ValueError, match="attention"):
        decode(remote, torch.tensor([1, 2]), method, gen_length=4)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    save_file(
        {"embed.weight": torch.ones(12, 8)}, folder / "model.safetensors", metadata={"format": "pt"}
    )
    with pytest.raises(ValueError, match=r"no weights for head\.weight"):
        load_backbone(folder, trust_remote_code=True)


def test_it_may_be_on_several_devices(folder: Path, tmp_path: Path) -> None:
    whole = load_backbone(folder, trust_remote_code=True)
    split = load_backbone(
        folder,
        trust_remote_code=True,
        device_map={"embed": "cpu", "head": "disk"},
        offload_folder=tmp_path / "offloaded",
    )
    assert torch.equal(split.logits(IDS_1L), whole.logits(IDS_1L))
    assert not split.is_changed
