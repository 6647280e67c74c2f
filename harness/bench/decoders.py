"""What responses cost: against the forwards that they make, by how many are decoded at once, and on golden problems."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import psutil
import torch

from harness.bench.passes import random_ids
from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.methods.presets import Preset
from harness.records.environment import interleaved
from harness.records.store import KEY, Run
from harness.runs.responses import cost_and_tokens
from harness.stats import median_ratio, ratio_of_totals
from harness.suites.registry import PAPER_SUITES, problems, suite_named
from model_wrappers import Backbone, Trace, decode, load_backbone
from model_wrappers.backbones.protocol import BackboneLike, KeyValues
from model_wrappers.batches import at_once, in_batch
from model_wrappers.chat import content_length, encode_question
from model_wrappers.costs import hash_of

AT_ONCE = 5  # golden problems that pass through all methods before the next ones
SHARES = {"median": 0.5, "90%": 0.9, "99%": 0.99}


def bench_methods(
    backbone: Backbone, prompts: list[torch.Tensor], response: int, repeats: int, presets: dict[str, Preset]
) -> pd.DataFrame:
    """Cost of a response for each preset, a mean over the prompts (P,), and its overhead beyond its forwards.

    The bare forwards are the decoder's calls, recorded once and replayed. Speedups are over the first preset.
    """
    traces: dict[str, list[Trace]] = {}
    calls: dict[str, Callable[[], object]] = {}
    for name, options in options_of(backbone, "bench", presets, {"gen_length": response}).items():
        options.pop("baseline", None)  # PC-Sampler's token counts fit one vocabulary, and change no cost

        def run(model: BackboneLike, options: dict[str, Any] = options) -> list[Trace]:
            return [decode(model, prompt_P, **options).trace for prompt_P in prompts]

        recording = _Recording(backbone)
        traces[name] = run(recording)
        calls |= {f"{name} decoder": partial(run, backbone), f"{name} bare": recording.replay}
    seconds = interleaved(calls, backbone.device, repeats)
    first = next(iter(presets))
    rows = []
    for name, made in traces.items():
        decoder, bare = seconds[f"{name} decoder"], seconds[f"{name} bare"]
        rows.append(
            {
                "method": name,
                "forwards": sum(trace.forwards for trace in made) / len(prompts),
                "rows": sum(trace.rows for trace in made) / len(prompts),
                "token-forwards": sum(trace.token_forwards for trace in made) / len(prompts),
                "decoder, ms": 1e3 * decoder.median() / len(prompts),
                "bare forwards, ms": 1e3 * bare.median() / len(prompts),
                "overhead, %": 100 * (median_ratio(decoder, bare) - 1),
                "speedup, forwards": ratio_of_totals([t.forwards for t in traces[first]], [t.forwards for t in made]),
                "speedup, seconds": median_ratio(seconds[f"{first} decoder"], decoder),
            }
        )
    return pd.DataFrame(rows)


class _Recording:
    """A backbone that records the calls made to it and replays them without the decoder."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self.mask_id, self.eos_id, self.vocab_size = backbone.mask_id, backbone.eos_id, backbone.vocab_size
        self.device, self.eot_id, self.reads_at = backbone.device, backbone.eot_id, backbone.reads_at
        self._calls: list[Callable[[], object]] = []
        self._cache: KeyValues | None = None

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        self._calls.append(partial(self._backbone.logits, ids_BL.clone(), positions, causal))
        return self._backbone.logits(ids_BL, positions, causal)

    def extend(
        self,
        ids_1N: torch.Tensor,
        position_N: torch.Tensor,
        positions: torch.Tensor,
        cache: KeyValues | None = None,
        visible_NK: torch.Tensor | None = None,
        **how: Any,
    ) -> tuple[torch.Tensor, KeyValues]:
        kept = 0 if cache is None else cache.get_seq_length()
        extend = partial(self._backbone.extend, ids_1N.clone(), position_N, positions, visible_NK=visible_NK, **how)

        def again() -> None:  # after the first `kept` tokens that the call before it left in the cache
            if self._cache is not None:
                self._cache.forget(max(0, self._cache.get_seq_length() - kept))
            _, self._cache = extend(cache=self._cache)

        self._calls.append(again)
        return extend(cache=cache)

    def replay(self) -> None:
        for call in self._calls:
            call()


