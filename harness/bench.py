"""Measure what decoding costs on this machine; nothing here is asserted, everything is printed.

    python harness/bench.py                      cost of a forward, and a row per method
    python harness/bench.py --training           throughput of training, all positions against subsets
    python harness/bench.py --instrument         can the model tell decoders apart? (dev problems)
    python harness/bench.py --costs              cost and memory of each kind of pass; --record RUN: predicted speedups
    python harness/bench.py --costs --arch llada-8b --random-weights --device cuda --prompt 256 --response 256
    python harness/bench.py --recording RUN      cost of writing records, and of rendering 100,000 of them

`forwards` is the cost of one call against its rows. `methods` sets a decoder's seconds beside the seconds that its
forwards take alone: the very calls it made, replayed, measured interleaved with it. `--instrument` runs LLaDA at 1, 2,
4 and 8 tokens a step on generated dev problems. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import Cache

from harness.bench_arch import ARCHITECTURES, random_backbone
from harness.bench_costs import ROWS as ROW_COUNTS
from harness.bench_costs import bench_costs, statements
from harness.bench_memory import bench_memory
from harness.bench_record import assumptions, fef_items, predicted_speedups
from harness.bench_recording import bench_recording
from harness.bench_timing import interleaved, random_ids
from harness.bench_training import bench_training
from harness.environment import describe
from harness.errors import UserError, one_line_errors
from harness.nano_suites import problems
from harness.presets import PRESETS, presets_named
from harness.records import read_run, write_atomically
from model_wrappers import Backbone, Trace, decode, load_backbone
from model_wrappers.backbone import BackboneLike
from model_wrappers.chat import encode_question

ROOT = Path(__file__).resolve().parents[1]
ROWS = (1, 2, 4, 8, 16)
INSTRUMENT_METHODS = "llada,llada/2,llada/4,llada/8"


def bench_forwards(backbone: Backbone, prompt: int, response: int, repeats: int) -> pd.DataFrame:
    """Milliseconds of one forward against rows, with all logits and with those of one place per row."""
    ids_1L = random_ids(backbone.vocab_size, prompt + response, backbone.device)
    one = torch.tensor([prompt], device=backbone.device)
    calls: dict[str, Callable[[], object]] = {}
    for rows in ROWS:
        ids_BL = ids_1L.repeat(rows, 1)
        calls[f"{rows} all"] = partial(backbone.logits, ids_BL)
        calls[f"{rows} one"] = partial(backbone.logits, ids_BL, positions=one)
    medians = interleaved(calls, backbone.device, repeats).median()
    return pd.DataFrame(
        {
            "rows": ROWS,
            "ms, all logits": [1e3 * medians[f"{rows} all"] for rows in ROWS],
            "ms, one place a row": [1e3 * medians[f"{rows} one"] for rows in ROWS],
            "relative to 1 row": [medians[f"{rows} one"] / medians["1 one"] for rows in ROWS],
        }
    )


def bench_methods(
    backbone: Backbone, prompts: list[torch.Tensor], response: int, repeats: int, names: list[str]
) -> pd.DataFrame:
    """Cost of a response for each preset, a mean over the prompts, and overhead beyond its forwards.

    The bare forwards are the very calls the decoder made (recorded once, replayed), so what is left is its own work.
    prompts: LongTensors (P,). names: presets; the first is the one that ratios are relative to.
    """
    recordings: dict[str, _Recording] = {}
    traces: dict[str, list[Trace]] = {}
    calls: dict[str, Callable[[], object]] = {}
    for name in names:
        settings = PRESETS[name].for_suite("bench", {"gen_length": response}, {})
        run = partial(_decode_all, prompts, {"method": PRESETS[name].method, **settings.pop("options"), **settings})
        recordings[name] = _Recording(backbone)
        traces[name] = run(recordings[name])
        calls |= {f"{name} decoder": partial(run, backbone), f"{name} bare": recordings[name].replay}
    seconds = interleaved(calls, backbone.device, repeats)
    rows = []
    for name in names:
        decoder, bare = seconds[f"{name} decoder"], seconds[f"{name} bare"]
        forwards, first = (sum(trace.forwards for trace in traces[key]) for key in (name, names[0]))
        rows.append(
            {
                "method": name,
                "forwards": forwards / len(prompts),
                "rows": sum(trace.rows for trace in traces[name]) / len(prompts),
                "token-forwards": sum(trace.token_forwards for trace in traces[name]) / len(prompts),
                "decoder, ms": 1e3 * decoder.median() / len(prompts),
                "bare forwards, ms": 1e3 * bare.median() / len(prompts),
                # Ratios within a round, for what is slow in a round is slow for both.
                "overhead, %": 100 * ((decoder / bare).median() - 1),
                "speedup, forwards": first / forwards,
                "speedup, seconds": (seconds[f"{names[0]} decoder"] / decoder).median(),
            }
        )
    return pd.DataFrame(rows)


def _decode_all(prompts: list[torch.Tensor], options: dict[str, Any], backbone: BackboneLike) -> list[Trace]:
    return [decode(backbone, prompt_P, **options).trace for prompt_P in prompts]


class _Recording:
    """A backbone that keeps the calls made to it, to make them again without a decoder around them."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = backbone.mask_id, backbone.eos_id, backbone.vocab_size
        self.device, self.eot_id = backbone.device, backbone.eot_id
        self._calls: list[Callable[[], object]] = []
        self._cache: Cache | None = None

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        self._calls.append(partial(self._backbone.logits, ids_BL.clone(), positions, causal))
        return self._backbone.logits(ids_BL, positions, causal)

    def extend(
        self,
        ids_1N: torch.Tensor,
        place_N: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache | None = None,
        visible_NK: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        kept = 0 if cache is None else cache.get_seq_length()
        extend = partial(self._backbone.extend, ids_1N.clone(), place_N, positions, visible_NK=visible_NK)
        self._calls.append(partial(self._extend_again, extend, kept))
        return extend(cache=cache)

    def _extend_again(self, extend: Callable[..., tuple[torch.Tensor, Cache]], kept: int) -> None:
        """A recorded `extend`, after the first `kept` tokens that the one before it left in the cache."""
        cache = self._cache if kept else None
        if cache is not None and cache.get_seq_length() > kept:
            cache.crop(kept - cache.get_seq_length())
        _, self._cache = extend(cache=cache)

    def replay(self) -> None:
        for call in self._calls:
            call()


def bench_prompts(backbone: Backbone) -> list[torch.Tensor]:
    """One generated dev problem of each of the four suites; a random prompt for a backbone without a tokenizer."""
    if backbone.tokenizer is None:
        return [random_ids(backbone.vocab_size, 32, backbone.device)[0]]
    questions = [next(problems(suite, "dev", 1)).question for suite in ("gsm8k", "math", "humaneval", "mbpp")]
    return [torch.tensor(encode_question(backbone.tokenizer, question)) for question in questions]


def instrument_check(model: str, limit: int) -> pd.DataFrame:
    """LLaDA's accuracy in percent at 1, 2, 4 and 8 tokens a step, per suite, on generated dev problems."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        command = [sys.executable, str(ROOT / "harness" / "run.py"), "--suite", "gsm8k,math,humaneval,mbpp,lists"]
        command += ["--methods", INSTRUMENT_METHODS, "--model", model, "--data", "generated-dev"]
        done = subprocess.run([*command, "--limit", str(limit), "--out", str(run)], check=False)
        if done.returncode != 0:
            raise UserError("the instrument check could not run; see the message above")
        items = read_run(run).items
    table = 100 * items.pivot_table(index="suite", columns="method", values="correct", aggfunc="mean", sort=False)
    table = table.astype(float)[INSTRUMENT_METHODS.split(",")]
    table.loc["mean"] = table.mean()
    return table


def cost_tables(asked: argparse.Namespace) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The tables of --costs, and what they say in words."""
    run = None if asked.record is None else read_run(asked.record)
    items = None if run is None else fef_items(run)  # before minutes are spent on measuring
    rows = ROW_COUNTS if asked.rows is None else row_counts(asked.rows)
    backbone = backbone_of(asked)
    costs, tables = bench_costs(backbone, asked.prompt, asked.response, asked.repeats, rows)
    tables["memory"] = bench_memory(backbone, asked.prompt, asked.response)
    notes = statements(costs)
    if run is not None and items is not None:
        tables["speedups"] = predicted_speedups(items, costs)
        notes.append(assumptions(run, costs))
    return tables, notes


def row_counts(text: str) -> list[int]:
    """Numbers separated by commas. Raises UserError for anything else."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise UserError(f"--rows {text} must be numbers separated by commas, such as 1,2,4") from None


def backbone_of(asked: argparse.Namespace) -> Backbone:
    """The model that was asked for. Raises UserError where --model, --arch and what belongs to it do not fit."""
    if asked.arch is None:
        if asked.random_weights or asked.layers is not None:
            raise UserError(f"--random-weights and --layers need --arch; valid: {', '.join(ARCHITECTURES)}")
        return load_backbone(asked.model, asked.device, asked.dtype, compiled=asked.compile)
    if asked.model != "nano" or not asked.random_weights:
        raise UserError(f"--arch {asked.arch} has no weights: give --random-weights with it, and no --model")
    return random_backbone(asked.arch, asked.device, asked.dtype, asked.layers)


def shown(number: float) -> str:
    """A number of a table: two decimals, or three digits where that takes more."""
    return f"{number:.2f}" if number == 0 or abs(number) >= 1 else f"{number:.3g}"


def main(line: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    parser.add_argument("--methods", default="decoders", help="presets or groups with a row each (default decoders)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompt where it is made up (default 32)")
    parser.add_argument("--response", type=int, default=48, help="tokens of the response (default 48)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds of which the median is taken (default 7)")
    parser.add_argument("--instrument", action="store_true", help="LLaDA at 1, 2, 4, 8 tokens a step on dev problems")
    parser.add_argument("--training", action="store_true", help="examples and tokens per second of training")
    parser.add_argument("--costs", action="store_true", help="cost and memory of draft and verification passes")
    parser.add_argument("--rows", help="numbers of rows for --costs (default 1,2,4,8,16,32)")
    parser.add_argument("--record", type=Path, help="run folder: with --costs, its speedups predicted and measured")
    parser.add_argument("--recording", type=Path, help="run folder: cost of its records, and of tables of many such")
    parser.add_argument("--arch", help=f"a shape instead of --model: {', '.join(ARCHITECTURES)}")
    parser.add_argument("--random-weights", action="store_true", help="the weights of --arch, made on the device")
    parser.add_argument("--layers", type=int, help="layers of --arch, instead of its own")
    parser.add_argument("--limit", type=int, default=200, help="dev problems per suite for --instrument (default 200)")
    parser.add_argument("--out", type=Path, help="also write the tables and the environment as JSON")
    asked = parser.parse_args(line)
    if not asked.costs and (asked.rows or asked.record):
        raise UserError("--rows and --record are for --costs; add it")
    if asked.arch and (asked.instrument or asked.training):
        raise UserError("--arch is for the cost of passes; leave out --instrument and --training")
    notes: list[str] = []
    if asked.costs:
        tables, notes = cost_tables(asked)
    elif asked.instrument:
        tables = {"instrument": instrument_check(asked.model, asked.limit).reset_index()}
    elif asked.training:
        tables = {"training": bench_training(asked.model, asked.repeats)}
    elif asked.recording is not None:
        tables = bench_recording(asked.recording)
    else:
        backbone = backbone_of(asked)
        size = (asked.response, asked.repeats)
        tables = {
            "forwards": bench_forwards(backbone, asked.prompt, *size),
            "methods": bench_methods(backbone, bench_prompts(backbone), *size, presets_named(asked.methods)),
        }
    for name, table in tables.items():
        print(f"\n{name}\n{table.to_string(index=False, float_format=shown)}")
    print("", *notes, sep="\n")
    if asked.out is not None:
        record: dict[str, Any] = {"arguments": {k: str(v) for k, v in vars(asked).items() if k != "out"}}
        record["environment"] = describe(asked.device, asked.dtype or "default")
        record |= {"notes": notes} if notes else {}
        for name, table in tables.items():
            record[name] = table.astype(object).where(table.notna(), None).to_dict("records")
        write_atomically(asked.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
