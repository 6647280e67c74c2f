"""The options of a run, one struct: the command line is made from its fields, and `harness.evaluate` fills them too.

A new option is a field here, the code that uses it, and its line in docs/usage.md. Other commands have structs of the
same kind. Light: `--help` waits for nothing.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from harness.errors import UserError
from harness.methods.presets import DEFAULT_METHODS
from harness.suites.registry import PAPER_SUITES, SUITES
from model_wrappers.options import describe_type, meant, path_from

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DEFAULT_SUITES = ",".join(PAPER_SUITES)
UNSAFE_OPTION = "--unsafe-code-execution"  # of every command that scores
UNSAFE_HELP = "where no sandbox works, run model-written code unprotected instead of not scoring it"
LONGEST_NAME = 255  # bytes, of the usual file systems
T = TypeVar("T", bound="DataclassInstance")


def option(
    help: str | None, default: Any = None, least: float | None = None, most: float | None = None, **argument: Any
) -> Any:
    """A field with its help, default and range; argument: what else argparse needs, with nargs "?" for one without a
    flag.
    """
    return field(default=default, metadata={"least": least, "most": most, "argument": {"help": help, **argument}})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is asked to do; `checked` looks at the values. Elements of methods may be decoders themselves."""

    suite: str | tuple[str, ...] = option(
        f"comma-separated: {', '.join(SUITES)}, or NAME=FILE of questions", DEFAULT_SUITES
    )
    methods: str | tuple[Any, ...] = option(
        "presets, groups or decoders, with (option=value) each; see --list", DEFAULT_METHODS
    )
    plugin: tuple[str, ...] = option(
        "a file, or a module, with decoders or suites", (), action="append", metavar="FILE.py"
    )
    model: str = option("nano, a folder, a hub id, role=model,role=model, or a JSON table of roles", "nano")
    prompt: Literal["chat", "plain"] = option("plain: the text alone, for a model without a chat template", "chat")
    data: str | None = option(
        "folder in OpenCompass's layout, or generated[-dev][:SEED] (default with nano: generated)"
    )
    limit: int | None = option("first N items of each suite (default: all)", least=1)
    gen_length: int | None = option("tokens of a response (default: per suite)")
    block_length: int | None = option("tokens of a block (default: per suite; FeF decodes the full sequence)")
    schedules: Path | None = option("folder of DDOSP schedules, <suite>.json (default: the model's own)")
    stop_at_eos: bool | None = option("end a response at EOS, with every method alike")
    temperature: float = option(None, 0.0)
    seed: str | int | tuple[int, ...] = option("one, or several (0,1,2) for mean and spread over them", 0)
    device: str = option("cpu, cuda, cuda:1, ...", "cpu")
    dtype: Literal["float32", "bfloat16", "float16"] | None = option("default: float32 on a CPU, else bfloat16")
    trust_remote_code: bool = option("run the code of a model whose type is unknown here", False)
    reads_at: Literal[0, -1] | None = option("of such a model: where the logits of a position stand")
    compile: bool = option("run the models through torch.compile, for all methods alike", False)
    graphs: bool = option("run the models through CUDA graphs, for all methods alike; on a GPU", False)
    threads: int | None = option(
        "CPU threads, of each worker (default: torch's own choice; the cores / workers)", least=1, most=1024
    )
    workers: int | None = option("decode in N processes that own their cores or GPU (needs Ray)", least=1, metavar="N")
    ray_address: str | None = option("of a Ray cluster that exists (default: one on this machine)", metavar="HOST:PORT")
    gpus_per_worker: float | None = option("with --device cuda: 1, or a part of one, which needs --untimed")
    allow_devices: str | None = option(
        "unlike devices that may share a run, by name, between semicolons", metavar="NAMES"
    )
    isolate: bool = option("decode with a process for each method, which no other decoder can change", False)
    untimed: bool = option("seconds are not for comparison (runs side by side): no Speed in tables", False)
    trace: bool = option("record every commit, re-mask and rejected draft; the report plays them", False)
    chunk: int = option(
        "items that pass through all methods before the next ones (default 5)", 5, least=1, most=1_000_000
    )
    batch: int | Literal["auto"] | None = option(
        "decode N responses at once, or as many as memory has room for; no Speed in tables",
        type=lambda text: int(text) if text.lstrip("-").isdigit() else text,
        metavar="N|auto",
    )
    item_timeout: float | None = option(
        "leave a response out, by name, that takes longer (default: no limit)", least=0.001, metavar="SECONDS"
    )
    out: Path | None = option("folder of the run")
    unsafe_code_execution: bool = option(UNSAFE_HELP, False)
    resume: bool = option("go on with the run in --out", False)
    overwrite: bool = option("put the run in --out in the place of the one that is there", False)
    quiet: bool = option("print nothing but what is wrong", False)
    plan: bool = option("print what the run will cost, from a minute of it, and stop", False)
    costs: Path | None = option(
        "with --plan: from a record of harness/bench.py --costs instead, or a device (h100) for an estimate",
        metavar="FILE",
    )
    status: Path | None = option("print how far the run in a folder is and stop", metavar="FOLDER")
    list: bool = option("print the presets with their options and stop", False)


