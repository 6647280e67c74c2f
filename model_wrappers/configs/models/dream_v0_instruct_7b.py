"""Dream-v0-Instruct-7B: `fef-dllm opencompass --models dream_v0_instruct_7b --datasets
gsm8k_gen`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

models = [
    {
        **common,
        **how,
        "abbr": f"dream_v0_instruct_7b-{name}",
        "path": "Dream-org/Dream-v0-Instruct-7B",
    }
    for name, how in decoders.items()
]
