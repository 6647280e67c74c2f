"""The golden records' problems decoded on this machine, without OpenCompass: are the tokens the same, and how fast?"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.records.store import KEY, Run
from harness.runs.responses import cost_and_tokens, hash_of
from harness.stats import ratio_of_totals
from harness.suites.splits import problems
from model_wrappers import decode, load_backbone
from model_wrappers.chat import encode_question

DTYPE = "float32"  # the golden records'
AT_ONCE = 5  # problems that pass through all methods before the next ones


def bench_responses(
    golden: Run, device: str, count: int, methods: Sequence[str] | None = None, cuda_graphs: bool = False
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Tables `parity` and `suites` on the first `count` problems of every suite, and which responses have other tokens.

    methods: of the record (None: all). parity: by method the responses, how many have the golden tokens at the golden
    number of forwards, how many at another, and how many have other tokens: another processor rounds otherwise, which
    decides ties. suites: by method and suite milliseconds and forwards of a response, and speedups over LLaDA. The
    first response of every method is thrown away: it warms up. Raises UserError where the record's problems are not
    those that are generated here.
    """
    methods = list(golden.config.methods if methods is None else methods)
    rows = golden.items[(golden.items["item"] < count) & golden.items["method"].isin(methods)]
    answers = _answers(golden, rows, device, count, methods, cuda_graphs)
    both = answers.merge(rows, on=list(KEY), suffixes=("", "_golden"))
    same = both["tokens_hash"] == both["tokens_hash_golden"]
    costs = both["forwards"] == both["forwards_golden"]
    kinds = pd.DataFrame({"equal": same & costs, "other costs": same & ~costs, "other tokens": ~same})
    parity = kinds.groupby(both["method"], sort=False).agg("sum").reset_index()
    parity.insert(1, "responses", both.groupby("method", sort=False).size().to_list())
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
    """Records of the responses, without verdicts, in the order in which they are decoded.

    AT_ONCE items of a suite pass through all methods before the next ones, every second time in the other order.
    """
    config = golden.config
    names = sorted({name for table in config.models.values() for name in table.values()})
    backbones = {name: load_backbone(name, device, DTYPE, cuda_graphs=cuda_graphs) for name in names}
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
