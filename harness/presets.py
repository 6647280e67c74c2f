"""Methods by name: each preset is a decoder, its options, and the row of the table it fills.

Names are what `--methods` takes; `python harness/run.py --list` prints them with their options.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import UserError
from harness.groups import GROUPS
from harness.suites import SUITES
from model_wrappers.api import check_lengths, check_options, method_arguments


@dataclass(frozen=True)
class Preset:
    """A method as a table names it.

    label: the row. method: a name in METHODS. options: its options. tokens_per_step: for methods with a schedule of
    unmasking steps, the steps are gen_length // tokens_per_step. role: whose checkpoint is used; where the run has no
    `fef` checkpoint, the base is used and the label says "w/o train". draft_role: whose checkpoint gives FeF's draft
    laws; None is the role `draft` where the run has one, else the target's own.
    """

    label: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    tokens_per_step: int | None = None
    role: str = "base"
    draft_role: str | None = None

    def for_suite(self, suite: str, settings: dict[str, Any], overrides: dict[str, int]) -> dict[str, Any]:
        """Lengths and options on a suite: {gen_length, block_length, options}, checked.

        settings: the suite's defaults for the model. Its block length and decoder options are LLaDA's; methods that
        decode the full sequence take neither. Raises UserError or ValueError for lengths that do not fit.
        """
        gen_length = overrides.get("gen_length", settings["gen_length"])
        semi_autoregressive = self.method != "fef"
        block = min(settings.get("block_length", gen_length), gen_length) if semi_autoregressive else gen_length
        block = overrides.get("block_length", block)
        check_lengths(gen_length, block)
        known = method_arguments(self.method)
        options = {k: v for k, v in settings.get("options", {}).items() if k in known and semi_autoregressive}
        options |= self.options
        if self.tokens_per_step is not None:
            blocks = gen_length // block
            if gen_length % (self.tokens_per_step * blocks):
                raise UserError(
                    f"{self.label} on {suite}: {self.tokens_per_step} tokens a step do not divide blocks of {block}"
                )
            options["steps"] = gen_length // self.tokens_per_step
        return {"gen_length": gen_length, "block_length": block, "options": check_options(self.method, options)}


def _fef(steps: int, label: str = "FeF-DLLM", **options: Any) -> Preset:
    return Preset(f"{label} (step={steps})", "fef", {"steps": steps, **options}, role="fef")


PRESETS = {
    "llada": Preset("LLaDA", "llada", tokens_per_step=1),
    "llada/2": Preset("LLaDA/2", "llada", tokens_per_step=2),
    "llada/4": Preset("LLaDA/4", "llada", tokens_per_step=4),
    "llada/8": Preset("LLaDA/8", "llada", tokens_per_step=8),
    "ssd": Preset("SSD", "ssd"),
    "ddosp": Preset("DDOSP", "ddosp", tokens_per_step=2),
    "dcd": Preset("DCD", "dcd", tokens_per_step=1),
    "threshold": Preset("Threshold", "threshold"),
    "factor": Preset("Factor", "factor"),
    "entropy": Preset("Entropy", "entropy"),
    "fef-1": _fef(1),
    "fef-2": _fef(2),
    "fef-4": _fef(4),
    "fef-2-nosd": _fef(2, "FeF-DLLM w/o SD", speculative=False),
    "fef-4-nosd": _fef(4, "FeF-DLLM w/o SD", speculative=False),
    "llada-trained": Preset("LLaDA w/ train", "llada", tokens_per_step=1, role="control"),
    "fef-2-untrained": replace(_fef(2, "FeF-DLLM w/o train"), role="base"),
    "fef-4-untrained": replace(_fef(4, "FeF-DLLM w/o train"), role="base"),
    "fef-4-untrained-draft": replace(_fef(4, "FeF-DLLM, draft w/o train"), draft_role="base"),
} | {f"fef-4-w{window}": _fef(4, f"FeF-DLLM, window {window}", window=window) for window in (2, 4, 8, 24, 32)}
DEFAULT_METHODS = "llada,llada/2,fef-2,fef-4"


def presets_named(names: str) -> list[str]:
    """The presets of a comma-separated list of presets and groups. Raises UserError for an unknown or repeated one."""
    named = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in named if name not in (*PRESETS, *GROUPS, "all")]
    if unknown or not named:
        valid = ", ".join([*GROUPS, "all", *PRESETS])
        raise UserError(f"unknown method {', '.join(unknown) or '(none)'}; valid: {valid}")
    groups = {**GROUPS, "all": list(PRESETS)}
    chosen = [preset for name in named for preset in groups.get(name, [name])]
    if len(set(named)) < len(named):
        raise UserError(f"--methods names a method twice: {names}")
    return list(dict.fromkeys(chosen))  # groups share rows


def suite_settings(suite: str, nano: bool) -> dict[str, Any]:
    """A suite's default lengths and LLaDA options: nano's, or those of LLaDA-8B-Instruct."""
    spec = SUITES[suite]
    return {"gen_length": spec.nano_length} if nano else spec.paper


def describe_presets() -> str:
    """One line per preset: name, row, decoder and options."""
    lines = []
    for name, preset in PRESETS.items():
        options = dict(preset.options)
        if preset.tokens_per_step is not None:
            options["steps"] = "gen_length" + (f" // {preset.tokens_per_step}" if preset.tokens_per_step > 1 else "")
        values = {k: options.get(k, v) for k, v in method_arguments(preset.method).items()}
        lines.append(f"{name:21} {preset.label:34} {preset.method}({', '.join(f'{k}={v}' for k, v in values.items())})")
    lines += [f"{name:21} {', '.join(presets)}" for name, presets in GROUPS.items()]
    lines.append(f"{'all':21} every one of them")
    return "\n".join(lines)
