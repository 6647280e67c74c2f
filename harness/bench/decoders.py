"""What decoders take beyond the calls of the model, and what responses to golden problems cost."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.methods.presets import Preset
from harness.methods.settings import setting_of
from harness.records.environment import seconds_of
from harness.records.store import KEY, Run
from harness.suites.registry import problems
from model_wrappers import Backbone, Decoded, decode, load_backbone
from model_wrappers.chat import encode_question
from model_wrappers.costs import costs_of, hash_of
from model_wrappers.decoders import decoder_named

AT_ONCE = 5  # golden problems that pass through all methods before the next ones


def bench_apart(
    backbone: Backbone,
    prompts: Sequence[torch.Tensor],
    response: int,
    presets: dict[str, Preset],
) -> tuple[pd.DataFrame, list[str]]:
    """What decoders take beyond the calls of the model, a row per method, temperature and prompt.

    "model" and "decoder" are milliseconds a call of the model, the device synchronised around each
    call, and "of it draws" those of the sampler; "waits" is how often the host waits for the device
    between two calls, seen in a response of its own that is not timed.

    Args:
        backbone: of random weights, where prompts are random too.
        prompts: LongTensors (P,).
        response: tokens.
        presets: the methods, each at temperature 0 and, unless it is greedy alone, at 1.

    Returns:
        The table, and every line of code that waits, with how often a call of the model it does.
    """
    model, calls_seconds = with_timed_calls(backbone)
    rows = []
    waiting: Counter[str] = Counter()
    all_calls = 0
    for name, options in _apart_options(backbone, response, presets):
        lines, calls = waits_of(partial(decode, backbone, prompts[0], **options), backbone)
        waiting += lines
        all_calls += calls
        for prompt_P in prompts:
            calls_seconds.clear()
            trace = decode(model, prompt_P, **options).trace
            in_calls = sum(calls_seconds)
            rows.append(
                {
                    "method": name,
                    "temperature": options["temperature"],
                    "prompt": len(prompt_P),
                    "calls": trace.forwards,
                    "model, ms a call": 1e3 * in_calls / trace.forwards,
                    "decoder, ms a call": 1e3 * (trace.seconds - in_calls) / trace.forwards,
                    "of it draws": 1e3 * (trace.draw_seconds or 0.0) / trace.forwards,
                    "waits a call": lines.total() / calls,
                }
            )
    notes = [
        f"{line}: {count / all_calls:.2f} waits a call" for line, count in waiting.most_common()
    ]
    return pd.DataFrame(rows), notes


def _apart_options(
    backbone: Backbone, response: int, presets: dict[str, Preset]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What `decode` takes for every preset, at the temperatures that its decoder is defined at."""
    # As in the main table a block of LLaDA's loop has a part of the response.
    lengths = {"gen_length": response, "block_length": max(1, response // 2)}
    for name, preset in presets.items():
        setting = setting_of(preset, "bench", lengths, blocks=backbone.blocks)
        options = {
            "method": preset.method,
            "gen_length": setting.gen_length,
            "block_length": setting.block_length,
            **setting.options,
        }
        # PC-Sampler's token counts fit one vocabulary, and change no cost.
        options.pop("baseline", None)
        yield name, options | {"temperature": 0.0}
        if not decoder_named(options["method"]).greedy_only:
            yield name, options | {"temperature": 1.0}


def waits_of(run: Callable[[], Decoded], backbone: Backbone) -> tuple[Counter[str], int]:
    """The lines of code that make the host wait for the device in a response, with how often they
    do, and the response's calls of the model; none on a CPU."""
    if backbone.device.type != "cuda":
        return Counter(), run().trace.forwards
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            calls = run().trace.forwards
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in seen if "synchroniz" in str(warning.message)]
    return Counter(f"{Path(wait.filename).name}:{wait.lineno}" for wait in waits), calls


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


def bench_responses(
    golden: Run,
    device: str,
    count: int,
    methods: Sequence[str] | None = None,
    cuda_graphs: bool = False,
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Decode the problems of golden records, and compare.

    Args:
        golden: the records.
        device: to decode on.
        count: the first problems of every suite.
        methods: of the records (None: all).
        cuda_graphs: run the model through CUDA graphs.

    Returns:
        Table `parity`, by method the responses with the golden tokens, at the golden forwards or
        others, and without; table `suites`, costs and speedups over LLaDA; and which responses have
        other tokens.

    Raises:
        UserError: the records are of other problems.
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
    means = both.groupby(["method", "suite"], sort=False)[["seconds", "forwards"]].mean()
    speeds = pd.DataFrame({"ms": 1e3 * means["seconds"], "forwards": means["forwards"]})
    if REFERENCE in methods:
        llada = means.loc[REFERENCE].reindex(means.index, level="suite")
        for unit in ("seconds", "forwards"):
            speeds[f"speedup, {unit}"] = llada[unit] / means[unit]
    other = both[~same]
    notes = [
        f"other tokens: {' '.join(map(str, key))}"
        for key in other[list(KEY)].itertuples(index=False)
    ]
    return {"parity": parity, "suites": speeds.reset_index()}, notes


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
        recorded = config.methods[method]
        setting = recorded.suites[suite]
        backbone = backbones[config.models[recorded.role][suite]]
        seed = int(seeds[method, suite, item])
        options = dict(setting.options)
        if recorded.draft_role is not None:
            options["draft"] = backbones[config.models[recorded.draft_role][suite]]
        out = decode(
            backbone,
            prompts[suite, item],
            method=recorded.method,
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
