"""A configuration for OpenCompass's own command line: a generated suite, and models of the
adapter."""

from pathlib import Path

from generated import write_suites

from harness.suites.registry import suite_named


def write_config(folder: Path, count: int, **models: tuple[str, str, dict[str, int]]) -> None:
    """Write config.py with `count` problems of GSM8K; models: by name path, method and options."""
    write_suites(folder, "test", count + 1, ["gsm8k"])
    dataset = suite_named("gsm8k").datasets(True, folder)[0]
    dataset["reader_cfg"]["test_range"] = f"[0:{count}]"
    common = {
        "type": "model_wrappers.opencompass_model.DiffusionModel",
        "gen_length": 48,
        "batch_size": 1,
    }
    common |= {"max_out_len": 48, "run_cfg": {"num_gpus": 0}}
    named = [
        common | {"abbr": name, "path": path, "method": method, "options": options}
        for name, (path, method, options) in models.items()
    ]
    (folder / "config.py").write_text(f"datasets = [{dataset!r}]\nmodels = {named!r}\n")
