"""Training data: nano's tokenizer, examples encoded with the chat template, and batches that are
padded with EOS as in LLaDA and corrupted.

An example, of nano's generators or a file, is a function of (seed, index) alone, so that a resumed
training sees what an uninterrupted one would. In nano's vocabulary a number is a sequence of
digits, and each word of `lists` one token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypedDict

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from harness.errors import UserError
from harness.suites.registry import GENERATED, draw, read_exchanges, suite_named
from harness.suites.spec import Rounds
from harness.train.objectives import corrupt, corrupt_in_blocks, position_rows
from model_wrappers.chat import encode_messages

# What nano was trained on, in this order: frozen, so that a new suite changes neither its tokenizer
# nor its data.
NANO_SUITES = ("gsm8k", "math", "humaneval", "mbpp", "lists")
BOS = "<|startoftext|>"
EOS = "<|endoftext|>"
EOT = "<|eot_id|>"
MASK = "<|mdm_mask|>"
HEADER = ("<|start_header_id|>", "<|end_header_id|>")

# LLaDA's: BOS before the first turn, each turn with its role as a header, closed by EoT.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ (bos_token if loop.first else '') + '<|start_header_id|>' +"
    " message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%"
    " endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n'"
    " }}{% endif %}"
)
# Words and single digits with the space before them; punctuation runs; whitespace.
SPLIT = r" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+(?! )|\s+"
LENGTHS = (32, 48, 64, 96)  # response lengths of nano's suites
LONG_LENGTHS = (32, 48, 64, 128, 160, 256)  # of a mixture with suites of longer responses
ROLES = {"HUMAN": "user", "BOT": "assistant"}
# t_i = frac(i * golden ratio): even coverage of [0, 1], the same on every resume
GOLDEN = 0.6180339887498949


class EncodedExample(TypedDict):
    """One encoded example; `index` seeds its corruption."""

    index: int
    prompt: list[int]
    response: list[int]


Batch = dict[str, torch.Tensor]
Collator = Callable[[list[EncodedExample]], Batch]


def train_tokenizer(
    vocab_size: int = 1024, examples_per_suite: int = 4000, seed: int = 0
) -> PreTrainedTokenizerFast:
    """Train nano's tokenizer; the same arguments give the same tokenizer."""
    rng = Random(f"tokenizer {seed}")
    texts: list[str] = []
    for suite in NANO_SUITES:
        for _ in range(examples_per_suite):
            problem = draw(suite_named(suite), "train", rng)
            texts += (problem.question, problem.response)
    texts += ["user", "assistant", "\n\n"] * 100  # the words of the chat template
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS, EOT, MASK, *HEADER],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        mask_token=MASK,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


