"""What a record must look like to be read: run.json with its configuration, lines of items.jsonl
and windows.jsonl.

What is needed to say whose record it is must be there; the rest may be missing, for other tools
write records too, but what is there must have its type and range. Fields that are not named here
are allowed.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

SCHEMA = 1
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class Setting(Struct, kw_only=True):
    """A method on a suite: lengths in tokens, the decoder's options as JSON has them.

    published: the source, where the decoder was published with these settings for this model
    family. attends: a block model's block length, where it attends in others. schedule_sha256: of a
    schedule's file; None for the uniform one. tuned_on: the problems that harness/tune.py chose the
    settings on.
    """

    gen_length: int | None = None
    block_length: int | None = None
    options: dict[str, Any] = {}
    schedule_sha256: str | UnsetType | None = UNSET
    published: str | UnsetType = UNSET
    attends: int | UnsetType = UNSET
    tuned_on: str | UnsetType = UNSET


class Method(Struct, kw_only=True):
    """A row of a table: its label, its decoder, whose checkpoints it uses, and its settings by
    suite."""

    label: str = ""
    method: str = ""
    role: str = "base"
    draft_role: str | None = None
    suites: dict[str, Setting] = {}


class QuestionsName(Struct):
    """A file of questions as a run names it: its name and SHA-256, columns, and the judge with that
    of its file."""

    file: str = ""
    sha256: str = ""
    prompt: str = ""
    answer: str = ""
    judge: str = ""
    judge_sha256: str | UnsetType = UNSET


class SuiteName(Struct):
    """A suite as a run names it; of real problems with the name and the SHA-256 of OpenCompass's
    configuration.

    questions: of a file of questions.
    """

    title: str = ""
    configuration: str | UnsetType = UNSET
    configuration_sha256: str | UnsetType = UNSET
    questions: QuestionsName | UnsetType = UNSET


class RunConfig(Struct, kw_only=True):
    """All that determines the tokens and forwards of a run.

    models: role -> suite -> name. data: "generated[-dev][:SEED]", or SHA-256 by suite. limit: items
    a suite, None for all. items: by suite the numbers of the problems that were chosen; all of a
    suite that is not there. seeds: every problem is decoded with each (`draws`). samples: or so
    many times, with seeds that are made of `seed`. graphs: whether models ran through CUDA graphs.
    device_map: where models were spread over devices; device is then the kind of the first one.
    prompt: where it is not the chat template's. chat_template_args: what that is rendered with,
    where it was set. chunk: items that pass through all methods before the next ones. batch:
    responses decoded at once. timed: whether seconds are for comparison. None where an older record
    does not say.
    """

    models: dict[str, dict[str, str]] = {}
    suites: dict[str, SuiteName] = {}
    methods: dict[str, Method] = {}
    data: str | dict[str, str] | None = None
    limit: int | None = None
    items: dict[str, tuple[Count, ...]] | UnsetType = UNSET
    temperature: float | None = None
    seed: int | None = None
    seeds: Annotated[tuple[int, ...], Meta(min_length=1)] | UnsetType = UNSET
    samples: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    device: str | None = None
    device_map: Literal["auto"] | UnsetType = UNSET
    dtype: str | None = None
    compile: bool | None = None
    graphs: bool = False
    trust_remote_code: bool | UnsetType = UNSET
    reads_at: Literal[0, -1] | UnsetType = UNSET
    prompt: Literal["plain"] | UnsetType = UNSET
    chat_template_args: dict[str, Any] | UnsetType = UNSET
    threads: int | None = None
    chunk: int | None = None
    batch: int | Literal["auto"] | UnsetType = UNSET
    timed: bool = True
    traced: bool = False

    @property
    def generated(self) -> bool:
        """Whether the problems are this project's own, but for files of questions."""
        return isinstance(self.data, str)

    @property
    def draws(self) -> tuple[int, ...]:
        """The seeds that every problem is decoded with, one after the other; those of the first
        samples are the run's.

        Other samples have hashes, so that runs of other seeds share none of them.
        """
        seeds = self.seeds or (self.seed or 0,)
        numbers = range(1, self.samples or 1)
        return (*seeds, *(item_seed(seed, "sample", n) for n in numbers for seed in seeds))

    def numbers(self, suite: str, total: int) -> Sequence[int]:
        """The numbers of a suite's items that the run decodes, all problems of a draw together.

        Args:
            suite: of the run.
            total: items of all its problems, of every draw.
        """
        chosen = (self.items or {}).get(suite)
        if chosen is None:
            return range(total)
        first_items = range(0, total, total // len(self.draws))
        return [first + problem for first in first_items for problem in chosen]

    def to_json(self) -> dict[str, Any]:
        """The configuration as run.json has it; of timed, traced and graphs the usual value is left
        out."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        for name, usual in (("timed", True), ("traced", False), ("graphs", False)):
            if values[name] is usual:
                del values[name]
        return values


def item_seed(seed: int, suite: str, item: int) -> int:
    """The random seed of an item: a hash of (seed, suite, item), so that the order of work changes
    nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed} {suite} {item}".encode()).digest()[:6], "big")