def checked(kind: type[T], values: Mapping[str, Any]) -> T:
    """Options of this kind with these values, by field name; None and False stand for no value.

    Raises UserError for an unknown name, and for a value of a wrong type or out of its range.
    """
    known, hints = {each.name: each for each in fields(kind)}, get_type_hints(kind)
    converted = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"unknown option {name}; valid: {', '.join(known)}{meant(name, known)}")
        if value is None or value is False:
            continue
        hint, least, most = hints[name], known[name].metadata["least"], known[name].metadata["most"]
        value = _plain(value)
        if get_origin(hint) is tuple and isinstance(value, str):
            value = (value,)
        try:
            converted[name] = msgspec.convert(value, hint, dec_hook=path_from)
        except msgspec.ValidationError as error:
            wanted = describe_type(msgspec.inspect.type_info(hint)).removesuffix(" or None")  # no text stands for it
            raise UserError(f"{_flag(name)} {value!r} must be {wanted}") from error
        if least is not None and converted[name] < least:
            raise UserError(f"{_flag(name)} {value} must be at least {least}")
        if most is not None and converted[name] > most:
            raise UserError(f"{_flag(name)} {value} must be at most {most}")
        if isinstance(converted[name], PurePath) or name == "data":
            _check_path(name, str(value))
    return kind(**converted)


def _check_path(name: str, path: str) -> None:
    """Raise UserError for what no file can be called."""
    if "\0" in path or any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(path).parts):
        raise UserError(f"{_flag(name)} {path[:60]!r}: a name in it is longer than {LONGEST_NAME} bytes, or has a NUL")


def parsed(kind: type[T], line: list[str] | None, description: str | None = None) -> T:
    """Options of this kind from a command line, of the process if `line` is None. description: for --help.

    Raises UserError as `checked` does; argparse ends the process for text that is no option.
    """
    program = Path(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=f"python -m harness.{program.parent.name}" if program.name == "__main__.py" else None,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    hints = get_type_hints(kind)
    for each in fields(kind):
        argument = _argument(hints[each.name]) | each.metadata["argument"]
        parser.add_argument(each.name if "nargs" in argument else _flag(each.name), **argument)
    return checked(kind, vars(parser.parse_args(line)))


def _plain(value: Any) -> Any:
    """A value without the types that Python has beside it: paths as text, numbers of numpy as numbers."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return str(value) if isinstance(value, PurePath) else value.item() if hasattr(value, "item") else value


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _argument(hint: Any) -> dict[str, Any]:
    """How argparse reads a field of this type: by the first type of a union."""
    kind = hint if get_origin(hint) in (None, Literal) else get_args(hint)[0]
    if kind is bool:
        return {"action": "store_true"}
    choices = get_args(kind)
    return {"type": type(choices[0]), "choices": choices} if choices else {"type": kind}
