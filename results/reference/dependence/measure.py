"""Calls of decoders against the dependence between the tokens of a response.

    python results/reference/dependence/measure.py     # prompts.jsonl, goes on where it was stopped
    python results/reference/dependence/measure.py --draw

A joint distribution of tokens has the dual total correlation H(X) - sum_i H(X_i | X_-i), in nats:
what the tokens share. It is 0 for independent tokens, and then one call of the model is enough. Of
2609.20539 the number of parallel forwards grows with it. H(X) is that of FeF-DLLM's law at one
diffusion step, one token after the other: the entropies of the conditionals, summed along chain
samples. H(X_i | X_-i) is the entropy of the model's distribution at i given all other tokens of a
chain sample.

Prompts are dev problems of nano's four suites, and of the suite `lists` those that ask for n words
in any order: there a right answer is uniform over n! orders, and has the dual total correlation
log n!, for the other words determine one.
"""

import json
import math
import sys
from pathlib import Path

import matplotlib.style
import pandas as pd
import torch
from scipy.stats import spearmanr

from harness.stats import mean_interval
from harness.suites.registry import problems, suite_named
from model_wrappers import decode, load_backbone
from model_wrappers.chat import encode_question
from model_wrappers.sampling import Sampler, token_probs
from tables.charts import draw as plot
from tables.charts import legend_below, looks, new_figure
from tables.figures import STYLE, save
from tables.series import Series

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "prompts.jsonl"
SUITES = {"gsm8k": 50, "math": 50, "humaneval": 50, "mbpp": 50, "lists": 200}
CHAINS = 4
TEMPERATURE = 1.0
METHODS = {
    "fef": {"method": "fef", "steps": 1},
    "two-stream": {"method": "fef", "steps": 1, "verify": "two-stream"},
    "entropy": {"method": "entropy"},
    "threshold": {"method": "threshold"},
    "flash": {"method": "flash"},
}
NAMES = {
    "fef": "FeF-DLLM, 1 step",
    "two-stream": "FeF-DLLM two-stream, 1 step",
    "entropy": "Entropy",
    "threshold": "Threshold",
    "flash": "Flash-dLLM",
}


def entropies(logits_NV: torch.Tensor, mask_id: int) -> torch.Tensor:
    """Entropies in nats of the distributions that tokens are drawn from: float64 (N,)."""
    probs_NV = token_probs(logits_NV, TEMPERATURE, exclude=mask_id)
    return torch.special.entr(probs_NV).sum(-1)


@torch.inference_mode()
def dependence(backbone, prompt: list[int], length: int, sampler: Sampler) -> dict[str, float]:
    """Joint and leave-one-out entropies of a response in nats, means over chain samples."""
    start = len(prompt)
    rows_CL = torch.tensor(prompt + [backbone.mask_id] * length).repeat(CHAINS, 1)
    joint_C = torch.zeros(CHAINS, dtype=torch.float64)
    for position in range(start, start + length):
        logits_CV = backbone.logits(rows_CL, positions=torch.tensor([position]))[:, 0]
        joint_C += entropies(logits_CV, backbone.mask_id)
        probs_CV = token_probs(logits_CV, TEMPERATURE, exclude=backbone.mask_id)
        rows_CL[:, position] = sampler.tokens(probs_CV)
    position_N = torch.arange(start, start + length)
    alone_C = []
    for row_L in rows_CL:
        rows_NL = row_L.repeat(length, 1)
        rows_NL[torch.arange(length), position_N] = backbone.mask_id
        logits_NNV = backbone.logits(rows_NL, positions=position_N)
        alone_C.append(entropies(logits_NNV.diagonal().T, backbone.mask_id).sum())
    tokens = (rows_CL[:, start:] != backbone.eos_id).sum(1).double().mean()
    return {
        "joint": float(joint_C.mean()),
        "alone": float(torch.stack(alone_C).mean()),
        "tokens": float(tokens),
    }


