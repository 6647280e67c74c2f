"""SHA-256 of files: what ties records and schedules to the very data and weights they were made with."""

import hashlib
from functools import lru_cache
from pathlib import Path

import model_wrappers

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")  # endings of files with weights
BESIDE = (".json", ".jinja", ".txt", ".model", ".py")  # and of those that say how to read and prompt a model


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_hash(paths: list[Path]) -> str:
    """SHA-256 of a file, or of the names and hashes of several, hex."""
    if len(paths) == 1:
        return file_hash(paths[0])
    return hashlib.sha256("".join(f"{path.name} {file_hash(path)}\n" for path in paths).encode()).hexdigest()


@lru_cache
def nano_hashes() -> frozenset[str]:
    """SHA-256 of the weights that ship with this project: nano and its checkpoints."""
    sums = Path(model_wrappers.__file__).parent / "nano" / "SHA256SUMS"
    return frozenset(line.split()[0] for line in sums.read_text(encoding="utf-8").splitlines())


def model_hashes(folder: Path, endings: tuple[str, ...] = WEIGHTS) -> dict[str, str]:
    """SHA-256 of the files of a model's folder that have these endings, by name; empty where there are none.

    Weights may be many gigabytes: a file that has not changed is read once.
    """
    files = sorted(path for ending in endings for path in folder.glob(f"*{ending}"))
    return {path.name: _known_hash(path.resolve(), _version(path)) for path in files}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache
def _known_hash(path: Path, version: tuple[int, int]) -> str:
    return file_hash(path)
