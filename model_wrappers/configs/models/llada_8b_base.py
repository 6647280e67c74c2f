"""LLaDA-8B-Base, without a chat template: `fef-dllm opencompass --models llada_8b_base --datasets
ARC_c_ppl`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

models = [
    {
        **common,
        **how,
        "abbr": f"llada_8b_base-{name}",
        "path": "GSAI-ML/LLaDA-8B-Base",
        "plain": True,
    }
    for name, how in decoders.items()
]
