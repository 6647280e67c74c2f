"""Verdicts against another revision: its code judges a copy of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gate_runs import items_of, run_of

from harness.errors import UserError
from harness.records.store import Run
from harness.regression import verdicts
from harness.regression.verdicts import judge_verdicts

# The other revision's harness/scoring.py, whose judge refuses a text.
STRICTER = """
import json, sys
from pathlib import Path
file = Path(sys.argv[1]) / "items.jsonl"
lines = []
for line in file.read_text().splitlines():
    item = json.loads(line)
    item["correct"] &= item["text"] != "TEXT"
    lines.append(json.dumps(item))
file.write_text("\\n".join(lines) + "\\n")
"""


@pytest.fixture
def revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with which the other revision scores."""
    scoring = tmp_path / "tree" / "harness" / "scoring.py"
    scoring.parent.mkdir(parents=True)

    @contextmanager
    def checkout(rev: str) -> Iterator[Path]:
        yield tmp_path / "tree"

    monkeypatch.setattr(verdicts, "checkout", checkout)
    return scoring


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of(tmp_path / "run", items_of(text="unlike"))


def test_a_revision_with_the_same_verdicts_passes(revision: Path, run: Run) -> None:
    revision.write_text(STRICTER.replace("TEXT", "nowhere"))
    assert judge_verdicts(run, "HEAD")


def test_a_verdict_that_the_revision_does_not_give_fails_and_is_named(
    revision: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run.folder / "items.jsonl").read_bytes()
    revision.write_text(STRICTER.replace("TEXT", "unlike"))
    assert not judge_verdicts(run, "HEAD")
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["fef-2", "math", "correct", "False", "True", "7"]
    assert printed[-1] == f"verdicts of {len(run.items)} responses: CHANGED"
    # The revision judged a copy.
    assert (run.folder / "items.jsonl").read_bytes() == before


def test_a_revision_that_cannot_score_the_run_is_refused_with_its_reason(
    revision: Path, run: Run
) -> None:
    revision.write_text("raise SystemExit('error: these records are of another schema')")
    with pytest.raises(UserError, match=r"HEAD cannot score .*: these records are of another"):
        judge_verdicts(run, "HEAD")
