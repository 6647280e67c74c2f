"""The OpenCompass adapter: chat turns -> ids -> decode -> text. Scoring happens elsewhere.

In a plain OpenCompass configuration (docs/usage.md has a whole one):

    models = [dict(type="model_wrappers.opencompass_model.DiffusionModel", abbr="fef-2", path="nano", method="fef",
                   options=dict(steps=2), gen_length=64, batch_size=1, max_out_len=64)]
"""

from functools import partial
from typing import Any

import torch
from opencompass.models.base import BaseModel
from opencompass.models.base_api import APITemplateParser

from model_wrappers.api import check_lengths, check_options, check_temperature, decode
from model_wrappers.backbones.model import Backbone
from model_wrappers.backbones.registry import load_backbone
from model_wrappers.chat import encode_messages, encode_plain, response_text
from model_wrappers.decoders import Method, decoder_named
from model_wrappers.trace import Decoded, FullObserver

ROLES = {"HUMAN": "user", "BOT": "assistant", "SYSTEM": "system"}
META_TEMPLATE = {
    "round": [{"role": "HUMAN", "api_role": "HUMAN"}, {"role": "BOT", "api_role": "BOT", "generate": True}],
    "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}],
}


class DiffusionModel(BaseModel):
    """One decoding method on one backbone, as OpenCompass sees a model.

    path: nano, a folder, a hub id or a loaded Backbone; so is `draft`, for methods that take one. options: the
    method's. gen_length: tokens of a response (OpenCompass's `max_out_len` is not used). seed: of all responses that
    OpenCompass's inferencer generates.
    """

    def __init__(
        self,
        path: str | Backbone,
        method: Method = "fef",
        options: dict[str, Any] | None = None,
        gen_length: int = 64,
        block_length: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        draft: str | Backbone | None = None,
        device: str = "cpu",
        dtype: str | None = None,
        **_: Any,
    ) -> None:
        super().__init__(path=str(path))
        self.template_parser = APITemplateParser(META_TEMPLATE)
        self.backbone = path if isinstance(path, Backbone) else load_backbone(path, device, dtype)
        self.decoder, self.options = decoder_named(method), dict(options or {})
        if draft is not None:
            self.options["draft"] = draft if isinstance(draft, Backbone) else load_backbone(draft, device, dtype)
        check_options(self.decoder, self.options)
        usual = gen_length if self.backbone.blocks is None else self.backbone.blocks.length
        self.gen_length, self.block_length = gen_length, usual if block_length is None else block_length
        check_lengths(self.gen_length, self.block_length)
        check_temperature(self.decoder, temperature)
        self.temperature, self.seed = temperature, seed

    def generate(self, inputs: list[Any], max_out_len: int | None = None, **_: Any) -> list[str]:
        """Responses to conversations, one after the other: batch size 1 is what is timed."""
        prompts = [encode_chat(self.backbone, turns) for turns in inputs]
        return [response_text(self.backbone, self.respond(prompt_P, self.seed).tokens) for prompt_P in prompts]

    def respond(self, prompt_P: torch.Tensor, seed: int, observer: FullObserver | None = None) -> Decoded:
        """Decode one response to an encoded prompt, LongTensor (P,); an observer may see it twice."""
        lengths: dict[str, Any] = {"gen_length": self.gen_length, "block_length": self.block_length}
        how = {**lengths, "temperature": self.temperature, "seed": seed, "observer": observer, **self.options}
        once = partial(decode, self.backbone, prompt_P, self.decoder, **how)
        graphs = self.backbone.graphs
        out = once()
        return once() if self.backbone.graphs > graphs else out  # its seconds held a compilation: the same tokens again

    def get_token_len(self, prompt: str) -> int:
        """Tokens of a text."""
        return len(self.backbone.text_tokenizer()(prompt, add_special_tokens=False).input_ids)


def encode_chat(backbone: Backbone, turns: Any, plain: bool = False) -> torch.Tensor:
    """A conversation (a string, or OpenCompass's list of {role, prompt}) through the chat template: LongTensor (P,).

    plain: without the template (`chat.encode_plain`). Raises ValueError for a chat template that cannot be used, and
    for text that holds the mask token: the model would take it for a position to fill.
    """
    if isinstance(turns, str):
        turns = [{"role": "HUMAN", "prompt": turns}]
    messages = [{"role": ROLES[turn["role"]], "content": turn["prompt"]} for turn in turns]
    ids = (encode_plain if plain else encode_messages)(backbone.text_tokenizer(), messages)
    if backbone.mask_id in ids:
        mask = backbone.text_tokenizer().decode([backbone.mask_id])
        raise ValueError(f"the text of the prompt holds the mask token {mask}; take it out")
    return torch.tensor(ids, dtype=torch.long)
