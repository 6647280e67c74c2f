"""LLaDA2.0-mini, in its blocks of 32: `fef-dllm opencompass --models llada2_mini --datasets
gsm8k_gen`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

models = [
    {
        **common,
        **how,
        "abbr": f"llada2_mini-{name}",
        "path": "inclusionAI/LLaDA2.0-mini",
        "block_length": None,
    }
    for name, how in decoders.items()
]