class PluginName(Struct):
    """A plugin as a run names it: how it was asked for, its file, the SHA-256 of its code, what it
    registered."""

    plugin: str
    path: str
    sha256: str
    registered: dict[str, list[str]] = {}

    @property
    def methods(self) -> list[str]:
        """What --methods takes of it."""
        return [*self.registered.get("decoders", []), *self.registered.get("presets", [])]


Key = tuple[str, str, int]  # method, suite, item


class RunRecord(Struct, kw_only=True):
    """run.json; scoring and sessions come while the run goes on. options: given, which --resume
    takes again."""

    schema: Literal[1]
    config: RunConfig
    name: str = ""
    created: str = ""
    config_hash: str = ""
    environment: dict[str, Any] = {}
    weights: dict[str, dict[str, Any]] = {}
    data: dict[str, Any] = {}
    code: dict[str, Any] = {}
    options: dict[str, Any] = {}
    plugins: list[PluginName] = []
    sessions: list[dict[str, Any]] = []
    scoring: dict[str, Any] = {}

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """By suite what the record says of its file: name, SHA-256, items."""
        return self.data.get("files") or {}


class ItemRecord(Struct):
    """One response: whose it is, what it says, whether it is right, what it cost.

    worker: a key of `workers` in a session of run.json. flop: as model_wrappers/backbones/flop.py.
    cpu_seconds, device_seconds, draw_seconds: as model_wrappers/clock.py. waited_seconds: that
    threads waited for a core, on Linux. peak_bytes, joules: as harness/runs/meters.py. throttled:
    whether the GPU's hardware lowered its clocks. disturbed: whether other programs had the machine
    each time that it was timed. first_block_seconds, content_seconds: until the first block was
    committed, and the block of the last token before the end.
    """

    method: str
    suite: str
    item: Count
    schema: Literal[1] = 1
    seed: int | None = None
    prompt_tokens: Count | None = None
    prompt_hash: str | None = None
    content_tokens: Count | None = None
    eos_tokens: Count | None = None
    post_stop_tokens: Count | None = None
    tokens_hash: str | None = None
    text: str | None = None
    gold: str | None = None
    correct: bool | None = None
    why: str | None = None
    forwards: Count | None = None
    rows: Count | None = None
    token_forwards: Count | None = None
    cached_tokens: Count | None = None
    draft_forwards: Count | None = None
    draft_rows: Count | None = None
    draft_token_forwards: Count | None = None
    changed_forwards: Count | None = None
    flop: Count | None = None
    seconds: Seconds | None = None
    cpu_seconds: Seconds | None = None
    waited_seconds: Seconds | None = None
    device_seconds: Seconds | None = None
    draw_seconds: Seconds | None = None
    peak_bytes: Count | None = None
    joules: Amount | None = None
    throttled: bool | None = None
    disturbed: bool | None = None
    first_block_seconds: Seconds | None = None
    content_seconds: Seconds | None = None
    proposed: Count | None = None
    accepted: Count | None = None
    rejected: Count | None = None
    committed: Count | None = None
    worker: str | None = None


class PromptRecord(Struct):
    """The prompt of an item as its model reads it, chat template and all."""

    suite: str
    item: Count
    prompt: str
    prompt_hash: str | None = None


class WindowRecord(Struct):
    """One speculative window of a response."""

    method: str
    suite: str
    item: Count
    step: Count | None = None
    round: Count | None = None
    start: Count | None = None
    proposed: Count | None = None
    accepted: Count | None = None
    committed: Count | None = None


class PassRecord(Struct):
    """Seconds of single passes on an item's prompt and a masked response, measured beside the items
    of a FeF method.

    plain: a forward of which half of the response is read, as LLaDA's in the mean; draft: a draft
    pass; verification: that of `drafts` drafts, without a context pass.
    """

    method: str
    suite: str
    item: Count
    drafts: Count
    plain: Seconds
    draft: Seconds
    verification: Seconds


Line = type[ItemRecord] | type[WindowRecord] | type[PassRecord] | type[PromptRecord]


def what_is_wrong(record: Line, row: Any) -> str:
    """Why a parsed row is no such record, in a few words naming the field; "" if it is one."""
    try:
        msgspec.convert(row, record, strict=False)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
