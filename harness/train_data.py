"""Training examples: drawn from nano's generators, encoded with the chat template, padded and corrupted.

An example is a function of (seed, index) alone, so a resumed training sees exactly what an uninterrupted one would,
whatever was read before. Consecutive blocks of examples come from one suite, so batches need little padding; padding is
EOS, as in LLaDA's own fine-tuning, and is part of the response.
"""

from __future__ import annotations

from random import Random
from typing import TypedDict

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from harness.nano_suites import GENERATORS, draw
from harness.nano_tokenizer import EOT, token_id
from harness.objectives import corrupt
from model_wrappers.chat import encode_question

LENGTHS = (32, 48, 64, 96)  # response lengths that a model trained here can be asked for
GOLDEN = 0.6180339887498949  # t_i = frac(i * golden ratio): even coverage of [0, 1], the same on every resume


class Example(TypedDict):
    """One encoded example; `index` seeds its corruption."""

    index: int
    prompt: list[int]
    response: list[int]


class NanoExamples(Dataset[Example]):
    """`count` generated training examples; blocks of `block` consecutive ones share a suite.

    mix: how many blocks of each suite there are in a round; the order within a round is random.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, count: int, block: int, seed: int, mix: dict[str, int] | None = None
    ) -> None:
        self.tokenizer, self.count, self.block, self.seed = tokenizer, count, block, seed
        self.round = [suite for suite in GENERATORS for _ in range(1 if mix is None else mix[suite])]
        self.eot_id = token_id(tokenizer, EOT)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        round_, place = divmod(index // self.block, len(self.round))
        order = Random(f"order {self.seed} {round_}").sample(self.round, len(self.round))
        problem = draw(order[place], "train", Random(f"example {self.seed} {index}"))
        return {
            "index": index,
            "prompt": encode_question(self.tokenizer, problem.question),
            "response": [*self._encode(problem.response), self.eot_id],
        }

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)


class CorruptedBatches:
    """Collator: pads with EOS, draws diffusion times, and corrupts the responses."""

    def __init__(self, eos_id: int, mask_id: int, seed: int) -> None:
        self.eos_id, self.mask_id, self.seed = eos_id, mask_id, seed

    def __call__(self, examples: list[Example]) -> dict[str, torch.Tensor]:
        """B examples -> clean, corrupted (B, L) ids, response (B, L) bool, share masked (B,)."""
        first = examples[0]["index"]
        needed = max(len(e["response"]) for e in examples)
        # Most batches are as short as they can be; the others teach the EOS tail of every response length.
        rng = Random(f"length {self.seed} {first}")
        length = needed if rng.random() < 0.7 else min(n for n in LENGTHS if n >= needed)
        length = rng.choice([n for n in LENGTHS if n >= needed]) if rng.random() < 0.1 else length
        total = max(len(e["prompt"]) for e in examples) + length
        clean_BL = torch.full((len(examples), total), self.eos_id)
        response_BL = torch.zeros(len(examples), total, dtype=torch.bool)
        for row, example in enumerate(examples):
            ids = torch.tensor(example["prompt"] + example["response"])
            clean_BL[row, : len(ids)] = ids
            response_BL[row, len(example["prompt"]) :] = True
        time_B = torch.tensor([(e["index"] * GOLDEN) % 1.0 for e in examples])
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + first)
        corrupted_BL, share_B = corrupt(clean_BL, response_BL, time_B, self.mask_id, generator)
        return {"clean": clean_BL, "corrupted": corrupted_BL, "response": response_BL, "share": share_B}
