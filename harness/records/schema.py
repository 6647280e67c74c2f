"""The schema of a record: run.json with its configuration, and lines of items.jsonl, windows.jsonl,
passes.jsonl and prompts.jsonl.

Fields that identify a record are required. The others may be missing, for other tools write records
too, but must have the right type and range if they are there. Unknown fields are allowed.
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
    """The settings of a method on a suite.

    Attributes:
        gen_length: tokens of a response.
        block_length: tokens of a block.
        options: of the decoder, as JSON has them.
        schedule_sha256: of the file of a schedule; None for the uniform one.
        published: the source, if the decoder was published with these settings for this family.
        attends: the block length of a block model's attention, if it is not block_length.
        tuned_on: the problems on which harness/tune.py chose the settings.
    """

    gen_length: int | None = None
    block_length: int | None = None
    options: dict[str, Any] = {}
    schedule_sha256: str | UnsetType | None = UNSET
    published: str | UnsetType = UNSET
    attends: int | UnsetType = UNSET
    tuned_on: str | UnsetType = UNSET


class Method(Struct, kw_only=True):
    """A method of a run, a row of its tables.

    Attributes:
        label: of the row.
        method: the decoder's name.
        role: of the checkpoint that decodes.
        draft_role: of the model that drafts, if it is another one.
        suites: settings by suite.
    """

    label: str = ""
    method: str = ""
    role: str = "base"
    draft_role: str | None = None
    suites: dict[str, Setting] = {}


class QuestionsName(Struct):
    """A file of questions as run.json names it.

    Attributes:
        file: its name, without the folder.
        sha256: of the file.
        prompt: the column of the question.
        answer: the column of the reference.
        judge: its name, or FILE.py:NAME.
        judge_sha256: of the judge's file.
    """

    file: str = ""
    sha256: str = ""
    prompt: str = ""
    answer: str = ""
    judge: str = ""
    judge_sha256: str | UnsetType = UNSET


class SuiteName(Struct):
    """A suite as run.json names it.

    Attributes:
        title: in tables.
        configuration: the name of OpenCompass's configuration, for real problems.
        configuration_sha256: of that configuration.
        questions: the file, for a suite of questions.
    """

    title: str = ""
    configuration: str | UnsetType = UNSET
    configuration_sha256: str | UnsetType = UNSET
    questions: QuestionsName | UnsetType = UNSET


class RunConfig(Struct, kw_only=True):
    """All that determines the tokens and forwards of a run. None: an older record does not say.

    Attributes:
        models: role -> suite -> name.
        suites: by name.
        methods: by key.
        data: "generated[-dev][:SEED]", or SHA-256 by suite.
        limit: items of each suite; None for all.
        items: numbers of the chosen problems by suite; of a suite that is missing, all.
        temperature: of all methods.
        seed: the first one.
        seeds: several seeds, with each of which every problem is decoded (see `draws`).
        samples: responses to each problem, with seeds that are made of `seed`.
        device: cpu, cuda, ...; with a device_map the kind of the first one.
        device_map: how models were spread over devices.
        dtype: of the models.
        compile: always false; torch.compile was an option of older runs.
        graphs: whether models ran through CUDA graphs.
        trust_remote_code: whether code that comes with a model was run.
        reads_at: of such a model, where the logits of a position are.
        prompt: "plain" if there is no chat template around it.
        chat_template_args: arguments of the chat template.
        threads: CPU threads, of each worker.
        chunk: items that pass through all methods before the next ones.
        batch: responses decoded at once.
        timed: whether seconds are for comparison.
        traced: whether the events of responses are recorded.
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
        """Whether the problems are generated ones, apart from files of questions."""
        return isinstance(self.data, str)

    @property
    def draws(self) -> tuple[int, ...]:
        """The seeds with which every problem is decoded. The first sample of each has the run's own
        seeds."""
        # Further samples have hashes: with seed + n, runs of neighbouring seeds would share
        # samples.
        seeds = self.seeds or (self.seed or 0,)
        numbers = range(1, self.samples or 1)
        return (*seeds, *(item_seed(seed, "sample", n) for n in numbers for seed in seeds))

    def numbers(self, suite: str, total: int) -> Sequence[int]:
        """The numbers of a suite's items that the run decodes: all problems of the first draw, then
        of the next.

        Args:
            suite: its name.
            total: problems of the suite times draws.
        """
        chosen = (self.items or {}).get(suite)
        if chosen is None:
            return range(total)
        first_items = range(0, total, total // len(self.draws))
        return [first + problem for first in first_items for problem in chosen]

    def to_json(self) -> dict[str, Any]:
        """The configuration for run.json, without timed, traced and graphs if they have their usual
        values."""
        # So that the hash of an older record, which lacks them, is that of its configuration.
        values: dict[str, Any] = msgspec.to_builtins(self)
        for name, usual in (("timed", True), ("traced", False), ("graphs", False)):
            if values[name] is usual:
                del values[name]
        return values


def item_seed(seed: int, suite: str, item: int) -> int:
    """The random seed of an item, 48 bits: a hash of (seed, suite, item).

    It does not depend on the order of the items, nor on the number of workers.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {suite} {item}".encode()).digest()[:6], "big")


class PluginName(Struct):
    """A plugin as run.json names it.

    Attributes:
        plugin: the value of --plugin.
        path: of its file.
        sha256: of its code.
        registered: names by kind: decoders, presets, suites.
    """

    plugin: str
    path: str
    sha256: str
    registered: dict[str, list[str]] = {}

    @property
    def methods(self) -> list[str]:
        """The names that --methods accepts from this plugin."""
        return [*self.registered.get("decoders", []), *self.registered.get("presets", [])]


# Method, suite, item.
Key = tuple[str, str, int]


class RunRecord(Struct, kw_only=True):
    """run.json. `sessions` and `scoring` are added while the run goes on.

    `options` are those that were given, which --resume takes again; docs/records.md has the rest.
    """

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
        """The files of problems by suite: name, SHA-256, items."""
        return self.data.get("files") or {}


class ItemRecord(Struct):
    """A line of items.jsonl: one response, its verdict and its costs. Described in docs/records.md.

    Attributes:
        flop: see model_wrappers/backbones/flop.py.
        cpu_seconds, device_seconds, draw_seconds: see model_wrappers/clock.py.
        waited_seconds: how long threads waited for a core, on Linux.
        peak_bytes, joules: see harness/runs/meters.py.
        throttled: whether the GPU's hardware lowered its clocks.
        disturbed: whether other programs used the machine each time that it was timed.
        first_block_seconds: until the first block was committed.
        content_seconds: until the block of the last token before the end was committed.
        worker: a key of `workers` in a session of run.json.
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
    """A line of prompts.jsonl: the prompt of an item as its model reads it, with the chat
    template."""

    suite: str
    item: Count
    prompt: str
    prompt_hash: str | None = None


class WindowRecord(Struct):
    """A line of windows.jsonl: one speculative window of a response."""

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
    """A line of passes.jsonl: seconds of single passes on an item's prompt and a masked response,
    measured after the items of a FeF method.

    Attributes:
        drafts: that are verified.
        plain: of a forward that reads half of the response, LLaDA's average.
        draft: of a draft pass.
        verification: of a verification, without a context pass.
    """

    method: str
    suite: str
    item: Count
    drafts: Count
    plain: Seconds
    draft: Seconds
    verification: Seconds


Line = type[ItemRecord] | type[WindowRecord] | type[PassRecord] | type[PromptRecord]
