"""docs/gate.md works as it is written, outside the project, and catches what is planted there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

FILE = re.compile(r"`([\w.]+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)
PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("extending.md", "gate.md")]
COMMAND = "from harness.cli import command; command()"
CALL = "    unmask(Choice(request, options), Margin(options.low))\n"
NAP = "    import time\n\n    time.sleep(0.05)\n"
FORWARD = "    request.backbone.logits(request.x_1L)\n"

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with the files of the pages."""
    for page in PAGES:
        for name, text in FILE.findall(page):
            (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def plant(repository: Path, text: str) -> None:
    decoder = repository / "margin.py"
    decoder.write_text(decoder.read_text().replace(CALL, text + CALL))


def python(repository: Path, *line: str) -> int:
    """What Python ends with in that folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *line]
    return subprocess.run(command, cwd=repository, env=environment, check=False).returncode


@pytest.mark.parametrize(("planted", "code"), [("", 0), (NAP, 1), (FORWARD, 1)])
def test_the_test_of_the_page(repository: Path, planted: str, code: int) -> None:
    plant(repository, planted)
    assert python(repository, "-m", "pytest", "-q", "test_margin.py") == code


def test_the_command_of_the_page_catches_a_nap(repository: Path) -> None:
    page = PAGES[1].replace("\\\n", "")
    run, gate = map(shlex.split, re.findall(r"^fef-dllm (.* NEW.*)$", page, re.MULTILINE))
    assert python(repository, "-c", COMMAND, *run[:-1], "OLD") == 0
    plant(repository, NAP)
    assert python(repository, "-c", COMMAND, *run) == 0
    assert python(repository, "-c", COMMAND, *gate) == 1
