"""Methods by name: a preset is a decoder, its options, and the row of the table. `harness/run.py
--list` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from harness.elements import elements_of, expanded, format_label, parse_call
from harness.errors import UserError
from harness.records.schema import RunConfig
from model_wrappers.decoders import METHODS, Decoder, Method, decoder_named
from model_wrappers.options import meant

ROLES = ("base", "fef", "two-stream", "control", "linear", "draft", "ar")  # of checkpoints in a run
ROLES_OF = {  # --model NAME, of shipped models
    "nano": {"base": "nano", "fef": "nano-fef", "control": "nano-control", "ar": "nano-ar"},
    "nano-long": {"base": "nano-long", "fef": "nano-long", "control": "nano-long-control"},
    "nano-block": {
        "base": "nano-block",
        "fef": "nano-block",
        "control": "nano-block-control",
        "linear": "nano-block-linear",
    },
    "nano-parallel": {"base": "nano-parallel-control", "fef": "nano-parallel"},
}


@dataclass(frozen=True)
class Preset:
    """A method as `--methods` takes it: a decoder, its options, and its row of a table.

    Attributes:
        label: how its row begins.
        method: a name in METHODS, or a decoder.
        options: of the decoder, on every suite.
        tokens_per_step: `steps` are gen_length // this.
        role: whose checkpoint decodes; `two-stream` falls back to `fef`, and that to the base.
        draft_role: whose drafts; None for `draft` where the run has it, else the target's.
        lengths: on every suite.
        suites: lengths and options by suite.
        given: lengths and options of the command line.
        tuned_on: the problems by suite, of a method that was tuned for these suites alone.
        roles: by suite, where not all have `role`.
        in_brackets: options as the row shows them.
    """

    label: str
    method: Method
    options: dict[str, Any] = field(default_factory=dict)
    tokens_per_step: int | None = None
    role: str = "base"
    draft_role: str | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    suites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    tuned_on: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    in_brackets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decoder(self) -> Decoder:
        """What decodes. Raises ValueError for an unknown name."""
        return decoder_named(self.method)

    @property
    def row(self) -> str:
        """The name of its row: "FeF-DLLM (step=2, window=4)"."""
        if not self.in_brackets:
            return self.label
        shown = [format_label({name: value}) for name, value in self.in_brackets.items()]
        return f"{self.label} ({', '.join(shown)})"

    def joined(self, other: Preset) -> Preset:
        """A tuned method for its suites and those of `other`.

        Raises:
            UserError: both are for one suite, or they are not of one decoder.
        """
        both = sorted(self.suites.keys() & other.suites.keys())
        if both or self.method != other.method:
            raise UserError(
                f"{self.label} was tuned twice for {', '.join(both) or 'other decoders'}; name one"
                " of the two"
            )
        roles = {}
        for preset in (self, other):
            for suite in preset.suites:
                roles[suite] = preset.roles.get(suite, preset.role)
        return replace(
            self,
            suites={**self.suites, **other.suites},
            tuned_on={**self.tuned_on, **other.tuned_on},
            roles=roles if len(set(roles.values())) > 1 else {},
        )


def _fef(steps: int, label: str = "FeF-DLLM", **options: Any) -> Preset:
    return Preset(
        label, "fef", {"steps": steps, **options}, role="fef", in_brackets={"step": steps}
    )


def _two_stream(steps: int) -> Preset:
    """Two-stream verification with the savings that are of use there, re-masking only tokens of low
    probability."""
    options = {
        "verify": "two-stream",
        "skip_root_row": True,
        "adaptive_window": True,
        "remask_below": 0.9,
    }
    return replace(_fef(steps, "FeF-DLLM two-stream", **options), role="two-stream")


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
    "klass": Preset("KLASS", "klass"),
    "wino": Preset("WINO", "wino"),
    "flash": Preset("Flash-dLLM", "flash"),
    "freedave": Preset("FreeDave", "freedave"),
    "pc-sampler": Preset("PC-Sampler", "pc_sampler", {"baseline": "nano"}),
    "prophet": Preset("Prophet", "prophet"),
    "fef-1": _fef(1),
    "fef-2": _fef(2),
    "fef-4": _fef(4),
    "fef-2-nosd": _fef(2, "FeF-DLLM w/o SD", speculative=False),
    "fef-4-nosd": _fef(4, "FeF-DLLM w/o SD", speculative=False),
    # The paper's row: the checkpoint that FeF-DLLM was trained to, decoded by LLaDA. The control is
    # this project's row.
    "llada-trained": Preset("LLaDA w/ train", "llada", tokens_per_step=1, role="fef"),
    "llada-control": Preset("LLaDA, control training", "llada", tokens_per_step=1, role="control"),
    "fef-2-untrained": replace(_fef(2, "FeF-DLLM w/o train"), role="base"),
    "fef-4-untrained": replace(_fef(4, "FeF-DLLM w/o train"), role="base"),
    "fef-4-untrained-draft": replace(_fef(4, "FeF-DLLM, draft w/o train"), draft_role="base"),
    "ar": Preset("Autoregressive", "ar", role="ar"),
    # Beyond the paper: the exact savings together, and two-stream verification.
    "fef-fast": _fef(
        2, "FeF-DLLM fast", skip_root_row=True, reuse_drafts=True, adaptive_window=True
    ),
    "fef-two-stream": _two_stream(2),
    "fef-two-stream-1": _two_stream(1),
}
# Names that stand for several elements, as --methods takes them: the rows of the paper's tables, of
# figures, and every decoder.
_GROUPS = {
    "main": "llada, llada/2, ssd, ddosp, dcd, fef-2, fef-4",
    "training": (
        "llada, llada-trained, llada-control, fef-2-untrained, fef-4-untrained, fef-2, fef-4"
    ),
    "speculation": "llada, fef-2-nosd, fef-4-nosd, fef-2, fef-4",
    "draft": "llada, fef-4, fef-4-untrained-draft",
    "window-size": "llada, fef-4(window=2|4|8), fef-4, fef-4(window=24|32)",
    "savings": (
        "llada, fef-2, fef-2(skip_root_row=true), fef-2(reuse_drafts=true),"
        " fef-2(adaptive_window=true), fef-fast, fef-two-stream"
    ),
    "anchor": "llada, fef-two-stream, fef-two-stream(anchor=32|24|16|8)",
    "front": (
        "llada, llada/2, llada/4, llada/8,"
        " threshold(tau=0.5|0.7|0.8), threshold, threshold(tau=0.95),"
        " factor(f=4.0|2.0), factor, factor(f=0.5|0.25),"
        " entropy(gamma=3.0|1.0|0.3), entropy, entropy(gamma=0.01),"
        " fef-fast, fef-two-stream-1, fef-two-stream, fef-two-stream(anchor=16),"
        " fef-two-stream(steps=4), fef-two-stream-1(refresh_below=0.5|0.7|0.9),"
        " klass, wino, flash, freedave, prophet, pc-sampler, ssd, ddosp, dcd,"
        " llada+dual, threshold+dual, factor+dual, entropy+dual, klass+dual, wino+dual"
    ),
    "decoders": (
        "llada, llada/2, llada/4, llada/8, ssd, ddosp, dcd,"
        " threshold, factor, entropy, klass, wino, flash, freedave, pc-sampler, prophet,"
        " fef-1, fef-2, fef-4"
    ),
    "blocks": (
        "llada, threshold, factor, entropy,"
        " block(editing_threshold=0.5,threshold=0.7),"
        " block(editing_threshold=0.9,threshold=0.95),"
        " block(editing_threshold=0.0,threshold=0.5),"
        " s2d2, s2d2(acceptance=match), fef-1, fef-2, fef-two-stream-1"
    ),
    "caches": (
        "llada, llada+prefix, llada+dual, threshold, threshold+prefix, threshold+dual,"
        " factor, factor+prefix, factor+dual, entropy, entropy+prefix, entropy+dual,"
        " klass, klass+prefix, klass+dual, wino, wino+prefix, wino+dual"
    ),
}
GROUPS = {name: expanded(text) for name, text in _GROUPS.items()}
DEFAULT_METHODS = "llada,llada/2,fef-2,fef-4"
ALL = "all"  # stands for every preset
TUNED = "-tuned-"  # between decoder and goal in the name of a method that harness/tune.py chose


def prefix_conditioned(config: RunConfig) -> list[str]:
    """The methods of a run whose decoder is prefix-conditioned: FeF-DLLM's, to which the paper's
    theorems apply."""
    names = []
    for name, method in config.methods.items():
        decoder = METHODS.get(method.method)
        if decoder is not None and decoder.prefix_conditioned:
            names.append(name)
    return names


def describe_presets(methods: str = DEFAULT_METHODS) -> str:
    """One line per preset: name, row, decoder and the options it sets; then groups and decoders.

    Args:
        methods: decoders whose options are listed too, separated by commas; to know them takes
            torch.
    """
    lines = []
    for name, preset in PRESETS.items():
        options = dict(preset.options)
        if preset.tokens_per_step == 1:
            options["steps"] = "gen_length"
        elif preset.tokens_per_step is not None:
            options["steps"] = f"gen_length // {preset.tokens_per_step}"
        call = f"{preset.method}({', '.join(f'{k}={v}' for k, v in options.items())})"
        lines.append(f"{name:30} {preset.row:46} {call}")
    for name, elements in GROUPS.items():
        lines.append(f"{name:30} {', '.join(elements)}")
    lines += [
        f"{ALL:30} every one of them",
        "",
        "An element is NAME(option=value, ...) of a decoder or a preset. Decoders:",
        ", ".join(METHODS),
        "--list --methods NAME,NAME has their options; each also takes gen_length, block_length and"
        " role",
    ]
    if methods == DEFAULT_METHODS:
        return "\n".join(lines)
    for element in elements_of(methods):
        name = parse_call(element)[0].partition("+")[0]
        # With a colon it is of a file, which --plugin lists.
        if ":" not in name and name not in (*METHODS, *PRESETS, *GROUPS, ALL):
            raise UserError(f"--list: unknown method {name}{meant(name, [*METHODS, *PRESETS])}")
        if name in METHODS:
            fields = structs.fields(METHODS[name].options)
            options_text = ", ".join(f"{field.name}={field.default!r}" for field in fields)
            lines.append(f"{name:30} {options_text}")
    return "\n".join(lines)
