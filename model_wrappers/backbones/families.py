"""The families of checkpoints that are known, as data: a model's code is imported when a checkpoint
of it is loaded."""

from dataclasses import replace

from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.llada import FAMILY, LLAMA_FAMILY
from model_wrappers.backbones.model import Family

QWEN = "model_wrappers.backbones.qwen"
MIXTURES = "model_wrappers.backbones.mixtures"
DREAM_FAMILY = Family(
    model_type="Dream",
    model=f"{QWEN}:DreamForMaskedLM",
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    published_ids={"<|mask|>": 151666, "<|im_end|>": 151645},
    reads_at=-1,
    also=("dream",),
    tokenizer="transformers:Qwen2Tokenizer",  # the folder has its vocabulary and merges alone
)
FAST_DLLM_V2_FAMILY = replace(
    DREAM_FAMILY,
    model_type="Fast_dLLM_Qwen",
    model=f"{QWEN}:FastDLLM",
    mask="|<MASK>|",
    published_ids={"|<MASK>|": 151665, "<|im_end|>": 151645},
    also=(),
    tokenizer=None,
    blocks={"": Blocks(32)},
)
A2D_FAMILY = Family(
    model_type="a2d-qwen3",
    model=f"{QWEN}:MaskedQwen3",
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    fill="<|endoftext|>",
    published_ids={"<|mask|>": 151669, "<|im_end|>": 151645, "<|endoftext|>": 151643},
    also=("andi-qwen3",),
    blocks={"bd3lm": Blocks(32, "response")},
)
SDAR_FAMILY = Family(
    model_type="sdar",
    model=f"{QWEN}:SDAR",
    attention={"sdpa": "sdpa"},
    end_of_turn="<|im_end|>",
    mask="<|MASK|>",
    published_ids={"<|MASK|>": 151669, "<|im_end|>": 151645, "<|endoftext|>": 151643},
    blocks={**{rf"-b{length}(-|$)": Blocks(length) for length in (8, 16, 32, 64)}, "": Blocks(4)},
)
LLADA_MOE_FAMILY = Family(
    model_type="llada_moe",
    model=f"{MIXTURES}:LLaDAMoEForMaskedLM",
    attention={"sdpa": "sdpa"},
    end_of_turn="<|role_end|>",
    published_ids={"<|mask|>": 156895},
    also=("lladamoe",),
    architectures=("LLaDAMoEModelLM", "LLaDAMoEForMaskedLM"),
)

LLADA2_FAMILY = Family(
    model_type="llada2_moe",
    model=f"{MIXTURES}:LLaDA2MoEForMaskedLM",
    attention={"sdpa": "sdpa"},
    end_of_turn="<|role_end|>",
    published_ids={"<|mask|>": 156895, "<|endoftext|>": 156892},
    architectures=("LLaDA2MoeModelLM", "LLaDA2MoEForMaskedLM"),
    blocks={"": Blocks(32)},
)

DIFFUSION_GEMMA_FAMILY = Family(
    model_type="diffusion_gemma",
    model="transformers:DiffusionGemmaForBlockDiffusion",
    attention={"sdpa": "sdpa"},
    end_of_turn="<turn|>",
    mask=None,
    published_ids={"<turn|>": 106},
    extends=False,
    backbone=f"{MIXTURES}:CanvasBackbone",
)

ALL = (
    *(FAMILY, LLAMA_FAMILY, LLADA_MOE_FAMILY, LLADA2_FAMILY, DIFFUSION_GEMMA_FAMILY),
    replace(
        LLAMA_FAMILY, model_type="qwen2", model=f"{QWEN}:CausalQwen2", end_of_turn="<|im_end|>"
    ),
    replace(
        LLAMA_FAMILY, model_type="qwen3", model=f"{QWEN}:CausalQwen3", end_of_turn="<|im_end|>"
    ),
    *(DREAM_FAMILY, FAST_DLLM_V2_FAMILY, A2D_FAMILY, SDAR_FAMILY),
    replace(SDAR_FAMILY, model_type="sdar_moe", model=f"{QWEN}:SDARMoE"),
)
