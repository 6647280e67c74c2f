"""Runs with a process for each method: no decoder reaches another one's row, and one that ends its process is named."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest

from harness import evaluate
from harness.errors import UserError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("registries")]

PLUGIN = """
import os
import signal
import harness.runs.inference as inference
from model_wrappers import register
from model_wrappers.options import Options


class None_(Options):
    pass


def fill(request):
    masked = (request.x_1L[0] == request.mask_id).nonzero()[:, 0]
    request.backbone.logits(request.x_1L, positions=masked)
    request.commit(masked, 5, None, "filled")


@register("patches", label="Patches")
def patches(request, options: None_):
    inference.response_text = lambda backbone, tokens: "patched"
    fill(request)


@register("leaves", label="Leaves")
def leaves(request, options: None_):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    (tmp_path / "p.py").write_text(PLUGIN)
    return str(tmp_path / "p.py")


def texts(frame: pd.DataFrame, method: str) -> list[str]:
    own: list[str] = frame[frame["method"] == method].sort_values("item")["text"].to_list()
    return own


def test_what_a_decoder_patches_reaches_no_other_row(tmp_path: Path, plugin: str) -> None:
    how = {"suites": "gsm8k", "limit": 3, "chunk": 1, "threads": 1, "quiet": True}
    alone = evaluate("llada", out=tmp_path / "alone", **how)
    apart = evaluate(f"llada,{plugin}:patches", out=tmp_path / "apart", isolate=True, **how)
    assert texts(apart.items, "llada") == texts(alone.items, "llada")
    assert texts(apart.items, "patches") == ["patched"] * 3
    assert (apart.items["seconds"] > 0).all()


def test_a_decoder_that_ends_its_process_is_named_and_nothing_is_lost(tmp_path: Path, plugin: str) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match="the process of leaves ended: by its decoder, or out of memory"):
        evaluate(f"llada,{plugin}:leaves", "gsm8k", limit=1, untimed=True, threads=1, quiet=True, out=out, isolate=True)
    assert (out / "items.jsonl").read_text().count('"llada"') == 1


DRIVER = """
import sys
from harness.cluster.turns import Turn

turn = Turn("m")
list(turn.ask("hello"))
print(turn._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that stands still outlives its parent")
def test_a_killed_run_leaves_no_process_standing_still() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    child = psutil.Process(int(driver.stdout.readline()))
    driver.kill()
    driver.wait()
    try:
        child.wait(timeout=30)
    except psutil.TimeoutExpired:
        child.kill()
        pytest.fail("the process of a method still stands there")


def test_workers_are_not_isolated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--isolate is for a run without --workers"):
        evaluate("llada", "gsm8k", limit=1, workers=2, isolate=True, out=tmp_path / "run")