def dev_prompts(backbone: Backbone, suite: str, count: int) -> list[torch.Tensor]:
    """The first generated dev problems of a suite, encoded: LongTensors (P,)."""
    questions = (problem.question for problem in problems(suite, "dev", count))
    return [torch.tensor(encode_question(backbone.text_tokenizer(), question)) for question in questions]


def bench_prompts(backbone: Backbone) -> list[torch.Tensor]:
    """One generated dev problem of each of the four suites; a random prompt for a backbone without a tokenizer."""
    if backbone.tokenizer is None:
        return [random_ids(backbone.vocab_size, 32, backbone.device)[0]]
    return [prompt_P for suite in PAPER_SUITES for prompt_P in dev_prompts(backbone, suite, 1)]


def options_of(
    backbone: Backbone, suite: str, presets: dict[str, Preset], settings: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """What `decode` takes apart from backbone and prompt, for each preset on a suite, or with settings in its place."""
    settings = settings or suite_named(suite).settings_for("nano", small=True)
    found = {}
    for name, preset in presets.items():
        setting = preset.for_suite(suite, settings, {}, attends=backbone.blocks)
        lengths = {"gen_length": setting.gen_length, "block_length": setting.block_length}
        found[name] = {"method": preset.method, **lengths, **setting.options}
    return found


def bench_throughput(
    backbone: Backbone, suites: list[str], limit: int, repeats: int, presets: dict[str, Preset]
) -> pd.DataFrame:
    """A row for each suite, method and batch size up to `limit`, the dev problems of a suite: medians over rounds.

    Columns: responses and content tokens a second, the former over batch 1, percentiles of a response's seconds in the
    last round, and GB, the most memory: allocated on a GPU, of the process on a CPU.
    """
    rows = []
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= limit]
    for suite in suites:
        prompts = dev_prompts(backbone, suite, limit)
        measured: dict[Any, _AtOnce] = {}
        for size, (name, options) in product(sizes, options_of(backbone, suite, presets).items()):
            responses = [partial(decode, prompt_ids=prompt_P, **options) for prompt_P in prompts]
            measured[name, size] = _AtOnce(backbone, size, responses)
        seconds = interleaved(dict(measured), backbone.device, repeats)
        for (name, size), batch in measured.items():
            finished = pd.DataFrame(batch.finished)
            a_second = median_ratio(limit, seconds[name, size])
            rows.append(
                {
                    "suite": suite,
                    "method": name,
                    "batch": size,
                    "responses/s": a_second,
                    "tokens/s": a_second * finished["tokens"].mean(),
                    "over batch 1": median_ratio(seconds[name, 1], seconds[name, size]),
                    **{f"s, {text}": finished["seconds"].quantile(share) for text, share in SHARES.items()},
                    "GB": batch.memory,
                }
            )
    return pd.DataFrame(rows).sort_values(["suite", "method", "batch"], kind="stable")


class _AtOnce:
    """All responses of a method, `size` at once. finished: seconds and content tokens of each, the last time."""

    def __init__(self, backbone: Backbone, size: int, responses: Sequence[Callable[[Backbone], Any]]) -> None:
        self._backbone, self._size, self._responses = backbone, size, responses
        self.finished: list[dict[str, float]] = []
        self.memory = 0.0

    def __call__(self) -> None:
        on_gpu = self._backbone.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self._backbone.device)
        jobs = [partial(self._response, each) for each in self._responses]
        self.finished = [job() for job in jobs] if self._size == 1 else list(at_once(jobs, self._size))
        most = torch.cuda.max_memory_allocated(self._backbone.device) if on_gpu else psutil.Process().memory_info().rss
        self.memory = most / 1e9

    def _response(self, response: Callable[[Backbone], Any]) -> dict[str, float]:
        began = time.perf_counter()
        out = response(self._backbone if self._size == 1 else in_batch(self._backbone))
        return {"seconds": time.perf_counter() - began, "tokens": content_length(self._backbone, out.tokens)}


