"""DDOSP's unmasking schedules: which file a suite has in a run, and how one is estimated (arXiv
2510.25544).

A schedule belongs to a model, a suite, lengths, steps and what is done about EOS. nano ships some;
a suite without a fitting one has the uniform schedule. Shapes: N positions of a block, R rows, B
batch, V vocabulary.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from rich.progress import track
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import isotonic_regression

from harness.records.files import file_hash, model_hashes
from harness.records.schema import Method, Setting
from harness.suites.registry import Example
from model_wrappers.backbones.protocol import BackboneLike, Ledger
from model_wrappers.backbones.registry import model_folder
from model_wrappers.decoders.ddosp import read_schedule, schedule_path
from model_wrappers.sampling import quotas

Roles = dict[str, dict[str, str]]  # role -> suite -> name of a model
# The decoding options that a schedule is made under.
END_OPTIONS = (
    "logits_eos_inf",
    "confidence_eos_eot_inf",
)


@dataclass(frozen=True)
class Purpose:
    """What a schedule is made for.

    Attributes:
        model: its name.
        suite: its name.
        gen_length, block_length: in tokens.
        steps: of the whole response.
        logits_eos_inf, confidence_eos_eot_inf: the decoding options about EOS and EoT.
    """

    model: str
    suite: str
    gen_length: int
    block_length: int
    steps: int
    logits_eos_inf: bool = False
    confidence_eos_eot_inf: bool = False


def with_schedules(methods: dict[str, Method], models: Roles) -> dict[str, Method]:
    """Add to DDOSP's methods, for every suite, the file of the schedule and its SHA-256.

    A method's option `schedule` is a file, or a folder with <suite>.json. Without it, nano has the
    shipped schedule if that fits; else the option becomes None, the uniform schedule. A method with
    the uniform schedule on any suite has that in its label.

    Args:
        methods: by name.
        models: names of models by role and suite.

    Returns:
        All methods by name, the others unchanged.

    Raises:
        ValueError: a given schedule is none, or was made for something else.
    """
    changed = {}
    for name, method in methods.items():
        if method.method != "ddosp":
            continue
        settings = {}
        for suite, setting in method.suites.items():
            schedule = _schedule_of(setting, models[method.role][suite], suite)
            settings[suite] = replace(
                setting,
                options=setting.options | {"schedule": schedule},
                schedule_sha256=None if schedule is None else file_hash(schedule_path(schedule)),
            )
        uniform = any(setting.schedule_sha256 is None for setting in settings.values())
        label = f"{method.label} (uniform schedule)" if uniform else method.label
        changed[name] = replace(method, label=label, suites=settings)
    return methods | changed


def purpose_of_setting(setting: Setting, model: str, suite: str) -> Purpose:
    """What a schedule for a setting of DDOSP is made for."""
    assert setting.gen_length is not None and setting.block_length is not None, (
        "settings have their lengths"
    )
    # A schedule is for decoding with the same treatment of EOS, so these are part of its purpose.
    ends = {option: setting.options.get(option, False) for option in END_OPTIONS}
    lengths = setting.gen_length, setting.block_length, setting.options["steps"]
    return Purpose(model, suite, *lengths, **ends)


def _schedule_of(setting: Setting, model: str, suite: str) -> str | None:
    """The schedule of a setting: as given, or else nano's if one fits; None is the uniform one."""
    wanted = purpose_of_setting(setting, model, suite)
    given = setting.options.get("schedule")
    if given is not None:
        schedule = str(Path(given, f"{suite}.json")) if Path(given).is_dir() else given
        check_schedule(schedule, wanted)
        return schedule
    shipped = f"nano/{suite}"
    if model == "nano" and schedule_path(shipped).is_file():
        with suppress(ValueError):
            check_schedule(shipped, wanted)
            return shipped
    return None


def check_schedule(schedule: str, wanted: Purpose) -> None:
    """Check that a schedule fits what it is wanted for.

    Models are compared by the hashes of their weights if both are known, else by name.

    Raises:
        ValueError: the file is no schedule, or was made for something else.
    """
    read_schedule(
        schedule, wanted.gen_length // wanted.block_length, wanted.steps, wanted.block_length
    )
    content: dict[str, Any] = json.loads(schedule_path(schedule).read_bytes())
    made = {name: content.get(name, False) for name in asdict(wanted)}
    weights = model_hashes(model_folder(wanted.model))
    made_weights = content.get("weights")
    # The same weights may have another name, and other weights the same one.
    if weights and made_weights:
        made["model"] = (
            wanted.model if weights == made_weights else f"{made['model']} with other weights"
        )
    different = [name for name, value in asdict(wanted).items() if made[name] != value]
    if different:
        purpose = ", ".join(f"{name} {made[name]}" for name in different)
        needed = ", ".join(f"{name} {getattr(wanted, name)}" for name in different)
        raise ValueError(
            f"schedule {schedule} was made for {purpose}, not for {needed}; harness/schedule.py"
            " makes one"
        )


SMOOTHING = 1.0  # standard deviation of the Gaussian that smooths h, in tokens
# Nats per squared quota, added to the error: where h is flat many schedules have the same error,
# and this prefers the most even one.
EVENNESS = 1e-12


