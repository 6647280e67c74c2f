"""A schedule file from the command line: what it is for, the training responses, the estimate, the plot."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import transformers
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.errors import UserError
from harness.methods.schedule_files import END_OPTIONS, Purpose, made_folder
from harness.methods.unmasking import estimate_profiles, make_schedule
from harness.records.environment import describe
from harness.records.hashes import file_hash, model_hashes
from harness.records.store import write_atomically
from harness.suites.exchanges import Exchange, read_exchanges
from harness.suites.registry import settings_for, suites_named
from harness.suites.responses import encode, generated_exchanges
from model_wrappers import load_backbone
from model_wrappers.api import check_lengths
from model_wrappers.backbones.registry import model_folder
from model_wrappers.decoders.llada import steps_per_block
from model_wrappers.sampling import quotas

if TYPE_CHECKING:
    from harness.schedule import ScheduleOptions

ROOT = Path(__file__).resolve().parents[2]


def write_schedule(options: ScheduleOptions) -> list[str]:
    """Estimate a schedule and write it with its plot; returns what to tell the user.

    Raises UserError or ValueError for what cannot be done.
    """
    purpose = purpose_of(options)
    out = options.out or ROOT / made_folder(options.model) / f"{purpose.suite}.json"
    plot = out.with_suffix(".png")
    for path in (out, plot):
        if path.exists():
            raise UserError(f"{path} exists; choose another --out")
    exchanges, source = exchanges_of(options, purpose.suite)
    transformers.utils.logging.disable_progress_bar()
    backbone = load_backbone(options.model, options.device, options.dtype)
    examples = encode(backbone, exchanges, purpose.gen_length)
    estimated = estimate_profiles(
        backbone, examples, purpose.block_length, options.subsets, options.batch, options.seed, purpose.logits_eos_inf
    )
    made = make_schedule(estimated, purpose.steps * purpose.block_length // purpose.gen_length)
    content = {
        **asdict(purpose),
        "weights": model_hashes(model_folder(options.model)),
        "responses": source,
        "examples": options.examples,
        "subsets": options.subsets,
        "seed": options.seed,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": describe(options.device, str(backbone.dtype).removeprefix("torch.")),
        **made,
    }
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())  # a key a line
        write_atomically(out, "{\n" + ",\n".join(lines) + "\n}\n")
        draw(content, plot)
    except OSError as error:
        raise UserError(f"cannot write to {out.parent}: {error}") from error
    return [
        f"{out}: error {made['error']:.3f} nats, uniform {made['uniform_error']:.3f}; plot {plot.name}",
        f"use it: python harness/run.py --suite {purpose.suite} --methods llada,ddosp --schedules {out.parent}",
    ]


def purpose_of(options: ScheduleOptions) -> Purpose:
    """What it is for: lengths and options as a run would take, unless given. Raises ValueError for bad lengths."""
    suites = list(suites_named(options.suite).values())
    if len(suites) > 1:
        raise UserError(f"--suite {options.suite}: a schedule belongs to one suite")
    settings = settings_for(suites[0], options.model, options.model == "nano" or options.responses == "generated")
    usual = settings.get("options", {})
    given = {name: getattr(options, name) for name in END_OPTIONS}
    ends = {name: usual.get(name, False) if value is None else value for name, value in given.items()}
    length = settings["gen_length"] if options.gen_length is None else options.gen_length
    block = min(settings.get("block_length", length), length) if options.block_length is None else options.block_length
    check_lengths(length, block)
    steps = max(length // 2, length // block) if options.steps is None else options.steps
    steps_per_block(length, block, steps)
    return Purpose(options.model, suites[0].name, length, block, steps, **ends)


def exchanges_of(options: ScheduleOptions, suite: str) -> tuple[list[Exchange], Any]:
    """The training responses, and what the file says of them. Raises UserError for a bad file or none."""
    source = options.responses or ("generated" if options.model == "nano" else None)
    if source is None:
        raise UserError("--responses is needed for a model other than nano: a JSONL file, or `generated`")
    if source == "generated":
        return generated_exchanges(suite, options.examples), source
    path = Path(source)
    return read_exchanges(path, "--responses", suite, options.examples), {"name": path.name, "sha256": file_hash(path)}


def draw(content: dict[str, Any], path: Path) -> None:
    """A plot of profile and quotas: lines and bars for one block; for several a colour per block, and a map."""
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    above, below = figure.subplots(2, 1)
    blocks = len(content["quotas"])
    if blocks == 1:
        above.plot(content["estimated_profile"][0], color="0.65", linewidth=1, label="estimated")
        above.plot(content["profile"][0], color="black", label="smoothed, monotone")
        above.legend(frameon=False)
        counts = content["quotas"][0]
        steps = range(1, len(counts) + 1)
        below.bar(steps, counts, color="0.55", width=0.8, label="schedule")
        uniform = quotas(sum(counts), len(counts))
        below.step(steps, uniform, where="mid", color="black", linestyle=":", label="uniform")
        below.legend(frameon=False)
        below.set(ylabel="tokens committed")
    else:
        colours = colormaps["viridis"](np.linspace(0, 0.9, blocks))
        for profile, colour in zip(content["profile"], colours, strict=True):
            above.plot(profile, color=colour, linewidth=1)
        norm = Normalize(0.5, blocks + 0.5)
        scale = ScalarMappable(norm, ListedColormap(colours))
        figure.colorbar(scale, ax=above, label="block", ticks=MaxNLocator(integer=True))
        counts_BS = np.array(content["quotas"])
        extent = (0.5, counts_BS.shape[1] + 0.5, blocks + 0.5, 0.5)
        below.xaxis.get_major_locator().set_params(integer=True)
        image = below.imshow(counts_BS, cmap="Greys", vmin=0, aspect="auto", interpolation="nearest", extent=extent)
        figure.colorbar(image, ax=below, label="tokens committed", ticks=MaxNLocator(integer=True))
        below.set(ylabel="block")
    for axis in (above.xaxis, below.yaxis):
        axis.get_major_locator().set_params(integer=True)
    above.set(xlabel="revealed tokens", ylabel="h (nats a token)", ylim=(0, None))
    above.set_title(
        f"{content['suite']}, {content['model'].split('/')[-1]}: error {content['error']:.2f} nats, "
        f"uniform {content['uniform_error']:.2f}",
        fontsize="medium",
    )
    below.set(xlabel="step of the block" if blocks > 1 else "step")
    figure.savefig(path, dpi=110)
