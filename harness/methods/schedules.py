"""DDOSP's schedule files in a run: which one a suite has, and whether it was made for this very run.

A schedule belongs to a model, a suite, lengths, steps and what is done about EOS. nano ships some, which hold where
they fit; a suite without one has the uniform schedule. `harness/schedule.py` writes the files.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.records.files import file_hash, model_hashes
from harness.records.schema import Method
from model_wrappers.backbones.registry import model_folder
from model_wrappers.decoders.ddosp import read_schedule, schedule_path

Roles = dict[str, dict[str, str]]  # role -> suite -> name of a model
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


def with_schedules(methods: dict[str, Method], models: Roles) -> dict[str, Method]:
    """The methods of a configuration, where those of DDOSP have their schedule on every suite.

    models: role -> suite -> name. The option `schedule` is given as a file, or as a folder with <suite>.json; the
    settings have the file, and `schedule_sha256` of its content. Both are None for the uniform
    schedule, and the label then says so. Raises ValueError for a schedule that was made for something else.
    """
    changed = {}
    for name, method in methods.items():
        if method.method != "ddosp":
            continue
        settings = {}
        for suite, setting in method.suites.items():
            assert setting.gen_length is not None and setting.block_length is not None, "settings have their lengths"
            ends = {option: setting.options.get(option, False) for option in END_OPTIONS}
            lengths = setting.gen_length, setting.block_length, setting.options["steps"]
            wanted = Purpose(models[method.role][suite], suite, *lengths, **ends)
            option, given = None, setting.options.get("schedule")
            if given is not None:
                option = str(Path(given, f"{suite}.json")) if Path(given).is_dir() else given
                check_schedule(option, wanted)
            elif wanted.model == "nano" and schedule_path(f"nano/{suite}").is_file():
                with suppress(ValueError):
                    check_schedule(f"nano/{suite}", wanted)
                    option = f"nano/{suite}"
            digest = None if option is None else file_hash(schedule_path(option))
            settings[suite] = replace(setting, options=setting.options | {"schedule": option}, schedule_sha256=digest)
        uniform = any(setting.schedule_sha256 is None for setting in settings.values())
        label = f"{method.label} (uniform schedule)" if uniform else method.label
        changed[name] = replace(method, label=label, suites=settings)
    return methods | changed


def check_schedule(schedule: str, wanted: Purpose) -> None:
    """Raise ValueError for a file that is no schedule, or that was made for something else.

    Weights are compared by SHA-256 where both sides have them, else by the model's name.
    """
    read_schedule(schedule, wanted.gen_length // wanted.block_length, wanted.steps, wanted.block_length)
    content: dict[str, Any] = json.loads(schedule_path(schedule).read_text(encoding="utf-8"))
    made = {name: content.get(name, False) for name in asdict(wanted)}
    weights, made_weights = model_hashes(model_folder(wanted.model)), content.get("weights")
    if weights and made_weights:
        other = f"{made['model']} with other weights"
        made["model"] = wanted.model if weights == made_weights else other
    wrong = {name: value for name, value in asdict(wanted).items() if made[name] != value}
    if wrong:
        there, here = (", ".join(f"{name} {side[name]}" for name in wrong) for side in (made, wrong))
        raise ValueError(f"schedule {schedule} was made for {there}, not for {here}; harness/schedule.py makes one")
