"""An autoregressive model with a tokenizer of its own beside diffusion models: its own prompts, no
measure a token."""

import shutil
from pathlib import Path

import pytest
from rendering import render

from harness import run
from harness.measures.parallelism import token_ledger
from harness.records.store import read_run
from model_wrappers.backbones.registry import SHIPPED


@pytest.mark.slow
def test_an_autoregressive_row_may_have_its_own_tokenizer(tmp_path: Path) -> None:
    folder = shutil.copytree(SHIPPED["nano-ar"], tmp_path / "other")
    template = folder / "chat_template.jinja"
    # other prompts, as another tokenizer makes them
    template.write_text("Now. " + template.read_text())
    line = [
        "--model",
        f"base=nano,ar={folder}",
        "--methods",
        "llada,threshold,ar",
        "--suite",
        "gsm8k,lists",
        "--limit",
        "2",
    ]
    assert run.main([*line, "--threads", "1", "--out", str(tmp_path / "run")]) == 0
    made = read_run(tmp_path / "run")
    hashes = made.items.pivot(index=["suite", "item"], columns="method", values="prompt_hash")
    assert (hashes["llada"] == hashes["threshold"]).all() and (
        hashes["llada"] != hashes["ar"]
    ).all()
    table = render(made)["main.md"]
    row = next(line for line in table.splitlines() if line.startswith("| Autoregressive"))
    assert row.count(" [t]") == 6  # Speed and Fwd., of the mean too
    assert "- Autoregressive: stop\\_at\\_eos=True\n" in table
    ledger = token_ledger(made).set_index("method")
    assert ledger.loc["ar", ["tpf_content", "tps_content"]].isna().all(axis=None)
    assert (ledger.loc["ar", "seconds_per_item"] > 0).all() and (
        ledger.loc["llada", "tpf_content"] > 0
    ).all()
