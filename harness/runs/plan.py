"""What a run will cost, before anything is spent: items, methods, calls of the model, hours on one device and on more.

From about a minute of decoding on the device, from a record of harness/bench.py --costs, or, as an estimate, from the
shape of the model and the data sheet of a device. A run's folder is not made.
"""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import UNSET

from harness.bench.estimate import BYTES, DEVICES, EFFICIENCY
from harness.errors import UserError
from harness.methods.published import blocks_of, family_of
from harness.records.schema import RunConfig
from harness.records.sources import resolved_options
from harness.runs.pool import WorkerPool
from harness.runs.progress import duration
from harness.runs.resolve import ResolvedRun
from harness.runs.responses import Sample
from model_wrappers.backbones.registry import parameters_of

BUDGET = 60.0  # seconds of measuring, after which every method has at least one response
PLAIN = "plain forward"  # of a record of costs
FIXED = {"llada": 1, "ddosp": 1, "pc_sampler": 1, "dcd": 2}  # plain forwards a step, of decoders that make as many
PROMPT = 200  # tokens of a prompt, where nothing is known of it

Pair = tuple[str, str]  # method, suite


@dataclass(frozen=True)
class Forecast:
    """What responses of a method on a suite take, each: seconds and calls; None where that cannot be told.

    responses: how many this was measured on; 0 where it follows from another suite, or from costs.
    """

    seconds: float | None
    calls: float | None
    responses: int = 0


def measured(config: RunConfig, pool: WorkerPool, budget: float = BUDGET) -> dict[Pair, Forecast]:
    """Decode for `budget` seconds: an item of every suite by every method, then the next ones.

    A method that there was no time for on a suite takes as long a token there as where it was measured.
    """
    found: dict[Pair, list[Sample]] = defaultdict(list)
    first = next(iter(config.suites))
    for method in config.methods:
        pool.warm_up(first, {method: 0})
    began = time.monotonic()
    for method, suite, item in _in_turn(config, pool):
        late = time.monotonic() - began > budget
        if late and all(any(found[method, each] for each in config.suites) for method in config.methods):
            break
        if not late or suite == first:
            found[method, suite] += pool.warm_up(suite, {method: item}).values()
    return {
        (method, suite): _forecast(config, found, method, suite) for method in config.methods for suite in config.suites
    }


def _in_turn(config: RunConfig, pool: WorkerPool) -> Iterator[tuple[str, str, int]]:
    for item in range(max(pool.items.values())):
        for suite in config.suites:
            for method in config.methods if item < pool.items[suite] else ():
                yield method, suite, item


def _forecast(config: RunConfig, found: dict[Pair, list[Sample]], method: str, suite: str) -> Forecast:
    samples = found[method, suite]
    if samples:
        seconds, calls = (statistics.fmean(values) for values in zip(*samples, strict=True))
        return Forecast(seconds, calls, len(samples))
    other = next((each for each in config.suites if found[method, each]), None)
    if other is None:
        return Forecast(None, None)
    lengths = config.methods[method].suites
    ratio = (lengths[suite].gen_length or 0) / (lengths[other].gen_length or 1)
    known = _forecast(config, found, method, other)
    return Forecast(ratio * (known.seconds or 0), ratio * (known.calls or 0))


def from_costs(run: ResolvedRun, path: Path) -> tuple[dict[Pair, Forecast], str]:
    """The same from a record of harness/bench.py --costs, and what that was measured with; or from one of DEVICES.

    FIXED decoders make so many plain forwards a step, as long as the record's prompt and the run's response; a FeF
    method takes LLaDA's seconds / its predicted speedup, where the record has one (--record). Of others nothing is
    known. Raises UserError for another file, of another model, and for a block model; for a shape (--arch) the caller
    has to know that it is the model's.
    """
    cut = [name for name in run.config.models["base"].values() if blocks_of(name) is not None]
    if cut:
        raise UserError(
            f"--costs counts passes over the whole sequence, and {cut[0]} attends in blocks: leave it out, and --plan "
            "measures"
        )
    if str(path) in DEVICES:
        return _from_shape(run, str(path))
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        plain = next(row["ms"] for row in record["passes"] if row["pass"] == PLAIN) / 1e3
        speedups = {(row["method"], row["suite"]): row["predicted speedup"] for row in record.get("speedups", [])}
        made = record["environment"]
        arguments = record["arguments"]
        prompt, length = int(arguments["prompt"]), int(arguments["prompt"]) + int(arguments["response"])
        model = arguments["model"] if arguments.get("arch") in (None, "None") else None
        lengths = {int(row["tokens"]): float(row["ms"]) for row in record.get("lengths", [])} or {length: 1.0}
        lengths = dict(sorted(lengths.items()))
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise UserError(
            f"--costs {path} is no record of costs ({type(error).__name__}: {error}), and no device "
            f"({', '.join(DEVICES)}); make one on the device: python harness/bench.py --costs --out {path}"
        ) from error
    layers = arguments.get("layers") not in (None, "None")
    if layers:
        raise UserError(f"--costs {path} is of {arguments['layers']} layers alone, and prices no whole model")
    others = {name for name in run.config.models["base"].values() if not _alike(name, model)}
    if model is not None and others:
        raise UserError(
            f"--costs {path} is of the model {model}, and the run of {', '.join(sorted(others))}: make one of that "
            f"model, python harness/bench.py --costs --model {min(others)} --out FILE"
        )

    def seconds(tokens: int) -> float:
        """A plain forward of so many, between the lengths of the record; beyond them as long as the nearest."""
        at, there = np.interp([prompt + tokens, length], [*lengths], [*lengths.values()])
        return plain * float(at / there)

    device = made.get("gpu") or made.get("cpu")
    source = f"from {path}: a forward of {length} tokens in {1e3 * plain:.3g} ms on {device}"
    return _of_fixed(run, lambda _, tokens: seconds(tokens), speedups), source