def measure() -> None:
    """Append a line for every prompt that has none."""
    torch.set_num_threads(1)
    backbone = load_backbone("nano-fef")
    lines = RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.exists() else []
    done = {(row["suite"], row["item"]) for row in map(json.loads, lines)}
    for suite, count in SUITES.items():
        length = suite_named(suite).generated.length
        for item, problem in enumerate(problems(suite, "dev", count)):
            words = len(problem.row["items"]) if suite == "lists" else 0
            if (suite, item) in done or problem.row.get("task", "shuffle") != "shuffle":
                continue
            prompt = encode_question(backbone.text_tokenizer(), problem.question)
            measured = dependence(backbone, prompt, length, Sampler(item))
            record = {"suite": suite, "item": item, "words": words, **measured}
            for name, options in METHODS.items():
                calls = []
                for seed in range(CHAINS):
                    out = decode(
                        backbone,
                        prompt,
                        gen_length=length,
                        temperature=TEMPERATURE,
                        seed=seed,
                        stop_at_eos=True,
                        **options,
                    )
                    calls.append(out.trace.forwards)
                record[name] = sum(calls) / len(calls)
            with RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def by_suite(rows: pd.DataFrame) -> pd.DataFrame:
    """Means of each suite, of `lists` by number of words; `closed form` is log n! there."""
    kinds = rows["suite"].where(
        rows["words"] == 0, "lists, " + rows["words"].astype(str) + " words"
    )
    means = rows.groupby(kinds, sort=False)[["tokens", "joint", "alone", "shared", *METHODS]].mean()
    means.insert(4, "closed form", [_closed_form(kind) for kind in means.index])
    means.insert(0, "prompts", kinds.value_counts()[means.index])
    return means.rename_axis("kind").reset_index()


def _closed_form(kind: str) -> float:
    words = kind.removeprefix("lists, ").removesuffix(" words")
    return math.lgamma(int(words) + 1) if words.isdigit() else math.nan


def correlations(rows: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rank correlations of calls with what tokens share, and with their number."""
    table = []
    for method in METHODS:
        row = {"method": method}
        for column in ("shared", "joint", "alone", "tokens"):
            row[column] = spearmanr(rows[column], rows[method]).statistic
        within = [
            spearmanr(part["shared"], part[method]).statistic
            for _, part in rows.groupby("suite", sort=False)
        ]
        table.append({**row, "shared, mean within suites": sum(within) / len(within)})
    return pd.DataFrame(table)


def draw() -> None:
    """Print the tables, and draw calls against what tokens share, in fifths of the prompts."""
    rows = pd.read_json(RECORDS, lines=True)
    rows["shared"] = rows["joint"] - rows["alone"]
    rows = rows.sort_values("words", kind="stable")
    texts = rows[rows["suite"] != "lists"]
    means = by_suite(rows)
    ranks = correlations(texts)
    for name, table in (("means", means), ("correlations", ranks)):
        print(table.to_string(index=False, float_format="%.2f"))
        table.round(4).to_csv(FOLDER / f"{name}.csv", index=False)
    fifth = pd.qcut(texts["shared"], 5, labels=False)
    print(texts.groupby(fifth)[["shared", "joint", *METHODS]].mean().to_string(float_format="%.2f"))
    figure, axes = new_figure(2.4, entries=list(NAMES.values()))
    for (method, name), look in zip(NAMES.items(), looks(), strict=False):
        groups = texts.groupby(fifth)
        center = groups[method].mean()
        ends = pd.DataFrame([mean_interval(part[method].to_numpy()) for _, part in groups])
        whiskers = ((center - ends[0]).tolist(), (ends[1] - center).tolist())
        shared = groups["shared"].mean().tolist()
        line = Series(name, shared, center.tolist(), y_whiskers=whiskers)
        plot(axes, line, linestyle="-", **look)
    axes.set(xlabel="dual total correlation of the response (nats)", ylabel="calls of the model")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    save(figure, FOLDER / "calls")


if __name__ == "__main__":
    if sys.argv[1:] == ["--draw"]:
        with matplotlib.style.context(["default", STYLE]):
            draw()
    else:
        measure()
