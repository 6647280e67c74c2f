"""LLaDA2.0-mini in OpenCompass: `fef-dllm opencompass --models llada2_mini --datasets gsm8k_gen`."""

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
        abbr=f"llada2_mini-{name}",
        path="inclusionAI/LLaDA2.0-mini",
        max_out_len=256,
        batch_size=1,
        run_cfg={"num_gpus": 1},
        **how,
    )
    for name, how in [
        ("llada", {"method": "llada"}),
        ("fef-2", {"method": "fef", "steps": 2}),
        ("two-stream", TWO_STREAM),
        ("threshold", {"method": "threshold"}),
    ]
]
