"""Run Dream's official sampler on a tiny checkpoint of its family and on small conditionals, and
keep tokens and counts: the golden of `test_official_dream.py`.

    PYTHONPATH=tests/helpers python tests/official/make_dream.py CHECKOUTS

CHECKOUTS has a clone of ZHZisZZ/dllm, named dllm. The official code is run, not kept.
"""

import json
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dream_cases as cases
import torch
from families import tiny
from make_tokens import commit_of, module_of, repository
from official_cases import SOURCES


class Moved:
    """A backbone as Dream's sampler calls its model: logits of a token at the position before."""

    device = torch.device("cpu")

    def __init__(self, backbone: Any) -> None:
        self._backbone = backbone

    def __call__(self, ids: torch.Tensor, attention_mask: Any, position_ids: Any) -> Any:
        return SimpleNamespace(logits=self._backbone.logits(ids).roll(-1, 1))


def sampled(sample: Any, backbone: Any, prompt: list[int], length: int, **settings: Any) -> Any:
    """The official response, LongTensor (length,)."""
    config = {
        "max_length": len(prompt) + length,
        "mask_token_id": backbone.mask_id,
        "eps": 1e-3,
        "alg_temp": None,
        "top_p": None,
        "top_k": None,
        "output_history": False,
        "return_dict": False,
        "steps": length,
        **settings,
    }
    with torch.inference_mode():
        x_1L = sample(
            Moved(backbone),
            torch.tensor([prompt]),
            None,
            SimpleNamespace(**config),
            lambda step, x, logits: x,
            lambda step, x, logits: logits,
        )
    return x_1L[0, len(prompt) :]


def main() -> None:
    """The command line."""
    checkouts = Path(sys.argv[1])
    source = SOURCES["dream"]
    folder = repository(checkouts, "dream")
    module = module_of(folder / source.file, "official_dream", {})
    run = partial(sampled, module.DreamGenerationMixin._sample)
    tokens = {}
    for family in cases.FAMILIES:
        backbone = tiny(family, seed=cases.SEED)
        for name, settings in cases.GREEDY.items():
            tokens[f"{family} {name}"] = [
                run(backbone, prompt, cases.TOKENS, temperature=0.0, **settings).tolist()
                for prompt in cases.PROMPTS
            ]
    conditionals = cases.conditionals()
    torch.manual_seed(0)
    counts = {}
    for name, settings in cases.SAMPLED.items():
        drawn = Counter(
            str(
                run(
                    conditionals,
                    cases.PROMPT,
                    cases.LENGTH,
                    temperature=cases.TEMPERATURE,
                    **settings,
                ).tolist()
            )
            for _ in range(cases.DRAWS)
        )
        counts[name] = dict(sorted(drawn.items()))
    golden = {
        "repository": source.repository,
        "commit": commit_of(folder),
        "file": source.file,
        "function": source.function,
        "torch": torch.__version__,
        "tokens": tokens,
        "counts": counts,
    }
    cases.GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
