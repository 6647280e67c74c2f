"""LLaDA-8B-Instruct: `fef-dllm opencompass --models llada_8b_instruct --datasets gsm8k_gen`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

models = [
    {**common, **how, "abbr": f"llada_8b_instruct-{name}", "path": "GSAI-ML/LLaDA-8B-Instruct"}
    for name, how in decoders.items()
]
