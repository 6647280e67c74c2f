"""What the model files share: a decoder for each row of a table, on one GPU. Block models have
their own blocks."""

decoders: dict[str, dict[str, object]] = {
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
common: dict[str, object] = {
    "type": "model_wrappers.opencompass_model.DiffusionModel",
    "max_out_len": 256,  # where the data set says none
    "batch_size": 1,
    "run_cfg": {"num_gpus": 1},
}
