"""The golden record's problems decoded on this machine, without OpenCompass: other tokens, and seconds.

The record says methods, options, seeds and prompts; the problems are generated anew, and a hash holds them to the
record's. Another processor rounds otherwise: where that decided a tie, the response is excused, if it is proven
(harness/regression/ties.py). It may also accept more or fewer drafts, on the way to the same tokens: such responses are
counted apart (harness/regression/unchanged.py says why). All that differs is named.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal

import pandas as pd
import torch

from harness.errors import UserError
from harness.measures.table import REFERENCE
from harness.records.store import KEY, Run
from harness.regression.golden import SPENT, Key, items_that_differ
from harness.regression.ties import MOST, Decode, moved, proven, rows_of
from harness.runs.responses import cost_and_tokens, hash_of
from harness.suites.splits import problems
from model_wrappers import Backbone, decode, load_backbone
from model_wrappers.chat import encode_question, response_text

DTYPE = "float32"  # the golden records'
Kind = Literal["other costs", "ties", "unlike"]  # of responses that are not the golden ones


class Responder:
    """Answers the problems of a golden record, each by the method, options, models and seed that the record says.

    count: problems of every suite. methods: those of the record (None: all). cuda_graphs: as load_backbone takes it.
    Raises UserError where the record's problems are not those that are generated here.
    """

    def __init__(
        self, golden: Run, device: str, count: int, methods: Sequence[str] | None = None, cuda_graphs: bool = False
    ) -> None:
        items, self.methods = golden.items, list(golden.config.methods if methods is None else methods)
        items = items[(items["item"] < count) & items["method"].isin(self.methods)]
        self.golden = Run(golden.folder, golden.meta, items, golden.windows)
        self.rows = rows_of(self.golden)
        names = sorted({name for table in golden.config.models.values() for name in table.values()})
        self.backbones = {name: load_backbone(name, device, DTYPE, cuda_graphs=cuda_graphs) for name in names}
        # The same weights without graphs: logits are moved by a hook, which a graph does not call.
        self._movable = {
            name: Backbone(own.family, own.model, own.tokenizer, name) for name, own in self.backbones.items()
        }
        tokenizer = self.backbones[names[0]].text_tokenizer()
        self._prompts = {
            (suite, item): torch.tensor(encode_question(tokenizer, problem.question))
            for suite in golden.config.suites
            for item, problem in enumerate(problems(suite, "test", count))
        }
        for (_, suite, item), row in self.rows.items():
            if hash_of(self._prompts[suite, item]) != row["prompt_hash"]:
                raise UserError(
                    f"{golden.folder} has another prompt of {suite}, item {item}; the problems have changed"
                )

    def answer(self, key: Key, moved_by: int | None = None) -> dict[str, Any]:
        """An item's record but for its verdict. moved_by: a seed; the logits are moved by rounding's size."""
        method, suite, item = key
        config, row, prompt_P = self.golden.config, self.rows[key], self._prompts[suite, item]
        own = config.methods[method]
        setting = own.suites[suite]
        backbones = self.backbones if moved_by is None else self._movable
        backbone = backbones[config.models[own.role][suite]]
        options = dict(setting.options)
        if own.draft_role is not None:
            options["draft"] = backbones[config.models[own.draft_role][suite]]
        with ExitStack() as stack:
            if moved_by is not None:
                stack.enter_context(moved(list(backbones.values()), moved_by))
            out = decode(
                backbone,
                prompt_P,
                method=own.method,
                gen_length=setting.gen_length or 0,
                block_length=setting.block_length,
                temperature=config.temperature or 0.0,
                seed=int(row["seed"]),
                **options,
            )
        said = {"text": response_text(backbone, out.tokens), "gold": row["gold"]}
        return cost_and_tokens(dict(zip(KEY, key, strict=True)), int(row["seed"]), backbone, prompt_P, out) | said


def bench_responses(
    golden: Run, device: str, count: int, methods: Sequence[str] | None = None, cuda_graphs: bool = False
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Tables `parity` and `suites` on the first `count` problems of every suite, and what differs, named.

    methods: of the record (None: all). cuda_graphs: run the models through them.

    parity: by method the responses, how many are the golden ones, how many have the golden tokens at other costs, how
    many differ by a proven tie, and how many otherwise. suites: by method and suite milliseconds and forwards of a
    response, and speedups over LLaDA. Five items pass through all methods before the next five, in alternating order.
    The first response of every method is thrown away: it warms up.
    """
    responder = Responder(golden, device, count, methods, cuda_graphs)
    methods, suites = responder.methods, list(golden.config.suites)
    for method in methods:
        responder.answer((method, suites[0], 0))
    answers: dict[Key, dict[str, Any]] = {}
    for suite in suites:
        for number, first in enumerate(range(0, count, 5)):
            for method in methods if number % 2 == 0 else methods[::-1]:
                for item in range(first, min(first + 5, count)):
                    answers[method, suite, item] = responder.answer((method, suite, item))
    found = compared(responder.golden, answers, responder.answer)
    frame = pd.DataFrame(answers.values())
    notes = [note for kind in found.values() for note in kind.values()]
    return {"parity": _parity(frame, found), "suites": _speeds(frame)}, notes


def compared(golden: Run, answers: dict[Key, dict[str, Any]], answer: Decode) -> dict[Kind, dict[Key, str]]:
    """The items that differ, each with a sentence: in costs alone, by a proven tie, or otherwise.

    answers: records of items but for their verdicts. answer: gives one again, with the logits moved if need be.
    """
    here = Run(golden.folder, golden.meta, pd.DataFrame(answers.values()), golden.windows)
    wanted = rows_of(golden)
    found: dict[Kind, dict[Key, str]] = {"other costs": {}, "ties": {}, "unlike": {}}
    tried = 0
    for key, measures in items_that_differ(golden, here, unscored=golden.config.suites).items():
        name = " ".join(map(str, key))
        if measures <= set(SPENT):
            forwards = f"forwards: golden {wanted[key]['forwards']}, here {answers[key]['forwards']}"
            found["other costs"][key] = f"{name} has the golden tokens at other costs ({forwards})"
            continue
        if tried == MOST:
            found["unlike"][key] = f"{name} differs, and was not looked into after {MOST} others"
            continue
        tried += 1
        _, why = proven(golden, here, [key], answer)
        found["unlike" if why else "ties"][key] = " ".join(why) or f"{name} differs by a proven tie"
    return found


def _parity(frame: pd.DataFrame, found: dict[Kind, dict[Key, str]]) -> pd.DataFrame:
    rows = []
    for method, own in frame.groupby("method", sort=False):
        counts: dict[str, int] = {kind: sum(key[0] == method for key in keys) for kind, keys in found.items()}
        equal = len(own) - sum(counts.values())
        rows.append({"method": method, "responses": len(own), "equal": equal, **counts})
    return pd.DataFrame(rows)


def _speeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Means by method and suite; speedups over LLaDA in seconds and in forwards."""
    means = frame.groupby(["method", "suite"], sort=False)[["seconds", "forwards"]].mean().reset_index()
    reference = means[means["method"] == REFERENCE].set_index("suite")
    own = reference.reindex(means["suite"]).reset_index()  # without LLaDA there are no speedups
    return pd.DataFrame(
        {
            "method": means["method"],
            "suite": means["suite"],
            "ms": 1e3 * means["seconds"],
            "forwards": means["forwards"],
            "speedup, seconds": own["seconds"] / means["seconds"],
            "speedup, forwards": own["forwards"] / means["forwards"],
        }
    )
