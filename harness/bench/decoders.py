"""What responses cost: against the forwards that they make, and on golden problems."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import pandas as pd
import torch

from harness.bench.passes import random_ids
from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.methods.presets import Preset
from harness.methods.settings import setting_of
from harness.records.environment import interleaved, seconds_of
from harness.records.store import KEY, Run
from harness.stats import median_ratio, ratio_of_totals
from harness.suites.registry import PAPER_SUITES, problems, suite_named
from model_wrappers import Backbone, Trace, decode, load_backbone
from model_wrappers.chat import encode_question
from model_wrappers.costs import costs_of, hash_of

AT_ONCE = 5  # golden problems that pass through all methods before the next ones


def bench_methods(
    backbone: Backbone,
    prompts: list[torch.Tensor],
    response: int,
    repeats: int,
    presets: dict[str, Preset],
) -> pd.DataFrame:
    """Cost of a response for each preset, a mean over the prompts (P,), and the decoder's own part
    of it.

    "calls, ms" is spent in the model's calls; "overhead, %" is the decoder's own time over that.
    Speedups are over the first preset.
    """
    model, calls_seconds = with_timed_calls(backbone)
    traces: dict[str, list[Trace]] = {}
    inside: dict[str, list[float]] = {name: [] for name in presets}
    runs: dict[str, Callable[[], object]] = {}

    def decode_all(name: str, options: dict[str, Any]) -> None:
        calls_seconds.clear()
        traces[name] = [decode(model, prompt_P, **options).trace for prompt_P in prompts]
        inside[name].append(sum(calls_seconds))

    for name, options in options_of(backbone, "bench", presets, {"gen_length": response}).items():
        # PC-Sampler's token counts fit one vocabulary, and change no cost
        options.pop("baseline", None)
        runs[name] = partial(decode_all, name, options)
    seconds = interleaved(runs, backbone.device, repeats)
    first = next(iter(presets))
    rows = []
    for name, made in traces.items():
        decoder = seconds[name]
        calls = pd.Series(inside[name][-repeats:])
        rows.append(
            {
                "method": name,
                "forwards": sum(trace.forwards for trace in made) / len(prompts),
                "rows": sum(trace.rows for trace in made) / len(prompts),
                "token-forwards": sum(trace.token_forwards for trace in made) / len(prompts),
                "decoder, ms": 1e3 * decoder.median() / len(prompts),
                "calls, ms": 1e3 * calls.median() / len(prompts),
                "overhead, %": 100 * (median_ratio(decoder, calls) - 1),
                "speedup, forwards": ratio_of_totals(
                    [t.forwards for t in traces[first]], [t.forwards for t in made]
                ),
                "speedup, seconds": median_ratio(seconds[first], decoder),
            }
        )
    return pd.DataFrame(rows)


def with_timed_calls(backbone: Backbone) -> tuple[Backbone, list[float]]:
    """A copy of the backbone, on the same model, and the list that the seconds of its calls are
    appended to."""
    model: Any = copy(backbone)
    seconds: list[float] = []

    def timed(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        results: list[Any] = []
        seconds.append(seconds_of(lambda: results.append(call(*args, **kwargs)), backbone.device))
        return results[0]

    model.logits = partial(timed, model.logits)
    model.extend = partial(timed, model.extend)
    return model, seconds


def dev_prompts(backbone: Backbone, suite: str, count: int) -> list[torch.Tensor]:
    """The first generated dev problems of a suite, encoded: LongTensors (P,)."""
    questions = (problem.question for problem in problems(suite, "dev", count))
    return [
        torch.tensor(encode_question(backbone.text_tokenizer(), question)) for question in questions
    ]


def bench_prompts(backbone: Backbone) -> list[torch.Tensor]:
    """One generated dev problem of each of the four suites; a random prompt for a backbone without
    a tokenizer."""
    if backbone.tokenizer is None:
        return [random_ids(backbone.vocab_size, 32, backbone.device)[0]]
    return [prompt_P for suite in PAPER_SUITES for prompt_P in dev_prompts(backbone, suite, 1)]


def options_of(
    backbone: Backbone,
    suite: str,
    presets: dict[str, Preset],
    settings: dict[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """What `decode` takes apart from backbone and prompt, for each preset on a suite, or with
    settings in its place."""
    settings = settings or suite_named(suite).settings_for("nano", small=True)
    found = {}
    for name, preset in presets.items():
        setting = setting_of(preset, suite, settings, blocks=backbone.blocks)
        lengths = {"gen_length": setting.gen_length, "block_length": setting.block_length}
        found[name] = {"method": preset.method, **lengths, **setting.options}
    return found


def bench_responses(
    golden: Run,
    device: str,
    count: int,
    methods: Sequence[str] | None = None,
    cuda_graphs: bool = False,
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Tables `parity` and `suites` on the first `count` problems of every suite, and which
    responses have other tokens.

    methods: of the record (None: all). parity: by method the responses with the golden tokens, at
    the golden forwards or others, and without. suites: costs and speedups over LLaDA. Raises
    UserError for a record of other problems.
    """
    methods = list(golden.config.methods if methods is None else methods)
    rows = golden.items[(golden.items["item"] < count) & golden.items["method"].isin(methods)]
    answers = _answers(golden, rows, device, count, methods, cuda_graphs)
    both = answers.merge(rows, on=list(KEY), suffixes=("", "_golden"))
    same = both["tokens_hash"] == both["tokens_hash_golden"]
    costs = both["forwards"] == both["forwards_golden"]
    kinds = pd.DataFrame(
        {"equal": same & costs, "other costs": same & ~costs, "other tokens": ~same}
    )
    parity = (
        kinds.assign(responses=True)[["responses", *kinds]]
        .groupby(both["method"], sort=False)
        .sum()
        .reset_index()
    )
    speeds = []
    by_pair: dict[Any, pd.DataFrame] = dict(list(both.groupby(["suite", "method"], sort=False)))
    for (suite, method), found in by_pair.items():
        mean = found[["seconds", "forwards"]].mean()
        row = {
            "method": method,
            "suite": suite,
            "ms": 1e3 * mean["seconds"],
            "forwards": mean["forwards"],
        }
        if (suite, REFERENCE) in by_pair:
            llada = by_pair[suite, REFERENCE]
            row |= {
                f"speedup, {unit}": ratio_of_totals(llada[unit], found[unit])
                for unit in ("seconds", "forwards")
            }
        speeds.append(row)
    other = both[~same]
    notes = [
        f"other tokens: {' '.join(map(str, key))}"
        for key in other[list(KEY)].itertuples(index=False)
    ]
    return {"parity": parity, "suites": pd.DataFrame(speeds)}, notes


