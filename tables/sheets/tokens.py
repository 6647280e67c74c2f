"""Tokens a response and tokens per second, by each of the definitions in use.

Papers define tokens per second in different ways; a run's record has all of them. None shows which method is faster: a
method that pads or writes more has more tokens per second. Seconds per response show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from harness.measures.table import PAIR, by_name, checked_items, method_labels, suite_titles, timed
from harness.measures.together import of_all
from harness.records.schema import Setting
from harness.records.store import Run
from tables.sheets.captions import setting, timing
from tables.sheets.layout import Cell, Request, Sheet, Table

TOKENS = ["prompt_tokens", "content_tokens", "eos_tokens", "post_stop_tokens"]
PASSES = ["forwards", "token_forwards", "cached_tokens"]
LEDGER = [
    *(*PAIR, "items", "seconds_per_item", *TOKENS, *PASSES),
    *("tps_content", "tps_without_eos", "tps_generation_length", "tps_prompt_and_generation"),
]
HEADINGS = {  # column of the frame -> group, heading, decimals
    "seconds_per_item": ("", "Seconds", 3),
    "prompt_tokens": ("Tokens", "Prompt", 1),
    "content_tokens": ("Tokens", "Content", 1),
    "eos_tokens": ("Tokens", "EOS", 1),
    "post_stop_tokens": ("Tokens", "Post-stop", 1),
    "forwards": ("Model", "Calls", 1),
    "token_forwards": ("Model", "Tokens", 1),
    "cached_tokens": ("Model", "Cached", 1),
    "tps_content": ("Tokens/s", "content", 1),
    "tps_without_eos": ("Tokens/s", "without EOS", 1),
    "tps_generation_length": ("Tokens/s", "generation length", 1),
    "tps_prompt_and_generation": ("Tokens/s", "prompt and generation", 1),
}
CAPTION = (
    "Seconds and tokens, means over the responses. Seconds a response is what to compare: tokens per second depends on "
    "what is counted, and a method that writes or pads more has more of them without being faster.",
    "Content: tokens before the first EOS or end of turn. EOS: EOS tokens, which pad the response. Post-stop: what "
    "else stands behind the end, an end of turn among it.",
    "Model: its calls, the tokens that went through it, and the tokens whose keys and values were read from a cache.",
    "Tokens/s, total tokens / total seconds, by what is called a token: content; without EOS, content and post-stop; "
    "generation length, all that is generated, padding included; prompt and generation, all that the model saw.",
)


def token_ledger(run: Run) -> pd.DataFrame:
    """One row per method and suite that has items, in the configuration's order; columns are LEDGER.

    seconds_per_item, TOKENS and PASSES: means a response; post_stop_tokens, in an older record without it, is what the
    configuration's gen_length leaves beside content and EOS. tps_*: tokens per second, totals over totals. NaN where
    the record has no such counts; seconds and tps_* too where the run was not timed. Raises UserError if there are no
    items or they are damaged.
    """
    items = checked_items(run)
    left = _gen_lengths(run, items) - items["content_tokens"] - items["eos_tokens"]
    items["post_stop_tokens"] = items["post_stop_tokens"].fillna(left)
    groups = items.groupby("pair")
    means = groups[["seconds", *TOKENS, *PASSES]].mean()
    seconds = means["seconds"] if timed(run) else means["seconds"] * math.nan
    written = means["content_tokens"] + means["post_stop_tokens"]
    generated = written + means["eos_tokens"]
    ledger = means[[*TOKENS, *PASSES]].assign(
        items=groups.size(),
        seconds_per_item=seconds,
        tps_content=means["content_tokens"] / seconds,
        tps_without_eos=written / seconds,
        tps_generation_length=generated / seconds,
        tps_prompt_and_generation=(means["prompt_tokens"] + generated) / seconds,
    )
    return by_name(ledger, run)[LEDGER]


def ledger_table(ledger: pd.DataFrame, measured: pd.DataFrame, run: Run) -> Table:
    """The frame of `token_ledger` as a table; `measured` of `measures.measure`."""
    titles = suite_titles(run)
    rows = [
        [
            Cell(titles[row["suite"]]),
            *(Cell("-" if pd.isna(row[name]) else f"{row[name]:.{how[2]}f}") for name, how in HEADINGS.items()),
        ]
        for row in ledger.to_dict("records")
    ]
    headings = [("", "Suite"), *((group, heading) for group, heading, _ in HEADINGS.values())]
    cells = pd.DataFrame(
        rows,
        index=ledger["method"].map(method_labels(run)).to_list(),
        columns=pd.MultiIndex.from_tuples(headings),
        dtype=object,
    )
    return Table("tps", " ".join([*CAPTION, *setting(measured, run), *timing(run)]), cells)


def _gen_lengths(run: Run, items: pd.DataFrame) -> pd.Series[float]:
    """The configured length of every item's response; NaN where the configuration names none."""
    methods, suites = run.config.methods, list(suite_titles(run))
    lengths = {}
    for number, method in enumerate(method_labels(run)):
        for position, suite in enumerate(suites):
            setting = methods[method].suites.get(suite, Setting())
            lengths[number * len(suites) + position] = float(setting.gen_length or math.nan)
    return items["pair"].map(lengths)


def tokens(request: Request) -> Iterator[Sheet]:
    """Tokens a response and tokens per second, if they were asked for and the run was timed."""
    if request.tps and timed(request.run):
        ledger = of_all(token_ledger, request.run)
        yield Sheet(ledger_table(ledger, request.measured, request.run), ledger)
