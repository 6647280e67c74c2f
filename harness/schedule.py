"""Estimate a data-driven unmasking schedule for DDOSP (Lavenant and Zanella, arXiv 2510.25544).

    python harness/schedule.py --model nano --suite gsm8k
    python harness/schedule.py --model GSAI-ML/LLaDA-8B-Instruct --suite gsm8k --responses train.jsonl --device cuda

h(i) is the mean of -log p(x_j | x_S) over masked j, for random subsets S of i revealed tokens of training responses. It
is smoothed and then made monotone; the schedule 0 = a_0 < ... < a_K = N minimises the estimated factorization error
sum_k sum_{i = a_k}^{a_{k+1} - 1} [f(i) - f(a_k)], f(i) = h(0) - h(i), by dynamic programming in O(K N^2). Every block
has a profile and a schedule of its own: the blocks before it are clean, those after it masked. Writes quotas, profiles
and what they were made for and with as JSON, and a plot beside it; `harness/run.py --schedules FOLDER` takes the file
as FOLDER/<suite>.json. Cost: examples x subsets x gen_length forwards of one row.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rich.progress import track
from scipy.ndimage import gaussian_filter1d
from sklearn.isotonic import IsotonicRegression

from harness.environment import describe
from harness.errors import UserError, one_line_errors
from harness.exchanges import Exchange, read_exchanges
from harness.hashes import file_hash, weight_hashes
from harness.presets import suite_settings
from harness.records import write_atomically
from harness.schedule_files import Purpose, made_folder
from harness.suites import SUITES, suites_named
from harness.train_responses import Example, encode, generated_exchanges
from model_wrappers import load_backbone
from model_wrappers.api import check_lengths
from model_wrappers.backbone import BackboneLike, Ledger, model_folder
from model_wrappers.decoders.llada import steps_per_block
from model_wrappers.sampling import quotas

ROOT = Path(__file__).resolve().parents[1]
SMOOTHING = 1.0  # standard deviation of the Gaussian that smooths h, in tokens
EVENNESS = 1e-12  # nats a squared quota: of schedules with the same error, as where h is flat, the most even one


def estimate_profiles(
    backbone: BackboneLike, examples: list[Example], block: int, subsets: int, batch: int, seed: int
) -> np.ndarray:
    """h(i) in nats of every block for i = 0 .. N - 1 revealed tokens of its N: an array (blocks, N).

    Per response and block, `subsets` random orders of its tokens, each revealed token by token: every i is seen equally
    often, and with the same subsets, so that differences of h are less noisy than h.
    """
    model = Ledger(backbone)
    generator = torch.Generator().manual_seed(seed)
    blocks = len(examples[0].response) // block
    total = np.zeros((blocks, block))
    for example, number in track([(e, b) for e in examples for b in range(blocks)], "profile"):
        first = len(example.prompt) + number * block
        clean_L = torch.tensor([*example.prompt, *example.response])
        clean_L[first + block :] = model.mask_id
        target_N = clean_L[first : first + block].clone()
        rank_ON = torch.stack([torch.randperm(block, generator=generator) for _ in range(subsets)])
        revealed_R = torch.arange(block).repeat(subsets)
        masked_RN = rank_ON.repeat_interleave(block, 0) >= revealed_R[:, None]
        places_N = torch.arange(first, first + block, device=model.device)
        for revealed_B, masked_BN in zip(revealed_R.split(batch), masked_RN.split(batch), strict=True):
            rows_BL = clean_L.repeat(len(masked_BN), 1)
            rows_BL[:, first : first + block].masked_fill_(masked_BN, model.mask_id)
            logits_BNV = model.logits(rows_BL.to(model.device), positions=places_N)
            # Row by row: in float32 a batch of a large vocabulary would not fit beside the model.
            target = target_N.to(model.device)
            loss_BN = torch.stack([_loss(logits_NV, target) for logits_NV in logits_BNV]).cpu()
            mean_B = (loss_BN * masked_BN).sum(1) / masked_BN.sum(1)
            np.add.at(total[number], revealed_B.numpy(), mean_B.numpy())
    return total / (len(examples) * subsets)


def _loss(logits_NV: torch.Tensor, target_N: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits_NV.float(), target_N, reduction="none").double()


def monotone(profile: np.ndarray) -> np.ndarray:
    """The profile smoothed, then corrected so that it never increases (isotonic regression)."""
    smooth = gaussian_filter1d(profile, SMOOTHING, mode="nearest")
    return np.asarray(IsotonicRegression(increasing=False).fit_transform(np.arange(len(smooth)), smooth))


def segment_errors(profile: np.ndarray) -> np.ndarray:
    """error[a, b] of committing positions a .. b - 1 of the order at once, (N + 1, N + 1): sum of f(i) - f(a)."""
    f = profile[0] - profile
    sums = np.concatenate([[0.0], np.cumsum(f)])
    places = np.arange(len(f) + 1)
    at = np.append(f, 0.0)
    return np.asarray(sums[None, :] - sums[:, None] - (places[None, :] - places[:, None]) * at[:, None])


def schedule_error(profile: np.ndarray, counts: list[int]) -> float:
    """The estimated factorization error, in nats, of committing counts[k] positions at step k."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    return float(segment_errors(profile)[ends[:-1], ends[1:]].sum())


