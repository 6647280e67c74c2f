"""nano, which ships with this project, in OpenCompass: `fef-dllm opencompass --models nano --datasets gsm8k_gen`."""

DECODERS: dict[str, dict[str, object]] = {
    "llada": {"path": "nano", "method": "llada"},
    "fef-2": {"path": "nano-fef", "method": "fef", "steps": 2},
    "two-stream": {
        "path": "nano-fef",
        "method": "fef",
        "verify": "two-stream",
        "skip_root_row": True,
        "adaptive_window": True,
        "remask_below": 0.9,
    },
    "threshold": {"path": "nano", "method": "threshold"},
}
models = [
    {
        "type": "model_wrappers.opencompass_model.DiffusionModel",
        "abbr": f"nano-{name}",
        "max_out_len": 64,
        "stop_at_eos": True,  # data sets ask for 512 tokens, nano ends sooner; the text is the same
        "batch_size": 8,
        "run_cfg": {"num_gpus": 0},
        **how,
    }
    for name, how in DECODERS.items()
]
