"""The checkout of another revision, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from run_records import item, save

from harness import gate
from harness.errors import UserError
from harness.regression import revision, speed

HOLD = """
import sys, time
from pathlib import Path
from harness.regression import revision
revision.ROOT = Path(sys.argv[1])
with revision.cleaned_up(), revision.checkout("HEAD") as tree:
    print(tree, flush=True)
    time.sleep(60)
"""


def git(folder: Path, *line: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *names, *line]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This project: a repository of two commits, with another file changed and not committed."""
    folder = tmp_path / "repository"
    (folder / "package").mkdir(parents=True)
    git(folder, "init", "--quiet")
    for content in ("first", "second"):
        (folder / "package" / "code.py").write_text(content)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", content)
    (folder / "package" / "code.py").write_text("third")
    git(folder, "add", "--all")
    monkeypatch.setattr(revision, "ROOT", folder)
    return folder


def test_a_folder_came_with_the_last_commit_that_changed_it(repository: Path) -> None:
    git(repository, "reset", "--quiet", "--hard")
    (repository / "other.py").write_text("other")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "other")
    assert revision.revision_of(repository / "package") == git(repository, "rev-parse", "HEAD~1").strip()


def test_a_folder_changed_since_its_commit_has_no_revision(repository: Path) -> None:
    with pytest.raises(UserError, match="package has changes that are not committed"):
        revision.revision_of(repository / "package")


def test_a_folder_outside_the_repository_has_no_revision(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="outside repository"):
        revision.revision_of(tmp_path)


def test_a_shallow_clone_does_not_take_its_only_commit_for_a_folders(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow))
    monkeypatch.setattr(revision, "ROOT", shallow)
    with pytest.raises(UserError, match=r"this clone's history does not have the commit that .*package came with"):
        revision.revision_of(shallow / "package")


def test_a_revision_is_checked_out_and_the_clone_keeps_no_trace(repository: Path) -> None:
    before = git(repository, "status", "--porcelain")
    with revision.checkout("HEAD~1") as tree:
        assert (tree / "package" / "code.py").read_text() == "first"
        assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not tree.exists() and git(repository, "status", "--porcelain") == before


@pytest.mark.parametrize("rev", ["no-such-revision", "--help", "HEAD:package"])
def test_what_is_no_revision_is_refused(repository: Path, rev: str) -> None:
    with pytest.raises(UserError, match=f"--against-rev {rev}: "), revision.checkout(rev):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_no_worktree(repository: Path, tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(repository)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )
    assert process.stdout is not None
    tree = Path(process.stdout.readline().strip())
    assert (tree / "package" / "code.py").read_text() == "second"
    process.send_signal(number)
    process.communicate()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    if number != signal.SIGKILL:  # no process can clean up after that
        assert process.returncode == 128 + number and not tree.exists()


def test_the_gate_ends_in_order_when_it_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*asked: object) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    monkeypatch.setattr(speed, "judge_speed", ended)
    before = signal.getsignal(signal.SIGTERM)
    run = save(tmp_path / "run", [item("llada", "gsm8k", 0)])
    with pytest.raises(SystemExit) as left:
        gate.main([str(run.folder), "--against-rev", "HEAD"])
    assert left.value.code == 128 + signal.SIGTERM and signal.getsignal(signal.SIGTERM) is before
