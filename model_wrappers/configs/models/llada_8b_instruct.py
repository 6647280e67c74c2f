"""LLaDA-8B-Instruct in OpenCompass: `fef-dllm opencompass --models llada_8b_instruct --datasets gsm8k_gen`."""

DECODERS: dict[str, dict[str, object]] = {
    "llada": {"method": "llada", "block_length": 32},
    "fef-2": {"method": "fef", "steps": 2},
    "two-stream": {
        "method": "fef",
        "verify": "two-stream",
        "skip_root_row": True,
        "adaptive_window": True,
        "remask_below": 0.9,
    },
    "threshold": {"method": "threshold", "block_length": 32},
}
models = [
    {
        "type": "model_wrappers.opencompass_model.DiffusionModel",
        "abbr": f"llada_8b_instruct-{name}",
        "path": "GSAI-ML/LLaDA-8B-Instruct",
        "max_out_len": 256,
        "batch_size": 1,
        "run_cfg": {"num_gpus": 1},
        **how,
    }
    for name, how in DECODERS.items()
]