class Examples(Dataset[EncodedExample]):
    """Encoded examples by index; `end` is the token that closes a response, if the vocabulary has
    it."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, count: int, seed: int, end: str = EOT
    ) -> None:
        self.tokenizer = tokenizer
        self.count = count
        self.seed = seed
        eot_id = tokenizer.get_vocab().get(end)
        self._end = [] if eot_id is None else [eot_id]

    def __len__(self) -> int:
        return self.count

    def encode(
        self, prompt: str, response: str, index: int, before: Rounds | None = None
    ) -> EncodedExample:
        """An example as ids.

        Args:
            prompt: the last user turn.
            response: closed by the end token.
            index: of the example.
            before: turns before the prompt.
        """
        turns = [{"role": ROLES[turn["role"]], "content": turn["prompt"]} for turn in before or []]
        text = list(self.tokenizer(response, add_special_tokens=False).input_ids)
        return {
            "index": index,
            "prompt": encode_messages(
                self.tokenizer, [*turns, {"role": "user", "content": prompt}]
            ),
            "response": [*text, *self._end],
        }


class NanoExamples(Examples):
    """Generated training examples. Consecutive ones come in blocks, each of one suite.

    Blocks come in rounds; every round has the blocks of `mix` in a new random order.

    Args:
        tokenizer: encodes them.
        count: how many examples there are.
        block: examples of a block, usually those of a batch.
        seed: of the examples and of the order of suites.
        mix: suite -> its blocks in a round; only suites of GENERATED count (None: one for each of
            NANO_SUITES).
        distinct: how many different examples there are before they repeat (None: `count`).
        repeats: how many times in a row each block comes.
        shots: whether solved problems precede the prompt, in suites that have them.
        end: the token that closes a response.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        count: int,
        block: int,
        seed: int,
        mix: dict[str, int] | None = None,
        distinct: int | None = None,
        repeats: int = 1,
        shots: bool = True,
        end: str = EOT,
    ) -> None:
        super().__init__(tokenizer, count, seed, end)
        self.block = block
        self.distinct = count if distinct is None else distinct
        self.repeats = repeats
        self.shots = shots
        blocks = dict.fromkeys(NANO_SUITES, 1) if mix is None else mix
        self.round = [suite for suite in GENERATED for _ in range(blocks.get(suite, 0))]

    def __getitem__(self, index: int) -> EncodedExample:
        block, within = divmod(index, self.block)
        # Of the example among the different ones.
        number = (block // self.repeats * self.block + within) % self.distinct
        round_, position = divmod(number // self.block, len(self.round))
        order = Random(f"order {self.seed} {round_}").sample(self.round, len(self.round))
        suite = suite_named(order[position])
        # Seeded by the number of the example, so that it does not depend on those before it.
        problem = draw(suite, "train", Random(f"example {self.seed} {number}"))
        before = suite.generated.shots if self.shots else None
        return self.encode(problem.question, problem.response, index, before)


class FileExamples(Examples):
    """The examples of a file, in a new random order every epoch.

    Raises:
        UserError: a file or line with faults, or an example longer than `limit` tokens.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, path: Path, seed: int, limit: int, end: str = EOT
    ) -> None:
        self._exchanges = read_exchanges(path, "--data")
        super().__init__(tokenizer, len(self._exchanges), seed, end)
        self._order: tuple[int, list[int]] = (-1, [])
        # All are encoded once, so that a line that is too long is refused before the training.
        for number, (prompt, response) in enumerate(self._exchanges, 1):
            example = self.encode(prompt, response, index=number)
            tokens = len(example["prompt"]) + len(example["response"])
            if tokens > limit:
                raise UserError(
                    f"--data {path}, line {number}: {tokens} tokens exceed the model's limit of"
                    f" {limit}"
                )

    def repeated(self, count: int) -> FileExamples:
        """Set the number of examples, which are repeated, or cut, to it; returns this object."""
        self.count = count
        return self

    def __getitem__(self, index: int) -> EncodedExample:
        epoch, position = divmod(index, len(self._exchanges))
        if self._order[0] != epoch:
            everything = range(len(self._exchanges))
            self._order = (
                epoch,
                Random(f"order {self.seed} {epoch}").sample(everything, k=len(everything)),
            )
        prompt, response = self._exchanges[self._order[1][position]]
        return self.encode(prompt, response, index)


class CorruptedBatches:
    """Collator: pads with EOS, draws diffusion times, and corrupts the responses.

    Args:
        eos_id: of the padding.
        mask_id: of the mask.
        seed: of the corruption.
        lengths: response lengths to which some batches are padded; others are as long as their
            longest response.
        blocks: share of the batches that are corrupted as decoding in blocks meets them.
    """

    def __init__(
        self,
        eos_id: int,
        mask_id: int,
        seed: int,
        lengths: Sequence[int] = LENGTHS,
        blocks: float = 0.0,
    ) -> None:
        self.eos_id = eos_id
        self.mask_id = mask_id
        self.seed = seed
        self.lengths = lengths
        self.blocks = blocks

    def generator(self, examples: list[EncodedExample], stream: int) -> torch.Generator:
        """Random numbers for a batch; stream: 0 for its corruption, 1 for everything else."""
        # By the index of its first example, so that a resumed training draws the same ones. Indexes
        # of batches are a batch apart, streams 1: they meet only in batches of one example.
        return torch.Generator().manual_seed(self.seed * 1_000_003 + examples[0]["index"] + stream)

    def __call__(self, examples: list[EncodedExample], all_masked: float = 0.0) -> Batch:
        """Make a batch of B examples.

        Args:
            examples: of consecutive indexes.
            all_masked: share of the examples, below 1, at diffusion time 1; the times of the others
                cover [0, 1] evenly.

        Returns:
            clean, corrupted: ids (B, L), padded with EOS. response: bool (B, L), all that follows
            each example's prompt, padding included. share: (B,), the share of masks that was drawn
            for each response.
        """
        first = examples[0]["index"]
        # 63% of the batches are as long as their longest response, which then has no EOS; 27% have
        # the next of the lengths, 10% a random one that fits. If none fits, an EOS follows.
        needed = max(len(e["response"]) for e in examples)
        rng = Random(f"length {self.seed} {first}")
        longer = [n for n in self.lengths if n >= needed]
        length = needed if longer and rng.random() < 0.7 else min(longer, default=needed + 1)
        length = rng.choice(longer) if longer and rng.random() < 0.1 else length
        total = max(len(e["prompt"]) for e in examples) + length
        clean_BL = torch.full((len(examples), total), self.eos_id)
        response_BL = torch.zeros(len(examples), total, dtype=torch.bool)
        for row, example in enumerate(examples):
            ids = torch.tensor(example["prompt"] + example["response"])
            clean_BL[row, : len(ids)] = ids
            response_BL[row, len(example["prompt"]) :] = True
        even_B = torch.tensor([(e["index"] * GOLDEN) % 1.0 for e in examples])
        # Times above 1 - all_masked become 1; the others are stretched over [0, 1].
        time_B = (even_B / (1 - all_masked)).clamp_max(1)
        generator = self.generator(examples, 0)
        # Spread evenly over the training: at a share of 0.5 it is every second batch.
        number = first // len(examples) + 1
        in_blocks = number * self.blocks % 1 < self.blocks
        corrupting = corrupt_in_blocks if in_blocks else corrupt
        corrupted_BL, share_B = corrupting(clean_BL, response_BL, time_B, self.mask_id, generator)
        return {
            "clean": clean_BL,
            "corrupted": corrupted_BL,
            "response": response_BL,
            "share": share_B,
        }


class NextTokenBatches:
    """Collator for an autoregressive model: clean sequences, and which of their tokens it
    predicts."""

    def __init__(self, batches: CorruptedBatches) -> None:
        self._batches = batches

    def __call__(self, examples: list[EncodedExample]) -> Batch:
        """B examples -> inputs (B, L), predicted (B, L) bool: the responses, each up to one EOS."""
        batch = self._batches(examples)
        # The first EOS ends the response and is learned; the others are padding.
        padding_BL = (batch["response"] & (batch["clean"] == self._batches.eos_id)).cumsum(1) > 1
        return {"inputs": batch["clean"], "predicted": batch["response"] & ~padding_BL}


class PositionBatches:
    """Collator: position-conditioned rows (the paper's Algorithm 1), one for each of `positions`
    corrupted positions of an example (None: all)."""

    def __init__(self, batches: CorruptedBatches, positions: int | None) -> None:
        self._batches = batches
        self._positions = positions

    def __call__(self, examples: list[EncodedExample]) -> Batch:
        """B examples -> a batch of R rows.

        Returns:
            inputs: ids (R, L); position: (R,), where each row predicts; target: (R,), the id
            there; weight: (R,), of its loss; tokens: (), the responses' lengths summed, padding
            included.
        """
        batch = self._batches(examples)
        generator = self._batches.generator(examples, 1)
        rows = position_rows(batch["clean"], batch["corrupted"], self._positions, generator)
        return rows._asdict() | {"tokens": batch["response"].sum()}