def _answers(
    golden: Run, rows: pd.DataFrame, device: str, count: int, methods: list[str], cuda_graphs: bool
) -> pd.DataFrame:
    """Records of the responses without verdicts, after one of every method that warms up.

    AT_ONCE items of a suite pass through all methods before the next ones, every second time in the
    other order.
    """
    config = golden.config
    names = sorted({name for table in config.models.values() for name in table.values()})
    backbones = {
        name: load_backbone(name, device, "float32", cuda_graphs=cuda_graphs) for name in names
    }
    tokenizer = backbones[names[0]].text_tokenizer()
    prompts = {
        (suite, item): torch.tensor(encode_question(tokenizer, problem.question))
        for suite in config.suites
        for item, problem in enumerate(problems(suite, "test", count))
    }
    for row in rows.to_dict("records"):
        if hash_of(prompts[row["suite"], row["item"]]) != row["prompt_hash"]:
            raise UserError(
                f"{golden.folder} has another prompt of {row['suite']}, item {row['item']}"
            )
    seeds = rows.set_index(list(KEY))["seed"]

    def answer(method: str, suite: str, item: int) -> dict[str, object]:
        used = config.methods[method]
        setting = used.suites[suite]
        backbone = backbones[config.models[used.role][suite]]
        seed = int(seeds[method, suite, item])
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
        return {**key, **costs_of(backbone, prompts[suite, item], out)}

    for method in methods:
        answer(method, next(iter(config.suites)), 0)
    answers = []
    for suite in config.suites:
        for number, first in enumerate(range(0, count, AT_ONCE)):
            for method in methods if number % 2 == 0 else methods[::-1]:
                answers += [
                    answer(method, suite, item)
                    for item in range(first, min(first + AT_ONCE, count))
                ]
    return pd.DataFrame(answers)
