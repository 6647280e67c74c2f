"""The table of docs/parity.md from the goldens.

python tests/helpers/parity_table.py
"""

import json
from typing import Any

from official_cases import GOLDENS, SOURCES

HEAD = (
    "| decoder | official code | commit | responses | equal | calls, official / ours | seconds,"
    " official / ours |\n|---|---|---|---:|---:|---:|---:|\n"
)


def table() -> str:
    """A line for every decoder and cache: all its cases together."""
    return HEAD + "".join(_line(name) for name in SOURCES)


def _line(name: str) -> str:
    golden: dict[str, Any] = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    cases = golden["cases"]
    decoders = dict.fromkeys(case.split()[0] for case in cases)
    cache = next(
        (
            part.removeprefix("cache=")
            for case in cases
            for part in case.split()
            if "cache=" in part
        ),
        "",
    )
    ours = ", ".join(f"`{decoder}{'+' + cache if cache else ''}`" for decoder in decoders)
    responses, equal, theirs, calls = (
        sum(case[key] for case in cases.values())
        for key in ("responses", "equal", "official_calls", "our_calls")
    )
    seconds = {
        side: sum(case["seconds"][side] for case in cases.values()) for side in ("official", "ours")
    }
    code = f"{golden['repository']}, `{golden['function'].rpartition('.')[2]}`"
    return (
        f"| {ours} | {code} | {golden['commit'][:7]} | {responses} | {equal} | {theirs} / {calls} |"
        f" {seconds['official'] / seconds['ours']:.2f} |\n"
    )


if __name__ == "__main__":
    print(table(), end="")
