"""Methods by name: a preset is a decoder, its options, and the row of the table. `harness/run.py
--list` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from harness.errors import UserError
from harness.records.schema import RunConfig, Setting
from harness.suites.published import LENGTHS, settings_of_decoder
from model_wrappers.decoders import METHODS, Decoder, Method, decoder_named

if TYPE_CHECKING:
    from model_wrappers.backbones.blocks import Blocks

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


def split_lengths(values: Mapping[str, Any], where: str) -> tuple[dict[str, int], dict[str, Any]]:
    """Lengths and options of these values; block_length=null is the whole response.

    Raises UserError for another length that is no whole number of at least 1.
    """
    lengths = {name: values[name] for name in LENGTHS if name in values}
    for name, length in lengths.items():
        if (type(length) is not int or length < 1) and (name, length) != ("block_length", None):
            raise UserError(f"{where}: {name}={length!r} must be a whole number of at least 1")
    return lengths, {name: value for name, value in values.items() if name not in LENGTHS}


@dataclass(frozen=True)
class Preset:
    """A method as a table names it, its row `label`; method: a name in METHODS, or a decoder.

    tokens_per_step: steps are gen_length // this. role: whose checkpoint decodes; `two-stream`
    falls back to `fef`, then the base. draft_role: whose drafts (None: `draft` where the run has
    it, else the target's). lengths, suites: of all suites, and by suite; given: the command line's.
    tuned_on: by suite the problems, of a method that was tuned for these suites alone; roles: by
    suite, where not all have `role`.
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

    @property
    def decoder(self) -> Decoder:
        """What decodes. Raises ValueError for an unknown name."""
        return decoder_named(self.method)

    def joined(self, other: Preset) -> Preset:
        """A tuned method for its own suites and those of `other`. Raises UserError where both are
        for one suite."""
        if (
            both := sorted(self.suites.keys() & other.suites.keys())
        ) or self.method != other.method:
            raise UserError(
                f"{self.label} was tuned twice for {', '.join(both) or 'other decoders'}; name one"
                " of the two"
            )
        roles = {
            suite: each.roles.get(suite, each.role)
            for each in (self, other)
            for suite in each.suites
        }
        differ = len({*roles.values()}) > 1
        suites = {**self.suites, **other.suites}
        tuned_on = {**self.tuned_on, **other.tuned_on}
        return replace(self, suites=suites, tuned_on=tuned_on, roles=roles if differ else {})

    def for_suite(
        self,
        suite: str,
        settings: dict[str, Any],
        overrides: dict[str, Any],
        family: str = "",
        attends: Blocks | None = None,
    ) -> Setting:
        """Lengths and options on a suite, checked. Raises UserError or ValueError for lengths that
        do not fit.

        Later ones win: the suite's default `settings` (block lengths for semi-autoregressive
        methods alone), those published for the model's family, the preset's, `overrides` of the run
        for all methods, those given for this one. attends: a block model's blocks, which replace
        those of suites and published settings.
        """
        # torch: not for --list
        from model_wrappers.api import (
            check_blocks,
            check_lengths,
            check_options,
        )

        tuned = not self.tuned_on or suite in self.tuned_on
        wrong = "" if tuned else f"not tuned for {suite}, but for {', '.join(self.suites)}"
        decoder = self.decoder
        published, source = settings_of_decoder(decoder.name, family, suite)
        preset = {**published, **self.options, **self.lengths, **self.suites.get(suite, {})}
        for_all = {
            name: value
            for name, value in overrides.items()
            if name in LENGTHS or decoder.takes(name)
        }
        given = {**for_all, **self.given}
        values = {**preset, **given}
        gen_length = values.get("gen_length", settings["gen_length"])
        block = gen_length
        if "block_length" in given:
            block = given["block_length"] or gen_length
        elif "block_length" in preset or decoder.semi_autoregressive:
            usual = preset.get("block_length", settings.get("block_length", gen_length))
            block = min(usual or gen_length, gen_length)
        check_blocks(decoder, attends)
        if attends is not None and not attends.causal:
            block = given.get("block_length", attends.length) or gen_length
            if values.get("cache", "none") != "none":
                wrong = "a block model keeps finished blocks, exactly; it takes no cache"
        check_lengths(gen_length, block)
        options = {
            name: value
            for name, value in settings.get("options", {}).items()
            if decoder.takes(name)
        }
        options |= {name: value for name, value in values.items() if name not in LENGTHS}
        if self.tokens_per_step is not None and "steps" not in options:
            if gen_length % (self.tokens_per_step * (gen_length // block)):
                wrong = f"{self.tokens_per_step} tokens a step do not divide blocks of {block}"
            options["steps"] = gen_length // self.tokens_per_step
        if decoder.takes("stop_at_eos") and decoder.options().stop_at_eos:  # type: ignore[attr-defined]
            # what only some rows do by default, their notes must show
            options.setdefault("stop_at_eos", True)
        if wrong:
            raise UserError(f"{self.label} on {suite}: {wrong}")
        check_options(decoder, options)
        whole = {"gen_length": gen_length, "block_length": block, **options}
        as_published = bool(source) and published.items() <= whole.items()
        other_blocks = attends is not None and not attends.causal and attends.length != block
        return Setting(
            gen_length=gen_length,
            block_length=block,
            options=options,
            published=source if as_published else UNSET,
            attends=attends.length if attends is not None and other_blocks else UNSET,
            tuned_on=self.tuned_on.get(suite) or UNSET,
        )


def _fef(steps: int, label: str = "FeF-DLLM", **options: Any) -> Preset:
    return Preset(f"{label} (step={steps})", "fef", {"steps": steps, **options}, role="fef")


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
# Names that stand for several elements: the rows of the paper's tables, of figures, and every
# decoder.
GROUPS = {
    "main": ["llada", "llada/2", "ssd", "ddosp", "dcd", "fef-2", "fef-4"],
    "training": [
        "llada",
        "llada-trained",
        "llada-control",
        "fef-2-untrained",
        "fef-4-untrained",
        "fef-2",
        "fef-4",
    ],
    "speculation": ["llada", "fef-2-nosd", "fef-4-nosd", "fef-2", "fef-4"],
    "draft": ["llada", "fef-4", "fef-4-untrained-draft"],
    "window-size": [
        *(
            "llada",
            *(f"fef-4(window={n})" for n in (2, 4, 8)),
            "fef-4",
            "fef-4(window=24)",
            "fef-4(window=32)",
        ),
    ],
    "savings": [
        *(
            "llada",
            "fef-2",
            "fef-2(skip_root_row=true)",
            "fef-2(reuse_drafts=true)",
            "fef-2(adaptive_window=true)",
        ),
        *("fef-fast", "fef-two-stream"),
    ],
    "anchor": [
        "llada",
        "fef-two-stream",
        *(f"fef-two-stream(anchor={n})" for n in (32, 24, 16, 8)),
    ],
    "front": [
        *("llada", "llada/2", "llada/4", "llada/8"),
        *(
            "threshold(tau=0.5)",
            "threshold(tau=0.7)",
            "threshold(tau=0.8)",
            "threshold",
            "threshold(tau=0.95)",
        ),
        *("factor(f=4.0)", "factor(f=2.0)", "factor", "factor(f=0.5)", "factor(f=0.25)"),
        *(
            "entropy(gamma=3.0)",
            "entropy(gamma=1.0)",
            "entropy(gamma=0.3)",
            "entropy",
            "entropy(gamma=0.01)",
        ),
        *(
            "fef-fast",
            "fef-two-stream-1",
            "fef-two-stream",
            "fef-two-stream(anchor=16)",
            "fef-two-stream(steps=4)",
        ),
        *(f"fef-two-stream-1(refresh_below={c})" for c in (0.5, 0.7, 0.9)),
        *("klass", "wino", "freedave", "prophet", "pc-sampler", "ssd", "ddosp", "dcd"),
        *(f"{name}+dual" for name in ("llada", "threshold", "factor", "entropy", "klass", "wino")),
    ],
    "decoders": [
        *("llada", "llada/2", "llada/4", "llada/8", "ssd", "ddosp", "dcd"),
        *("threshold", "factor", "entropy", "klass", "wino", "freedave", "pc-sampler", "prophet"),
        *("fef-1", "fef-2", "fef-4"),
    ],
    "blocks": [
        *("llada", "threshold", "factor", "entropy"),
        "block(editing_threshold=0.5,threshold=0.7)",
        "block(editing_threshold=0.9,threshold=0.95)",
        "block(editing_threshold=0.0,threshold=0.5)",
        *("s2d2", "s2d2(acceptance=match)", "fef-1", "fef-2", "fef-two-stream-1"),
    ],
    "caches": [
        f"{name}{cache}"
        for name in ("llada", "threshold", "factor", "entropy", "klass", "wino")
        for cache in ("", "+prefix", "+dual")
    ],
}
DEFAULT_METHODS = "llada,llada/2,fef-2,fef-4"
ALL = "all"  # stands for every preset
TUNED = "-tuned-"  # between decoder and goal in the name of a method that harness/tune.py chose


def prefix_conditioned(config: RunConfig) -> list[str]:
    """The methods of a run whose decoder is prefix-conditioned: FeF-DLLM's, to which the paper's
    theorems apply."""
    decoders = {name: METHODS.get(method.method) for name, method in config.methods.items()}
    return [
        name
        for name, decoder in decoders.items()
        if decoder is not None and decoder.prefix_conditioned
    ]


def describe_presets(methods: str = DEFAULT_METHODS) -> str:
    """One line per preset: name, row, decoder and the options it sets; then groups and decoders.

    methods: decoders whose options are listed too, separated by commas; to know them takes torch.
    """
    lines = []
    for name, preset in PRESETS.items():
        options = dict(preset.options)
        if preset.tokens_per_step is not None:
            options["steps"] = "gen_length" + (
                f" // {preset.tokens_per_step}" if preset.tokens_per_step > 1 else ""
            )
        call = f"{preset.method}({', '.join(f'{k}={v}' for k, v in options.items())})"
        lines.append(f"{name:30} {preset.label:46} {call}")
    lines += [f"{name:30} {', '.join(presets)}" for name, presets in GROUPS.items()]
    lines.append(f"{ALL:30} every one of them")
    lines += [
        "",
        "An element is NAME(option=value, ...) of a decoder or a preset. Decoders:",
        ", ".join(METHODS),
    ]
    lines.append(
        "--list --methods NAME,NAME has their options; each also takes gen_length, block_length and"
        " role"
    )
    for name in methods.split(",") if methods != DEFAULT_METHODS else ():
        if name.strip() in METHODS:
            fields = structs.fields(METHODS[name.strip()].options)
            every = (f"{field.name}={field.default!r}" for field in fields)
            lines.append(f"{name.strip():30} {', '.join(every)}")
    return "\n".join(lines)