def optimal_schedule(profile: np.ndarray, steps: int) -> list[int]:
    """The counts of the K-step schedule of least estimated error, by dynamic programming.

    profile: h(i), (N,). Raises ValueError unless 1 <= steps <= N.
    """
    length = len(profile)
    if not 1 <= steps <= length:
        raise ValueError(f"steps={steps} must lie between 1 and the {length} positions of a block")
    places = np.arange(length + 1)
    error = segment_errors(profile) + EVENNESS * (places[None, :] - places[:, None]) ** 2
    best = np.full(length + 1, np.inf)
    best[0] = 0.0
    came_from = np.zeros((steps, length + 1), dtype=int)
    later = np.triu(np.ones((length + 1, length + 1), dtype=bool), 1)  # a step commits at least one position
    for step in range(steps):
        reached = np.where(later, best[:, None] + error, np.inf)
        came_from[step], best = reached.argmin(0), reached.min(0)
    ends = [length]
    for step in reversed(range(steps)):
        ends.append(int(came_from[step, ends[-1]]))
    return np.diff(ends[::-1]).tolist()


def make_schedule(estimated: np.ndarray, steps: int) -> dict[str, Any]:
    """The part of a schedule file that follows from the estimated profiles (blocks, N) and the steps of a block."""
    profiles = [monotone(profile) for profile in estimated]
    counts = [optimal_schedule(profile, steps) for profile in profiles]
    uniform = quotas(estimated.shape[1], steps)
    return {
        "quotas": counts,
        "error": round(sum(map(schedule_error, profiles, counts)), 5),
        "uniform_error": round(sum(schedule_error(profile, uniform) for profile in profiles), 5),
        "profile": np.round(profiles, 5).tolist(),
        "estimated_profile": np.round(estimated, 5).tolist(),
    }


