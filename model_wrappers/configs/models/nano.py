"""nano, which ships with this project, in OpenCompass: `fef-dllm opencompass --models nano
--datasets gsm8k_gen`."""

from mmengine.config import read_base

with read_base():
    from ._decoders import common, decoders

# Data sets ask for 512 tokens, which nano does not know: its responses are empty there, and
# stop_at_eos ends them soon.
small = {"run_cfg": {"num_gpus": 0}, "batch_size": 8, "stop_at_eos": True}
models = [
    {
        **common,
        **how,
        **small,
        "abbr": f"nano-{name}",
        "path": "nano-fef" if how["method"] == "fef" else "nano",
    }
    for name, how in decoders.items()
]
