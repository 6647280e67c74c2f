"""LLaDA-8B-Base, without a chat template, in OpenCompass: `fef-dllm opencompass --models llada_8b_base ...`."""

TWO_STREAM = {
    "method": "fef",
    "verify": "two-stream",
    "skip_root_row": True,
    "adaptive_window": True,
    "remask_below": 0.9,
}
models = [
    dict(
        type="model_wrappers.opencompass_model.DiffusionModel",
        abbr=f"llada_8b_base-{name}",
        path="GSAI-ML/LLaDA-8B-Base",
        max_out_len=256,
        batch_size=1,
        run_cfg={"num_gpus": 1},
        plain=True,
        **how,
    )
    for name, how in [
        ("llada", {"method": "llada", "block_length": 32}),
        ("fef-2", {"method": "fef", "steps": 2}),
        ("two-stream", TWO_STREAM),
        ("threshold", {"method": "threshold", "block_length": 32}),
    ]
]
