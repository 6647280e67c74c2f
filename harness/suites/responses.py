"""Training responses that DDOSP's profile is estimated on, as ids: nano's generated ones, or those of a file."""

from typing import NamedTuple

from harness.errors import UserError
from harness.suites.exchanges import Exchange
from harness.suites.splits import problems
from model_wrappers import Backbone
from model_wrappers.chat import encode_question


class Example(NamedTuple):
    """A prompt and its response, as ids; all responses of one estimate have the same length."""

    prompt: list[int]
    response: list[int]


def generated_exchanges(suite: str, count: int) -> list[Exchange]:
    """`count` of nano's generated training problems. Raises ValueError if there are fewer."""
    return [Exchange(problem.question, problem.response) for problem in problems(suite, "train", count)]


def encode(backbone: Backbone, exchanges: list[Exchange], length: int) -> list[Example]:
    """The exchanges as ids, every response cut or padded with EOS to `length`, as in training.

    Raises UserError where one does not fit the model.
    """
    tokenizer = backbone.text_tokenizer()
    end = [] if backbone.eot_id is None else [backbone.eot_id]
    examples = []
    for number, exchange in enumerate(exchanges, 1):
        prompt = encode_question(tokenizer, exchange.prompt)
        text = list(tokenizer(exchange.response, add_special_tokens=False).input_ids)
        if len(prompt) + length > backbone.max_length:
            raise UserError(
                f"training response {number}: prompt of {len(prompt)} tokens and response of {length} exceed the limit "
                f"of {backbone.name}, {backbone.max_length} tokens"
            )
        examples.append(Example(prompt, (text + end + [backbone.eos_id] * length)[:length]))
    return examples
