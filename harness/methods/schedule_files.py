"""DDOSP's schedule files in a run: where a suite's schedule comes from, and whether it was made for this very run.

A schedule belongs to a model, a suite, lengths, steps and what is done about EOS. One that the user gives and that was
made for something else is refused; one that is shipped with the model is then left alone, and the suite falls back to
the uniform schedule. `harness/schedule.py` writes the files; nothing here needs what it needs for that.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from harness.errors import UserError
from harness.records.hashes import file_hash, model_hashes
from harness.records.schema import Method, RunConfig
from harness.suites.registry import settings_for
from harness.suites.spec import Suite
from model_wrappers.backbones.registry import model_folder
from model_wrappers.decoders.ddosp import read_schedule, schedule_path

Roles = dict[str, dict[str, str]]  # role -> suite -> name of a model
UNIFORM_LABEL = "(uniform schedule)"
END_OPTIONS = ("logits_eos_inf", "confidence_eos_eot_inf")  # the decoding options that a schedule is made under


@dataclass(frozen=True)
class Purpose:
    """What a schedule is made for."""

    model: str
    suite: str
    gen_length: int
    block_length: int
    steps: int
    logits_eos_inf: bool = False
    confidence_eos_eot_inf: bool = False

    def command(self, suite: Suite, generated: bool) -> str:
        """The command that makes such a schedule; `generated`: from nano's generated problems."""
        small = self.model == "nano" or generated
        usual = settings_for(suite, self.model, small).get("options", {})
        ends = ""
        for name in END_OPTIONS:
            wanted = getattr(self, name)
            if wanted != usual.get(name, False):
                ends += f" --{'' if wanted else 'no-'}{name.replace('_', '-')}"
        responses = "" if self.model == "nano" else f" --responses {'generated' if generated else 'FILE'}"
        return (
            f"python harness/schedule.py --model {shlex.quote(self.model)} --suite {self.suite} --steps {self.steps} "
            f"--gen-length {self.gen_length} --block-length {self.block_length}{ends}{responses}"
        )


def made_folder(model: str) -> Path:
    """Below the repository's root, where harness/schedule.py writes a model's schedules unless told otherwise."""
    return Path("results", "schedules", model.rstrip("/").split("/")[-1])


def mismatch(path: Path, wanted: Purpose) -> str | None:
    """What a schedule file was made for and what is wanted, where they differ; None where it fits.

    Weights are compared by SHA-256 where both sides have them, else by the model's name. Raises ValueError for a file
    that is no schedule, or whose quotas do not add up.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        unnamed = dict.fromkeys(END_OPTIONS, False)  # a file that names no option was made under none
        made = asdict(Purpose(**{name: (unnamed | content)[name] for name in asdict(wanted)}))
        made_weights = dict(content["weights"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"schedule {path} cannot be read: {type(error).__name__}: {error}; harness/schedule.py writes one"
        ) from error
    want: dict[str, Any] = asdict(wanted)
    weights = model_hashes(model_folder(wanted.model))
    if weights and made_weights:
        if weights == made_weights:
            made["model"] = want["model"]
        elif made["model"] == want["model"]:
            made["model"] += " with other weights"
    wrong = [name for name in want if made[name] != want[name]]
    if wrong:
        there, here = (", ".join(f"{name} {side[name]}" for name in wrong) for side in (made, want))
        return f"made for {there}, not for {here}"
    read_schedule(path, wanted.gen_length // wanted.block_length, wanted.steps, wanted.block_length)
    return None


def with_schedules(
    methods: dict[str, Method], models: Roles, folder: Path | None, suites: dict[str, Suite], generated: bool
) -> dict[str, Method]:
    """The methods of a configuration, with the schedule of every suite where the method takes one.

    models: role -> suite -> name. folder: the user's, with <suite>.json for any of the suites. The option `schedule` is
    what the decoder takes, `schedule_sha256` beside the options ties it to its content; both are None for the uniform
    schedule, and the label then says so. Raises UserError for a schedule of the user's that was made for something
    else, and for a folder of which nothing would be used.
    """
    scheduled = {name: method for name, method in methods.items() if method.method == "ddosp"}
    if folder is not None:
        if not scheduled:
            raise UserError("--schedules is for ddosp, which --methods does not name")
        if not any((folder / f"{suite}.json").exists() for suite in suites):
            raise UserError(f"--schedules {folder} holds none of {', '.join(f'{suite}.json' for suite in suites)}")
    changed = {}
    for name, method in scheduled.items():
        settings = {}
        for suite, setting in method.suites.items():
            option = _find(_purpose(method, suite, models), folder, suites[suite], generated)
            digest = None if option is None else file_hash(schedule_path(option))
            settings[suite] = replace(setting, options=setting.options | {"schedule": option}, schedule_sha256=digest)
        uniform = any(setting.schedule_sha256 is None for setting in settings.values())
        label = f"{method.label} {UNIFORM_LABEL}" if uniform else method.label
        changed[name] = replace(method, label=label, suites=settings)
    return methods | changed


def describe_schedules(config: RunConfig, suites: dict[str, Suite]) -> list[str]:
    """A line per suite of every method with a schedule: which one, or why there is none and how to make one."""
    lines = []
    for method in config.methods.values():
        for suite, setting in method.suites.items():
            if setting.schedule_sha256 is UNSET:
                continue
            if setting.options["schedule"] is not None:
                lines.append(f"DDOSP on {suite}: schedule {setting.options['schedule']}")
                continue
            wanted = _purpose(method, suite, config.models)
            own = _shipped(wanted)
            reason = "no schedule" if own is None else f"schedule {own} is {mismatch(schedule_path(own), wanted)}"
            lines.append(
                f"DDOSP on {suite}: uniform schedule ({reason}); make one: "
                f"{wanted.command(suites[suite], config.generated)}, then --schedules {made_folder(wanted.model)}"
            )
    return lines


def _purpose(method: Method, suite: str, models: Roles) -> Purpose:
    setting = method.suites[suite]
    assert setting.gen_length is not None and setting.block_length is not None, "a resolved setting has its lengths"
    return Purpose(
        models[method.role][suite],
        suite,
        setting.gen_length,
        setting.block_length,
        setting.options["steps"],
        **{name: setting.options.get(name, False) for name in END_OPTIONS},
    )


def _find(wanted: Purpose, folder: Path | None, suite: Suite, generated: bool) -> str | None:
    """The schedule of a suite, as the decoder's option: the user's, else the model's own if it fits, else None."""
    given = None if folder is None else folder / f"{wanted.suite}.json"
    if given is not None and given.exists():
        wrong = mismatch(given, wanted)
        if wrong is not None:
            raise UserError(f"schedule {given} is {wrong}; make the right one: {wanted.command(suite, generated)}")
        return str(given)
    own = _shipped(wanted)
    return own if own is not None and mismatch(schedule_path(own), wanted) is None else None


def _shipped(wanted: Purpose) -> str | None:
    """The schedule in the model's own folder, as the decoder's option, if there is one."""
    file = model_folder(wanted.model) / "schedules" / f"{wanted.suite}.json"
    if not file.exists():
        return None
    return f"nano/{wanted.suite}" if wanted.model == "nano" else str(file)
