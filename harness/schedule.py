"""Estimate a data-driven unmasking schedule for DDOSP (Lavenant and Zanella, arXiv 2510.25544).

    python harness/schedule.py --model nano --suite gsm8k --steps 24 --out schedule.json

h(i) is the mean of -log p(x_j | x_S) over masked j, for random subsets S of i revealed tokens of training responses. It
is smoothed and then made monotone; the schedule 0 = a_0 < ... < a_K = N minimises the estimated factorization error
sum_k sum_{i = a_k}^{a_{k+1} - 1} [f(i) - f(a_k)], f(i) = h(0) - h(i), by dynamic programming in O(K N^2). Writes the
schedule with its provenance as JSON, and a plot of profile and schedule beside it. Limits: responses come from nano's
generators; one profile for the whole response, or per block with the blocks before clean and those after masked.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from scipy.ndimage import gaussian_filter1d
from sklearn.isotonic import IsotonicRegression

from harness.errors import UserError, one_line_errors
from harness.nano_suites import problems
from harness.records import write_atomically
from harness.suites import SUITES, suites_named
from model_wrappers import Backbone, load_backbone
from model_wrappers.decoders.llada import steps_per_block
from model_wrappers.sampling import quotas

SMOOTHING = 1.0  # standard deviation of the Gaussian that smooths h, in tokens


def estimate_profile(
    backbone: Backbone, responses: list[tuple[list[int], list[int]]], block: int, subsets: int, batch: int, seed: int
) -> np.ndarray:
    """h(i) in nats for i = 0 .. N - 1 revealed tokens of a block of N: an array (N,).

    responses: (prompt ids, response ids) pairs, the responses as long as each other. For every i, `subsets` random
    subsets of each response; with several blocks a random one is taken, the blocks before it clean, those after masked.
    """
    generator = torch.Generator().manual_seed(seed)
    total, count = np.zeros(block), np.zeros(block)
    for prompt, response in track(responses, "profile"):
        clean_L = torch.tensor(prompt + response)
        for revealed in torch.arange(block).repeat(subsets).split(batch):
            rows_BL = clean_L.repeat(len(revealed), 1)
            masked_BL = torch.zeros_like(rows_BL, dtype=torch.bool)
            for row, i in enumerate(revealed.tolist()):
                first = len(prompt) + block * int(torch.randint(len(response) // block, (), generator=generator))
                hidden = torch.randperm(block, generator=generator)[i:]
                masked_BL[row, first + hidden] = True
                rows_BL[row, first + block :] = backbone.mask_id
            rows_BL[masked_BL] = backbone.mask_id
            log_BLV = backbone.logits(rows_BL.to(backbone.device)).double().log_softmax(-1).cpu()
            loss_BL = -log_BLV.gather(2, clean_L.repeat(len(revealed), 1)[..., None])[..., 0]
            mean_B = (loss_BL * masked_BL).sum(1) / masked_BL.sum(1)
            np.add.at(total, revealed.numpy(), mean_B.numpy())
            np.add.at(count, revealed.numpy(), 1)
    return total / count


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
    error = segment_errors(profile)
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


def training_responses(backbone: Backbone, suite: str, length: int, count: int) -> list[tuple[list[int], list[int]]]:
    """(prompt ids, response ids) of generated training problems, the responses padded with EOS to `length`."""
    tokenizer = backbone.text_tokenizer()
    pairs = []
    for problem in problems(suite, "train", count):
        turns = [{"role": "user", "content": problem.question}]
        chat = str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
        prompt = list(tokenizer(chat, add_special_tokens=False).input_ids)
        text = list(tokenizer(problem.response, add_special_tokens=False).input_ids)
        end = [] if backbone.eot_id is None else [backbone.eot_id]
        response = (text + end + [backbone.eos_id] * length)[:length]
        pairs.append((prompt, response))
    return pairs


def draw(content: dict[str, Any], path: Path) -> None:
    """A plot of the profile and of the schedule's quotas."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(4.5, 4.5))
    above.plot(content["estimated_profile"], color="0.7", label="estimated")
    above.plot(content["profile"], color="black", label="smoothed, monotone")
    above.set(xlabel="revealed tokens", ylabel="h (nats a masked token)")
    above.legend(frameon=False)
    below.bar(range(content["steps"]), content["quotas"], color="0.5")
    below.set(xlabel="step", ylabel="tokens committed")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--steps", type=int, required=True, help="forwards for the whole response")
    parser.add_argument("--gen-length", type=int, help="tokens of a response (default: nano's for the suite)")
    parser.add_argument("--block-length", type=int, help="tokens of a block (default: the whole response)")
    parser.add_argument("--examples", type=int, default=64, help="training responses (default 64)")
    parser.add_argument("--subsets", type=int, default=2, help="subsets of each size and response (default 2)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="JSON file; the plot is laid beside it")
    asked = parser.parse_args(line)
    (suite,) = suites_named(asked.suite)
    if asked.out.exists():
        raise UserError(f"{asked.out} exists; choose another --out")
    length = asked.gen_length or SUITES[suite].nano_length
    block = asked.block_length or length
    steps = steps_per_block(length, block, asked.steps)
    backbone = load_backbone(asked.model, asked.device)
    responses = training_responses(backbone, suite, length, asked.examples)
    estimated = estimate_profile(backbone, responses, block, asked.subsets, asked.batch, asked.seed)
    profile = monotone(estimated)
    counts = optimal_schedule(profile, steps)
    content = {
        "model": asked.model,
        "suite": suite,
        "steps": steps,
        "block_length": block,
        "quotas": counts,
        "error": schedule_error(profile, counts),
        "uniform_error": schedule_error(profile, quotas(block, steps)),
        "examples": asked.examples,
        "subsets": asked.subsets,
        "seed": asked.seed,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "profile": profile.tolist(),
        "estimated_profile": estimated.tolist(),
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(asked.out, json.dumps(content) + "\n")
    draw(content, asked.out.with_suffix(".png"))
    print(f"{asked.out}: error {content['error']:.3f} nats, uniform {content['uniform_error']:.3f}; quotas {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
