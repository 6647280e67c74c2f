"""Loading a checkpoint: all weights, of the right shape, finite; and models that bring their code.

Such a model gives logits of whole sequences. Not supported: `extend` (two-stream verification, wino, caches), causal
attention (dcd), CUDA graphs, training.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from model_wrappers.backbones.heads import read_positions
from model_wrappers.backbones.model import Backbone, Family, ReadsAt

NAMED = 5  # most tensors that a message names
LOGGERS = ("configuration_utils", "modeling_utils", "distributed.tensor_parallel")  # of what is read, not of progress


def load_weights(kind: Any, source: str, weights: dict[str, torch.Tensor] | None = None, **options: Any) -> Any:
    """The model of a folder or hub id by a class of transformers' (`kind.from_pretrained`) with these options.

    weights: by name, in the place of those there. Raises ValueError naming tensors that are missing, misshapen, of no
    use to the config, not finite or all zero.
    """
    check_index(source)
    if weights is not None:
        options |= {"state_dict": weights, "config": kind.config_class.from_pretrained(source)}
    with _reports() as reports:
        try:
            model, info = kind.from_pretrained(
                source if weights is None else None, ignore_mismatched_sizes=True, output_loading_info=True, **options
            )
        except RuntimeError as error:
            # Only the report says which of the tensors that are merged into one do not fit together.
            names = re.findall(
                r"^(.+?) +\| +\S*CONVERSION", "\n".join(each.getMessage() for each in reports), re.MULTILINE
            )
            if not names:
                raise
            raise ValueError(f"tensors are missing or misshapen that make up {_listed(names)}") from error
    for wrong in _faults(model, info):
        raise ValueError(wrong)
    model.config.name_or_path = source
    return model


def check_index(source: str) -> None:
    """Raise ValueError if a folder's index of weights names files outside of it."""
    index = Path(source) / "model.safetensors.index.json"
    if index.is_file():
        files = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        if elsewhere := [str(file) for file in files if Path(str(file)).name != file]:
            raise ValueError(f"{index.name} names files outside of the folder: {_listed(elsewhere)}")


@contextmanager
def _reports() -> Iterator[list[logging.LogRecord]]:
    """What transformers reports of a config and of tensors: collected, not printed, also where logging is disabled."""
    collector, disabled = BufferingHandler(sys.maxsize), logging.root.manager.disable
    loggers = [logging.getLogger(f"transformers.{name}") for name in LOGGERS]
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(collector)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    others = logging.getLogger("transformers")
    quiet = others.level
    others.setLevel(max(quiet, disabled + 1))
    logging.disable(logging.NOTSET)
    try:
        yield collector.buffer
    finally:
        logging.disable(disabled)
        others.setLevel(quiet)
        for logger, (propagates, level) in zip(loggers, before, strict=True):
            logger.removeHandler(collector)
            logger.propagate = propagates
            logger.setLevel(level)


def _faults(model: torch.nn.Module, info: Any) -> Iterator[str]:
    """In what file and config do not have the same weights, finite, no matrix all zero."""
    if info["missing_keys"]:  # they would stay random
        yield f"no weights for {_listed(info['missing_keys'])}"
    if info["mismatched_keys"]:  # and so would these
        shapes = ((name, *("x".join(map(str, shape)) for shape in both)) for name, *both in info["mismatched_keys"])
        wrong = (f"{name} ({there}, not {here})" for name, there, here in shapes)
        yield f"weights of another shape than the config's: {_listed(wrong)}"
    # Angles are computed; some checkpoints hold them all the same.
    unused = sorted(name for name in info["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq"))
    if unused:
        yield f"the config has no place for {len(unused)} of its weights, such as {unused[0]}"
    with suppress(NotImplementedError, AttributeError):  # code of its own may not say which these are
        both: Any = [getattr(model, f"get_{which}_embeddings")() for which in ("input", "output")]
        tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)  # type: ignore[union-attr,operator]
        if tied and None not in both and both[0].weight is not both[1].weight:
            yield "the config ties the head to the embedding (tie_word_embeddings), and its weights have another head"
    for name, weight in model.named_parameters():
        low, high = weight.detach().aminmax()
        if not bool(torch.isfinite(low) & torch.isfinite(high)):
            yield f"the weights {name} are not finite: the file is damaged"
        if weight.dim() > 1 and not bool((low != 0) | (high != 0)):
            yield f"the weights {name} are all zero: the file is not of a trained model"


def _listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - NAMED
    return ", ".join(ordered[:NAMED]) + (f" and {more} more" if more > 0 else "")


AUTO_CLASSES = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel")
LENGTH_FIELDS = ("max_position_embeddings", "max_sequence_length", "n_positions")


class RemoteBackbone(Backbone):
    """Logits of a model with layers that are unknown.

    Mask and EOS are what its config names, else its tokenizer; a turn ends at the tokenizer's EOS, if that is another.
    """

    extend: Any = None

    def logits(self, ids_BL: torch.Tensor, positions: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """As `Backbone.logits`; the vocabulary head runs everywhere.

        Raises ValueError for causal=True, and for a model that gives no logits of this shape.
        """
        if causal:
            raise ValueError(f"{self.name} is run by code of its own, which is not asked for causal attention")
        self.calls += 1
        with torch.inference_mode():
            logits_BLV = getattr(self.model(ids_BL), "logits", None)
        wanted = (*ids_BL.shape, self.vocab_size)
        if logits_BLV is None or logits_BLV.shape != wanted:
            given = "no logits" if logits_BLV is None else f"logits of shape {tuple(logits_BLV.shape)}"
            raise ValueError(f"the code of {self.name} gives {given}, not those of shape {wanted}")
        read = self._read_in_whole(positions, ids_BL.shape[1], ids_BL.device)
        return logits_BLV if read is None else read_positions(logits_BLV, read)


def load_remote(source: str, config: dict[str, Any], name: str, reads_at: ReadsAt, **options: Any) -> RemoteBackbone:
    """The model of a folder or hub id, by the automatic class that its config.json names, on the CPU.

    options: of transformers' `from_pretrained`. Raises ValueError for weights that are not as they must be.
    """
    named = [each for each in AUTO_CLASSES if each in (config.get("auto_map") or {})]
    kind: Any = getattr(transformers, (named or AUTO_CLASSES)[0])
    model = load_weights(kind, source, trust_remote_code=True, **options)
    tokenizer = _tokenizer(source)
    for field in ("mask_token_id", "eos_token_id"):
        if type(getattr(model.config, field, None)) is not int:
            setattr(model.config, field, getattr(tokenizer, field, None))
    lengths = [getattr(model.config, field) for field in LENGTH_FIELDS if hasattr(model.config, field)]
    model.config.max_position_embeddings = lengths[0] if lengths else sys.maxsize  # no limit that is known
    end = "" if tokenizer is None or tokenizer.eos_token is None else str(tokenizer.eos_token)
    family = Family(str(config.get("model_type")), type(model), {}, end_of_turn=end, reads_at=reads_at)
    return RemoteBackbone(family, model, tokenizer, name)


def _tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer, by its own code where it has some; None where there is none."""
    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    except (OSError, ValueError, TypeError, KeyError):
        return None
