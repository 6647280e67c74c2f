"""Nano's tokenizer: byte-level BPE (any text encodes) with LLaDA's special tokens and chat template.

Trained on generated training problems with the `tokenizers` library. Digits stay single tokens, so arithmetic is
spelled out; each word of the `lists` suite is one token.
"""

from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from harness.suites.registry import suite_named
from harness.suites.splits import draw

# What nano was trained on, in this order: frozen, so that a new suite changes neither its tokenizer nor its data.
NANO_SUITES = ("gsm8k", "math", "humaneval", "mbpp", "lists")
BOS, EOS, EOT, MASK = "<|startoftext|>", "<|endoftext|>", "<|eot_id|>", "<|mdm_mask|>"
HEADER = ("<|start_header_id|>", "<|end_header_id|>")

# LLaDA's own: BOS before the first turn, each turn with its role as a header, closed by EoT.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ (bos_token if loop.first else '') + '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# Words and single digits with the space before them; punctuation runs; whitespace.
SPLIT = r" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+(?! )|\s+"


def train_tokenizer(vocab_size: int = 1024, examples_per_suite: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train the tokenizer; the same arguments give the same one."""
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