def bench_responses(
    golden: Run, device: str, count: int, methods: Sequence[str] | None = None, cuda_graphs: bool = False
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Tables `parity` and `suites` on the first `count` problems of every suite, and which responses have other tokens.

    methods: of the record (None: all). parity: by method the responses with the golden tokens, at the golden forwards
    or others, and without. suites: costs and speedups over LLaDA. Raises UserError for a record of other problems.
    """
    methods = list(golden.config.methods if methods is None else methods)
    rows = golden.items[(golden.items["item"] < count) & golden.items["method"].isin(methods)]
    answers = _answers(golden, rows, device, count, methods, cuda_graphs)
    both = answers.merge(rows, on=list(KEY), suffixes=("", "_golden"))
    same = both["tokens_hash"] == both["tokens_hash_golden"]
    costs = both["forwards"] == both["forwards_golden"]
    kinds = pd.DataFrame({"equal": same & costs, "other costs": same & ~costs, "other tokens": ~same})
    parity = kinds.assign(responses=True)[["responses", *kinds]].groupby(both["method"], sort=False).sum().reset_index()
    speeds = []
    by_pair: dict[Any, pd.DataFrame] = dict(list(both.groupby(["suite", "method"], sort=False)))
    for (suite, method), found in by_pair.items():
        mean = found[["seconds", "forwards"]].mean()
        row = {"method": method, "suite": suite, "ms": 1e3 * mean["seconds"], "forwards": mean["forwards"]}
        if (suite, REFERENCE) in by_pair:
            llada = by_pair[suite, REFERENCE]
            row |= {f"speedup, {unit}": ratio_of_totals(llada[unit], found[unit]) for unit in ("seconds", "forwards")}
        speeds.append(row)
    other = both[~same]
    notes = [f"other tokens: {' '.join(map(str, key))}" for key in other[list(KEY)].itertuples(index=False)]
    return {"parity": parity, "suites": pd.DataFrame(speeds)}, notes


def _answers(
    golden: Run, rows: pd.DataFrame, device: str, count: int, methods: list[str], cuda_graphs: bool
) -> pd.DataFrame:
    """Records of the responses without verdicts, after one of every method that warms up.

    AT_ONCE items of a suite pass through all methods before the next ones, every second time in the other order.
    """
    config = golden.config
    names = sorted({name for table in config.models.values() for name in table.values()})
    backbones = {name: load_backbone(name, device, "float32", cuda_graphs=cuda_graphs) for name in names}
    tokenizer = backbones[names[0]].text_tokenizer()
    prompts = {
        (suite, item): torch.tensor(encode_question(tokenizer, problem.question))
        for suite in config.suites
        for item, problem in enumerate(problems(suite, "test", count))
    }
    for row in rows.to_dict("records"):
        if hash_of(prompts[row["suite"], row["item"]]) != row["prompt_hash"]:
            raise UserError(f"{golden.folder} has another prompt of {row['suite']}, item {row['item']}")
    seeds = rows.set_index(list(KEY))["seed"]

    def answer(method: str, suite: str, item: int) -> dict[str, object]:
        used = config.methods[method]
        setting = used.suites[suite]
        backbone, seed = backbones[config.models[used.role][suite]], int(seeds[method, suite, item])
        options = dict(setting.options)
        if used.draft_role is not None:
            options["draft"] = backbones[config.models[used.draft_role][suite]]
        out = decode(
            backbone,
            prompts[suite, item],
            method=used.method,
            gen_length=setting.gen_length or 0,
            block_length=setting.block_length,
            temperature=config.temperature or 0.0,
            seed=seed,
            **options,
        )
        key = dict(zip(KEY, (method, suite, item), strict=True))
        return cost_and_tokens(key, seed, backbone, prompts[suite, item], out)

    for method in methods:
        answer(method, next(iter(config.suites)), 0)
    answers = []
    for suite in config.suites:
        for number, first in enumerate(range(0, count, AT_ONCE)):
            for method in methods if number % 2 == 0 else methods[::-1]:
                answers += [answer(method, suite, item) for item in range(first, min(first + AT_ONCE, count))]
    return pd.DataFrame(answers)
