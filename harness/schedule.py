"""Estimate a data-driven unmasking schedule for DDOSP (Lavenant and Zanella, arXiv 2510.25544), as
JSON.

    python harness/schedule.py --model nano --suite gsm8k --out gsm8k.json
    python harness/run.py --suite gsm8k --methods "llada, ddosp(schedule=gsm8k.json)"

h(i) is the mean of -log p(x_j | x_S) over masked j, for random subsets S of i revealed tokens of
training responses, smoothed and made monotone. The schedule 0 = a_0 < ... < a_K = N minimises the
estimated factorization error sum_k sum_{i = a_k}^{a_{k+1} - 1} [f(i) - f(a_k)], f(i) = h(0) - h(i),
by dynamic programming. Every block has its profile: the blocks before it are clean, those after it
masked. Cost: examples x subsets x gen_length forwards.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import UserError, explained, one_line_errors
from harness.options import option, parsed
from harness.suites.registry import SUITES, suites_named

if TYPE_CHECKING:
    from harness.methods.schedules import Purpose

ENDS = "the decoding option that the schedule is for (default: as harness/run.py)"


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """What a schedule is for, and from what it is estimated."""

    model: str = option("nano, a folder or a hub id", "nano")
    suite: str = option(f"one of {', '.join(SUITES)}", required=True)
    steps: int | None = option("forwards for the whole response (default: half its length)")
    gen_length: int | None = option("tokens of a response (default: as harness/run.py)")
    block_length: int | None = option("tokens of a block (default: as harness/run.py)")
    logits_eos_inf: bool | None = option(ENDS, action=argparse.BooleanOptionalAction)
    confidence_eos_eot_inf: bool | None = option(ENDS, action=argparse.BooleanOptionalAction)
    responses: str | None = option(
        "training responses, a JSONL file, or `generated` (default with nano)"
    )
    examples: int = option("training responses (default 64)", 64, least=1)
    subsets: int = option("subsets of each size, per response (default 2)", 2, least=1)
    batch: int = option("rows of a forward (default 16)", 16, least=1)
    device: str = option("cpu, cuda, cuda:1, ...", "cpu")
    dtype: Literal["float32", "bfloat16", "float16"] | None = option(
        "default: float32 on a CPU, else bfloat16"
    )
    seed: int = option(None, 0)
    out: Path = option("JSON file", required=True)


def purpose_of(options: ScheduleOptions) -> "Purpose":
    """What the schedule is for: lengths and options of the command, by default those of a run.

    Raises:
        UserError: several suites.
        ValueError: lengths or steps that do not divide.
    """
    from harness.methods.presets import PRESETS
    from harness.methods.schedules import END_OPTIONS, purpose_of_setting
    from harness.methods.settings import setting_of
    from model_wrappers.decoders.llada import steps_per_block

    suites = list(suites_named(options.suite).values())
    if len(suites) > 1:
        raise UserError(f"--suite {options.suite}: a schedule belongs to one suite")
    suite = suites[0]
    defaults = suite.settings_for(
        options.model, options.model == "nano" or options.responses == "generated"
    )
    names = ("gen_length", "block_length", "steps", *END_OPTIONS)
    given = {name: getattr(options, name) for name in names}
    setting = setting_of(PRESETS["ddosp"], suite.name, defaults, given)
    purpose = purpose_of_setting(setting, options.model, suite.name)
    steps_per_block(purpose.gen_length, purpose.block_length, purpose.steps)
    return purpose


def write_schedule(options: ScheduleOptions) -> dict[str, Any]:
    """Estimate a schedule and write it as JSON.

    Returns:
        The file's content.

    Raises:
        UserError or ValueError: options that cannot be used, or a file that exists.
    """
    import transformers

    from harness.methods.schedules import estimate_profiles, make_schedule
    from harness.records.environment import describe
    from harness.records.files import file_hash, model_hashes
    from harness.records.store import write_atomically
    from harness.suites.registry import encode, generated_exchanges, read_exchanges
    from model_wrappers import load_backbone
    from model_wrappers.backbones.registry import model_folder

    purpose = purpose_of(options)
    responses: Any = options.responses or ("generated" if options.model == "nano" else None)
    if responses is None:
        raise UserError(
            "--responses is needed for a model other than nano: a JSONL file, or `generated`"
        )
    if options.out.exists():
        raise UserError(f"{options.out} exists; choose another --out")
    if responses == "generated":
        exchanges = generated_exchanges(purpose.suite, options.examples)
    else:
        path = Path(responses)
        exchanges = read_exchanges(path, "--responses", purpose.suite, options.examples)
        responses = {"name": path.name, "sha256": file_hash(path)}
    transformers.utils.logging.disable_progress_bar()
    backbone = load_backbone(options.model, options.device, options.dtype)
    examples = encode(backbone, exchanges, purpose.gen_length)
    profiles = estimate_profiles(
        backbone,
        examples,
        purpose.block_length,
        options.subsets,
        options.batch,
        options.seed,
        purpose.logits_eos_inf,
    )
    content = {
        **asdict(purpose),
        "weights": model_hashes(model_folder(options.model)),
        "responses": responses,
        "examples": options.examples,
        "subsets": options.subsets,
        "seed": options.seed,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": describe(options.device, str(backbone.dtype).removeprefix("torch.")),
        **make_schedule(profiles, purpose.steps * purpose.block_length // purpose.gen_length),
    }
    # One line per key: indented JSON would put each of thousands of numbers on a line.
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    with explained(f"cannot write {options.out}", OSError):
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out, "{\n" + ",\n".join(lines) + "\n}\n")
    return content


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(ScheduleOptions, line, __doc__)
    result = write_schedule(options)
    print(f"{options.out}: error {result['error']:.3f} nats, uniform {result['uniform_error']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
