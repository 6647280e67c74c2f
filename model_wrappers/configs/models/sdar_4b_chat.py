"""SDAR-4B-Chat, in its blocks of 4: `fef-dllm opencompass --models sdar_4b_chat --datasets
gsm8k_gen`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

models = [
    {
        **common,
        **how,
        "abbr": f"sdar_4b_chat-{name}",
        "path": "JetLM/SDAR-4B-Chat",
        "block_length": None,
    }
    for name, how in decoders.items()
]