def estimate_profiles(
    backbone: BackboneLike,
    examples: list[Example],
    block: int,
    subsets: int,
    batch: int,
    seed: int,
    logits_eos_inf: bool = False,
) -> np.ndarray:
    """Estimate the mean loss h(i) of a masked token when i tokens of its block are revealed.

    Earlier blocks are revealed and later ones masked. The mean is over each row's masked tokens,
    then over rows.

    Args:
        backbone: the model.
        examples: prompts and responses; all responses of one length.
        block: tokens of a block, N.
        subsets: how many random orders of revealing are drawn for each response and block.
        batch: rows of a forward.
        seed: of the orders.
        logits_eos_inf: whether EOS gets no probability; tokens that are EOS are then not counted.

    Returns:
        (blocks, N), in nats, for i = 0 .. N - 1. An i for which nothing was counted is
        interpolated; a block for which nothing was counted is 0.
    """
    model = Ledger(backbone)
    generator = torch.Generator().manual_seed(seed)
    blocks = len(examples[0].response) // block
    excluded = torch.tensor(
        [model.eos_id] if logits_eos_inf else [], dtype=torch.long, device=model.device
    )
    total, counted = np.zeros((2, blocks, block))
    for example, number in track([(e, b) for e in examples for b in range(blocks)], "profile"):
        first = len(example.prompt) + number * block
        clean_L = torch.tensor([*example.prompt, *example.response])
        clean_L[first + block :] = model.mask_id
        target_N = clean_L[first : first + block].clone()
        rank_ON = torch.stack([torch.randperm(block, generator=generator) for _ in range(subsets)])
        revealed_R = torch.arange(block).repeat(subsets)
        # Row (order, i) reveals the i tokens that come first in the order; the others are masked.
        masked_RN = rank_ON.repeat_interleave(block, 0) >= revealed_R[:, None]
        position_N = torch.arange(first, first + block, device=model.device)
        for revealed_B, masked_BN in zip(
            revealed_R.split(batch), masked_RN.split(batch), strict=True
        ):
            rows_BL = clean_L.repeat(len(masked_BN), 1)
            rows_BL[:, first : first + block].masked_fill_(masked_BN, model.mask_id)
            logits_BNV = model.logits(rows_BL.to(model.device), positions=position_N)
            if logits_eos_inf:
                masked_BN = masked_BN & (target_N != model.eos_id)
            # Row by row: in float32 a batch of a large vocabulary would not fit into memory with
            # the model.
            target = target_N.to(model.device)
            possible = (
                logits_NV.float().index_fill(-1, excluded, -torch.inf) for logits_NV in logits_BNV
            )
            losses = [
                torch.nn.functional.cross_entropy(each_NV, target, reduction="none")
                for each_NV in possible
            ]
            loss_BN = torch.stack(losses).double().cpu()
            tokens_B = masked_BN.sum(1)
            mean_B = torch.where(masked_BN, loss_BN, 0).sum(1) / tokens_B.clamp(min=1)
            np.add.at(total[number], revealed_B.numpy(), mean_B.numpy())
            np.add.at(counted[number], revealed_B.numpy(), tokens_B.bool().numpy())
    for total_N, counted_N in zip(total, counted, strict=True):
        seen = np.flatnonzero(counted_N)
        # The mean, interpolated where nothing was counted; 0 if nothing was.
        if len(seen):
            total_N[:] = np.interp(np.arange(block), seen, total_N[seen] / counted_N[seen])
    return total


def monotone(profile: np.ndarray) -> np.ndarray:
    """The profile smoothed, then corrected so that it never increases (isotonic regression)."""
    smooth = gaussian_filter1d(profile, SMOOTHING, mode="nearest")
    return np.asarray(isotonic_regression(smooth, increasing=False).x)


def segment_errors(profile: np.ndarray) -> np.ndarray:
    """The estimated error of committing several positions of the order at once.

    Args:
        profile: (N,), h(i) in nats, never increasing.

    Returns:
        (N + 1, N + 1), in nats: error[a, b] of committing positions a .. b - 1 in one step, the sum
        of h(a) - h(i) over them. Entries with b <= a mean nothing.
    """
    f = profile[0] - profile
    sums = np.concatenate([[0.0], np.cumsum(f)])
    end_N = np.arange(len(f) + 1)
    at = np.append(f, 0.0)
    return np.asarray(
        sums[None, :] - sums[:, None] - (end_N[None, :] - end_N[:, None]) * at[:, None]
    )


def schedule_error(profile: np.ndarray, counts: list[int]) -> float:
    """The estimated factorization error, in nats, of committing counts[k] positions at step k."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    return float(segment_errors(profile)[ends[:-1], ends[1:]].sum())


def optimal_schedule(profile: np.ndarray, steps: int) -> list[int]:
    """How many positions each step commits, so that the estimated error is least.

    Args:
        profile: (N,), never increasing.
        steps: at most N.

    Returns:
        `steps` counts, at least 1 each, with sum N.
    """
    length = len(profile)
    end_N = np.arange(length + 1)
    error = segment_errors(profile) + EVENNESS * (end_N[None, :] - end_N[:, None]) ** 2
    # best[b]: the least error of committing positions 0 .. b - 1 in the steps so far.
    # came_from[s, b]: where step s then begins.
    best = np.full(length + 1, np.inf)
    best[0] = 0.0
    came_from = np.zeros((steps, length + 1), dtype=int)
    # A step commits at least one position.
    later = np.triu(np.ones((length + 1, length + 1), dtype=bool), 1)
    for step in range(steps):
        total = np.where(later, best[:, None] + error, np.inf)
        came_from[step] = total.argmin(0)
        best = total.min(0)
    ends = [length]
    for step in reversed(range(steps)):
        ends.append(int(came_from[step, ends[-1]]))
    return np.diff(ends[::-1]).tolist()


def make_schedule(estimated: np.ndarray, steps: int) -> dict[str, Any]:
    """The part of a schedule file that follows from the estimated profiles (blocks, N) and the
    steps of a block."""
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
