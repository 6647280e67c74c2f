"""The options of a run: the command line of harness/run.py is made of these fields, and
`harness.evaluate` fills them.

A new option is a field here, the code that uses it, and its line in docs/usage.md. This module
imports nothing heavy, so that `--help` answers at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.methods.presets import DEFAULT_METHODS
from harness.options import UNSAFE_HELP, option
from harness.suites.registry import PAPER_SUITES

# Options that --resume takes from run.json if they are not given. Not among them: what a run gets
# more of (methods, suite, items, plugin), and what each command says anew (out, workers, quiet).
RESUMED = (
    "model",
    "data",
    "limit",
    "gen_length",
    "block_length",
    "stop_at_eos",
    "temperature",
    "seed",
    "published",
    "samples",
    "prompt",
    "chat_template_args",
    "dtype",
    "trust_remote_code",
    "reads_at",
    "graphs",
    "threads",
    "untimed",
    "batch",
    "trace",
    "device",
    "device_map",
)
DEFAULT_SUITES = ",".join(PAPER_SUITES)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run; `harness.options.checked` checks the values.

    Elements of `methods` may be decoders themselves. The first ten options are what most runs need;
    `--help` shows the others in groups.
    """

    suite: str | tuple[str, ...] = option(
        "comma-separated, or NAME=FILE of questions; --list has their names", DEFAULT_SUITES
    )
    methods: str | tuple[Any, ...] = option(
        "presets, groups or decoders, with (option=value) each; see --list", DEFAULT_METHODS
    )
    model: str = option(
        "nano, a folder, a hub id, role=model,role=model, or a JSON table of roles", "nano"
    )
    data: str | None = option(
        "folder in OpenCompass's layout, or generated[-dev][:SEED] (default with nano: generated)"
    )
    limit: int | None = option("first N items of each suite (default: all)", least=1)
    device: str = option("cpu, cuda, cuda:1, ...", "cpu")
    workers: int | None = option(
        "decode in N processes that own their cores or GPU (needs Ray)", least=1, metavar="N"
    )
    out: Path | None = option("folder of the run")
    resume: bool = option("go on with the run in --out", False)
    list: bool = option("print the presets with their options, and the suites, and stop", False)
    plugin: tuple[str, ...] = option(
        "a file, or a module, with decoders or suites",
        (),
        action="append",
        metavar="FILE.py",
        group="decoding",
    )
    items: str | dict[str, tuple[int, ...]] | None = option(
        "these items of each suite, by their numbers (3,17,40-60), or wrong:RUN, those that a run"
        " got wrong",
        metavar="ITEMS",
    )
    gen_length: int | None = option("tokens of a response (default: per suite)", least=1)
    block_length: int | None = option(
        "tokens of a block (default: per suite; FeF decodes the full sequence)", least=1
    )
    stop_at_eos: bool | None = option("end a response at EOS, with every method alike")
    temperature: float = option("0: the likeliest token, always", 0.0)
    seed: str | int | tuple[int, ...] = option(
        "one, or several (0,1,2) for mean and spread over them", 0
    )
    published: bool = option(
        "decode as the model's authors do: their decoder, options, temperature and prompt, where"
        " nothing else is given",
        False,
    )
    samples: int = option(
        "responses to each item, with seeds made of --seed, for pass@k", 1, least=1, metavar="N"
    )
    prompt: Literal["chat", "plain"] = option(
        "plain: the text alone, for a model without a chat template", "chat", group="models"
    )
    chat_template_args: str | dict[str, Any] | None = option(
        'what chat templates are rendered with, as JSON: {"enable_thinking": true}', metavar="JSON"
    )
    dtype: str | None = option(
        "float32, bfloat16, float16 or auto (default: float32 on a CPU, else bfloat16)"
    )
    device_map: Literal["auto"] | None = option(
        "spread models that are larger than one GPU over all of this machine, in the place of"
        " --device"
    )
    trust_remote_code: bool = option("run the code of a model whose type is unknown here", False)
    reads_at: Literal[0, -1] | None = option(
        "of such a model: where the logits of a position stand"
    )
    graphs: bool = option(
        "run the models through CUDA graphs, for all methods alike; on a GPU", False
    )
    threads: int | None = option(
        "CPU threads, of each worker (default: the fastest number for the first prompt; the cores /"
        " workers)",
        least=1,
        most=1024,
        group="seconds and records",
    )
    untimed: bool = option(
        "seconds are not for comparison (runs side by side): no Speed in tables", False
    )
    batch: int | Literal["auto"] | None = option(
        "decode N responses at once, or as many as memory has room for; no Speed in tables",
        type=lambda text: int(text) if text.lstrip("-").isdecimal() else text,
        metavar="N|auto",
    )
    trace: bool = option(
        "record every commit, re-mask and rejected draft; the report plays them", False
    )
    ray_address: str | None = option(
        "of a Ray cluster that exists (default: one on this machine)",
        metavar="HOST:PORT",
        group="workers",
    )
    gpus_per_worker: float | None = option(
        "with --device cuda: 1, or a part of one, which needs --untimed"
    )
    plan: bool = option(
        "print how long the run will take, from one response a method, and stop",
        False,
        group="the run and its folder",
    )
    status: Path | None = option("print how far the run in a folder is and stop", metavar="FOLDER")
    overwrite: bool = option(
        "delete the records in --out first, and its folders tables, figures and report with all"
        " that is in them",
        False,
    )
    quiet: bool = option("print nothing but what is wrong", False)
    unsafe_code_execution: bool = option(UNSAFE_HELP, False)


def resumed(options: RunOptions) -> dict[str, Any]:
    """The options among RESUMED that differ from their defaults, for run.json."""
    defaults = RunOptions()
    values = {name: getattr(options, name) for name in RESUMED}
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}
