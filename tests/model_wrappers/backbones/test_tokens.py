"""The tokens with a role, by family: mask, what fills a response behind its end, and what closes a
turn."""

import json
from pathlib import Path

import pytest
import torch
from families import VOCABULARY, checkpoint, random_model, tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.registry import FAMILIES
from model_wrappers.chat import content_length, response_text

WORDS = ["Ġ", "a", "b", "c", "ab", "1", "2", ":"]


def tokenizer(*special: str) -> PreTrainedTokenizerFast:
    """Letters, and special tokens with the ids after them."""
    backend = Tokenizer(
        models.BPE({word: number for number, word in enumerate(WORDS)}, [("a", "b")])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def with_tokenizer(name: str, *special: str, **config: int | None) -> Backbone:
    return Backbone(FAMILIES[name], random_model(name, **config), tokenizer(*special), name)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("llada", "<|eot_id|>"),
        ("Dream", "<|im_end|>"),
        ("a2d-qwen3", "<|im_end|>"),
        ("llada_moe", "<|role_end|>"),
    ],
)
def test_the_end_of_a_turn_is_the_tokenizers(name: str, end: str) -> None:
    backbone = with_tokenizer(name, "<|other|>", end)
    assert backbone.eot_id == len(WORDS) + 1


@pytest.mark.parametrize("name", ["llada_moe", "a2d-qwen3", "Dream"])
def test_the_tokenizer_names_the_mask_where_the_config_does_not(name: str) -> None:
    backbone = with_tokenizer(name, "<|im_end|>", "<|mask|>", mask_token_id=None)
    assert backbone.mask_id == len(WORDS) + 1


def test_of_two_masks_the_configs_is_the_models() -> None:
    assert with_tokenizer("Dream", "<|mask|>").mask_id == VOCABULARY - 1


@pytest.mark.parametrize(("name", "eos"), [("a2d-qwen3", len(WORDS) + 1), ("Dream", len(WORDS))])
def test_qwen3_fills_with_its_padding_and_dream_with_the_eos_of_its_config(
    name: str, eos: int
) -> None:
    backbone = with_tokenizer(name, "<|endoftext|>", "<|im_end|>", eos_token_id=eos)
    assert (backbone.eos_id, backbone.eot_id) == (len(WORDS), len(WORDS) + 1)


@pytest.mark.parametrize("name", ["Dream", "a2d-qwen3"])
@pytest.mark.parametrize(("end", "content"), [("<|im_end|>", 2), ("<|endoftext|>", 2), (None, 4)])
def test_text_ends_at_the_first_eos_or_end_of_turn(
    name: str, end: str | None, content: int
) -> None:
    backbone = with_tokenizer(name, "<|endoftext|>", "<|im_end|>", eos_token_id=len(WORDS))
    ids = [1, 2, 3, 2]
    if end is not None:
        ids[2] = backbone.text_tokenizer().get_vocab()[end]
    assert content_length(backbone, torch.tensor(ids)) == content
    assert response_text(backbone, torch.tensor(ids)) == ("abcb" if end is None else "ab")


@pytest.mark.parametrize(
    ("name", "mask", "eos", "eot"),
    [
        ("llada", 126336, 126081, 126348),
        ("Dream", 151666, 151643, 151645),
        ("a2d-qwen3", 151669, 151643, 151645),
        ("llada_moe", 156895, 156892, None),
    ],
)
def test_published_checkpoints_without_tokenizer_have_ids(
    name: str, mask: int, eos: int, eot: int | None
) -> None:
    sizes = {
        "hidden_size": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
    }
    named = 151645 if name == "a2d-qwen3" else eos  # what their config.json says
    mask_id = None if name in ("a2d-qwen3", "llada_moe") else mask
    backbone = tiny(name, vocab_size=157184, eos_token_id=named, mask_token_id=mask_id, **sizes)
    assert (backbone.mask_id, backbone.eos_id, backbone.eot_id) == (mask, eos, eot)


def test_dreams_vocabulary_and_merges_are_read_without_its_code(tmp_path: Path) -> None:
    """The published folder has no tokenizer.json, and a class of its own that is never run."""
    checkpoint("Dream", tmp_path, eos_token_id=len(WORDS), mask_token_id=len(WORDS) + 2)
    (tmp_path / "vocab.json").write_text(
        json.dumps({word: number for number, word in enumerate(WORDS)})
    )
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    added = ["<|endoftext|>", "<|im_end|>", "<|mask|>"]
    special = {
        str(at): {"content": token, "special": True} for at, token in enumerate(added, len(WORDS))
    }
    settings = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "added_tokens_decoder": special,
        **{"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "mask_token": "<|mask|>"},
        "chat_template": (
            "{% for message in messages %}{{ message['content'] }}<|im_end|>{% endfor %}"
        ),
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    backbone = load_backbone(tmp_path)
    read = backbone.text_tokenizer()
    assert read("ab 12:<|im_end|><|mask|>", add_special_tokens=False).input_ids == [
        4,
        0,
        5,
        6,
        7,
        9,
        10,
    ]
    assert read.decode([4, 0, 5, 6, 7]) == "ab 12:"
    assert (backbone.eos_id, backbone.eot_id, backbone.mask_id) == (8, 9, 10)
