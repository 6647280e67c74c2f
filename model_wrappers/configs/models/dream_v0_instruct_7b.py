"""Dream-v0-Instruct-7B: `fef-dllm opencompass --models dream_v0_instruct_7b --datasets
gsm8k_gen`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

# As its authors decode it: their lengths are the data set's (harness/suites/published.toml).
published = {
    "dream": {"method": "dream", "alg": "entropy", "top_p": 0.9, "temperature": 0.1},
}
models = [
    {
        **common,
        **how,
        "abbr": f"dream_v0_instruct_7b-{name}",
        "path": "Dream-org/Dream-v0-Instruct-7B",
    }
    for name, how in {**published, **decoders}.items()
]