def draw(content: dict[str, Any], path: Path) -> None:
    """A plot of profile and quotas: lines and bars for one block; for several a colour per block, and a map."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(4.8, 4.8), layout="constrained")
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
        below.yaxis.get_major_locator().set_params(integer=True)
    else:
        colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, blocks))
        for profile, colour in zip(content["profile"], colours, strict=True):
            above.plot(profile, color=colour, linewidth=1)
        norm = matplotlib.colors.Normalize(0.5, blocks + 0.5)
        scale = matplotlib.cm.ScalarMappable(norm, matplotlib.colors.ListedColormap(colours))
        figure.colorbar(scale, ax=above, label="block", ticks=matplotlib.ticker.MaxNLocator(integer=True))
        counts_BS = np.array(content["quotas"])
        extent = (0.5, counts_BS.shape[1] + 0.5, blocks + 0.5, 0.5)
        below.xaxis.get_major_locator().set_params(integer=True)
        below.yaxis.get_major_locator().set_params(integer=True)
        image = below.imshow(counts_BS, cmap="Greys", vmin=0, aspect="auto", interpolation="nearest", extent=extent)
        figure.colorbar(image, ax=below, label="tokens committed", ticks=matplotlib.ticker.MaxNLocator(integer=True))
        below.set(ylabel="block")
    above.xaxis.get_major_locator().set_params(integer=True)
    above.set(xlabel="revealed tokens", ylabel="h (nats a token)", ylim=(0, None))
    above.set_title(
        f"{content['suite']}, {content['model'].split('/')[-1]}: error {content['error']:.2f} nats, "
        f"uniform {content['uniform_error']:.2f}",
        fontsize="medium",
    )
    below.set(xlabel="step of the block" if blocks > 1 else "step")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default="nano", help="nano, a folder or a hub id")
    add("--suite", required=True, help=f"one of {', '.join(SUITES)}")
    add("--steps", type=int, help="forwards for the whole response (default: half its length)")
    add("--gen-length", type=int, help="tokens of a response (default: as harness/run.py)")
    add("--block-length", type=int, help="tokens of a block (default: as harness/run.py)")
    add("--responses", help="training responses, a JSONL file, or `generated` (default with nano)")
    add("--examples", type=int, default=64, help="training responses (default 64)")
    add("--subsets", type=int, default=2, help="subsets of each size, per response (default 2)")
    add("--batch", type=int, default=16, help="rows of a forward (default 16)")
    add("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="default: float32 on a CPU, else bfloat16")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="JSON file; the plot is laid beside it (default: results/schedules/<model>/)")
    return parser.parse_args(line)


def purpose_of(asked: argparse.Namespace) -> Purpose:
    """What the schedule is for: the lengths that a run would take, unless given. Raises ValueError for bad lengths."""
    suites = suites_named(asked.suite)
    if len(suites) > 1:
        raise UserError(f"--suite {asked.suite}: a schedule belongs to one suite")
    settings = suite_settings(suites[0], asked.model == "nano" or asked.responses == "generated")
    length = settings["gen_length"] if asked.gen_length is None else asked.gen_length
    block = min(settings.get("block_length", length), length) if asked.block_length is None else asked.block_length
    check_lengths(length, block)
    steps = max(length // 2, length // block) if asked.steps is None else asked.steps
    steps_per_block(length, block, steps)
    return Purpose(asked.model, suites[0], length, block, steps)


def exchanges_of(asked: argparse.Namespace, suite: str) -> tuple[list[Exchange], Any]:
    """The training responses, and what the file says of them. Raises UserError for a bad file or none."""
    source = asked.responses or ("generated" if asked.model == "nano" else None)
    if source is None:
        raise UserError("--responses is needed for a model other than nano: a JSONL file, or `generated`")
    if source == "generated":
        return generated_exchanges(suite, asked.examples), source
    path = Path(source)
    return read_exchanges(path, "--responses", suite, asked.examples), {"name": path.name, "sha256": file_hash(path)}


def main(line: list[str] | None = None) -> int:
    """The command line."""
    asked = arguments_of(line)
    for name in ("examples", "subsets", "batch"):
        if getattr(asked, name) < 1:
            raise UserError(f"--{name} {getattr(asked, name)} must be at least 1")
    purpose = purpose_of(asked)
    out = asked.out or ROOT / made_folder(asked.model) / f"{purpose.suite}.json"
    plot = out.with_suffix(".png")
    for path in (out, plot):
        if path.exists():
            raise UserError(f"{path} exists; choose another --out")
    exchanges, source = exchanges_of(asked, purpose.suite)
    transformers.utils.logging.disable_progress_bar()
    backbone = load_backbone(asked.model, asked.device, asked.dtype)
    examples = encode(backbone, exchanges, purpose.gen_length)
    estimated = estimate_profiles(backbone, examples, purpose.block_length, asked.subsets, asked.batch, asked.seed)
    made = make_schedule(estimated, purpose.steps * purpose.block_length // purpose.gen_length)
    content = {
        **asdict(purpose),
        "weights": weight_hashes(model_folder(asked.model)),
        "responses": source,
        "examples": asked.examples,
        "subsets": asked.subsets,
        "seed": asked.seed,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "environment": describe(asked.device, str(backbone.dtype).removeprefix("torch.")),
        **made,
    }
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, _a_key_a_line(content))
        draw(content, plot)
    except OSError as error:
        raise UserError(f"cannot write to {out.parent}: {error}") from error
    print(f"{out}: error {made['error']:.3f} nats, uniform {made['uniform_error']:.3f}; plot {plot.name}")
    print(f"use it: python harness/run.py --suite {purpose.suite} --methods llada,ddosp --schedules {out.parent}")
    return 0


def _a_key_a_line(content: dict[str, Any]) -> str:
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
