"""The kit from part to part: each is recorded at once, and a run that finds some finished does the others."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers

from harness.errors import UserError
from harness.kit.parts import PASSES_DTYPE, Part, free, parts_of
from harness.records.environment import describe
from harness.records.kit import NAME, KitPart, KitRecord, KitSizes, Rows, has_kit, read_kit, write_kit
from harness.records.receipts import busy_warning, receipt
from harness.runs.config import differences

# At the LLaDA-8B shape, on a GPU; and what shows in seconds, on any processor, that the kit works.
FULL = KitSizes(
    arch="llada-8b",
    lengths=((144, 256), (488, 512)),
    rows=(1, 2, 4, 8, 16),
    repeats=5,
    problems=15,
    methods=None,
    response=48,
    batch=16,
    steps=5,
)
SMALL = KitSizes(
    arch="llada-tiny",
    lengths=((24, 16), (40, 24)),
    rows=(1, 2),
    repeats=1,
    problems=1,
    methods=("llada", "fef-two-stream"),
    response=8,
    batch=1,
    steps=1,
)


def run_kit(folder: Path, device: str, sizes: KitSizes, minutes: float) -> bool:
    """Measure what `folder` does not hold yet; whether all is measured now.

    minutes: no part begins later. A part that fails is named, and the others go on. Raises UserError where the folder's
    record is of another machine, revision or size.
    """
    began, environment = time.monotonic(), describe(device, PASSES_DTYPE)
    record = KitRecord(created=_now(), sizes=sizes, environment=environment)
    if has_kit(folder):
        record = read_kit(folder)
        _check_same(folder, record, sizes, environment)
    transformers.utils.logging.disable_progress_bar()
    parts, left = parts_of(sizes, device), dict[str, str]()
    for name, part in parts.items():
        if name in record.parts:
            print(f"{name}: finished before")
        elif time.monotonic() - began > 60 * minutes:
            left[name] = "no time"
        else:
            try:
                record.parts[name] = _measured(name, part, device)
            except (UserError, ValueError, RuntimeError) as error:  # RuntimeError: of CUDA, out of memory among them
                left[name] = " ".join(str(error).split())
                print(f"{name}: failed: {left[name]}")
            else:
                write_kit(folder, record)
            free(torch.device(device))
    print(f"{len(parts) - len(left)} of {len(parts)} parts are in {folder / NAME}")
    if left:
        print(f"the same command again does what is left: {', '.join(left)}")
    return not left


def _measured(name: str, part: Part, device: str) -> KitPart:
    """A part, measured; what it found is printed."""
    machine, began = receipt(device), time.monotonic()
    warning = busy_warning(machine)
    print(f"\n{name}{f' ({warning})' if warning else ''}")
    tables, notes = part()
    seconds = time.monotonic() - began
    for title, table in tables.items():
        print(f"\n{title}\n{table.to_string(index=False)}")
    print(*notes, f"{name}: {seconds:.0f} s", sep="\n")
    return KitPart(
        tables={title: _rows(table) for title, table in tables.items()}, notes=notes, seconds=seconds, machine=machine
    )


def _rows(table: pd.DataFrame) -> Rows:
    rows: Any = table.astype(object).where(table.notna(), None).to_dict("records")
    return list(rows)


def _check_same(folder: Path, record: KitRecord, sizes: KitSizes, environment: dict[str, Any]) -> None:
    found = differences({"sizes": sizes, **record.environment}, {"sizes": sizes, **environment})
    if record.sizes != sizes:
        found.append("sizes")
    if found:
        raise UserError(
            f"{folder / NAME} is of another machine, revision or size: {'; '.join(found)}; choose another --out"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