def _alike(name: str, other: str | None) -> bool:
    """Whether two models cost the same: they are one, or of one family and as large."""
    if name == other or other is None:
        return name == other
    try:
        return family_of(name) == family_of(other) and parameters_of(name) == parameters_of(other)
    except ValueError:  # one of them cannot be read here
        return False


def _from_shape(run: ResolvedRun, device: str) -> tuple[dict[Pair, Forecast], str]:
    """An estimate for one of DEVICES: a forward reads all weights, or does two operations a weight and token.

    What takes longer counts. Kernels' launches, attention and the sampler are left out, and of experts all are taken
    to run. Raises UserError or ValueError for a model whose shape is not known.
    """
    reads, operations = DEVICES[device]
    weights = {name: parameters_of(name) for name in {*run.config.models["base"].values()}}
    bytes_each = 4 if run.config.dtype == "float32" else BYTES

    def seconds(suite: str, tokens: int) -> float:
        count = weights[run.config.models["base"][suite]]
        return max(count * bytes_each / reads, 2 * count * (PROMPT + tokens) / (EFFICIENCY * operations))

    shapes = ", ".join(f"{name} with {count / 1e9:.3g} billion weights" for name, count in weights.items())
    source = f"an estimate, nothing was measured: {shapes}, the data sheet of {device}, prompts of {PROMPT} tokens"
    return _of_fixed(run, seconds, {}), source


def _of_fixed(
    run: ResolvedRun, plain: Callable[[str, int], float], speedups: Mapping[Pair, float]
) -> dict[Pair, Forecast]:
    """The forecasts of FIXED decoders, and of those with a speedup. plain: seconds by suite and response length."""
    options, found = resolved_options(run.config, run.decoders), {}
    for method, own in run.config.methods.items():
        for suite, setting in own.suites.items():
            length = setting.gen_length or 0
            steps = options[method][suite].get("steps") or length
            calls = float(steps * FIXED[own.method]) if own.method in FIXED else None
            speedup = speedups.get((method, suite))
            seconds = None if calls is None else calls * plain(suite, length)
            if speedup:
                seconds = length * plain(suite, length) / speedup
            found[method, suite] = Forecast(seconds, calls)
    return found


def described(config: RunConfig, items: dict[str, int], found: dict[Pair, Forecast], workers: int, source: str) -> str:
    """The plan as text: a line a suite and method, and the sums. items: by suite; workers: of the run."""
    lines = [f"{sum(items.values())} items, {len(config.methods)} methods; {source}"]
    total, calls, unknown = 0.0, 0.0, []
    for (method, suite), each in found.items():
        label, count = f"{config.suites[suite].title or suite}, {config.methods[method].label}", items[suite]
        if each.seconds is None:
            unknown.append(label)
            continue
        total += count * each.seconds
        calls += count * (each.calls or 0)
        of = f"{each.calls:.4g} calls, " if each.calls else ""
        how = f" (measured on {each.responses})" if each.responses else ""
        lines.append(
            f"{label}: {count} responses, each {of}{each.seconds:.3g} s{how}, together {duration(count * each.seconds)}"
        )
    lines.append(f"calls of the model: {calls:.4g}")
    without = {method for (method, _), each in found.items() if each.seconds is None}
    least = f"at least, for {len(config.methods) - len(without)} of {len(config.methods)} methods, " if without else ""
    lines.append(f"on one device: {least}{duration(total)}")
    if workers > 1:
        lines.append(f"on {workers} of them: {least}{duration(total / workers)}")
    if config.batch is not UNSET:
        lines.append(f"these are seconds of one response after the other: --batch {config.batch} takes less")
    lines.append("besides: loading the models, scoring, tables")
    if unknown:
        lines.append(f"not counted, for it cannot be told without measuring: {'; '.join(unknown)}")
    return "\n".join(lines)
