"""Loading a checkpoint's weights: all of them, of the right shape, finite; anything else is refused in one line."""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

NAMED = 5  # most tensors that a message names
LOGGERS = ("configuration_utils", "modeling_utils", "distributed.tensor_parallel")  # of what is read, not of progress


def load_weights(kind: Any, source: str, **options: Any) -> Any:
    """The model of a folder or hub id by a class of transformers' (`kind.from_pretrained`) with these options.

    Raises ValueError naming tensors that are missing, misshapen, of no use to the config, not finite or all zero.
    """
    index = Path(source) / "model.safetensors.index.json"
    if index.is_file():
        files = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        if elsewhere := [str(file) for file in files if Path(str(file)).name != file]:
            raise ValueError(f"{index.name} names files outside of the folder: {_listed(elsewhere)}")
    with _reports() as reports:
        try:
            model, info = kind.from_pretrained(
                source, ignore_mismatched_sizes=True, output_loading_info=True, **options
            )
        except RuntimeError as error:
            # Only the report says which of the tensors that are merged into one do not fit together.
            names = re.findall(r"^(.+?) +\| +\S*CONVERSION", "\n".join(reports), re.MULTILINE)
            if not names:
                raise
            raise ValueError(f"tensors are missing or misshapen that make up {_listed(names)}") from error
    _check(model, info)
    return model


@contextmanager
def _reports() -> Iterator[list[str]]:
    """What transformers reports of a config and of tensors: collected, not printed."""
    reports: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reports.append(record.getMessage())

    collector = Collector()
    loggers = [logging.getLogger(f"transformers.{name}") for name in LOGGERS]
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(collector)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    try:
        yield reports
    finally:
        for logger, (propagates, level) in zip(loggers, before, strict=True):
            logger.removeHandler(collector)
            logger.propagate = propagates
            logger.setLevel(level)


def _check(model: torch.nn.Module, info: Any) -> None:
    """Raise ValueError unless the file and the config have the same weights, finite, no matrix all zero."""
    if info["missing_keys"]:  # they would stay random
        raise ValueError(f"no weights for {_listed(info['missing_keys'])}")
    if info["mismatched_keys"]:  # and so would these
        wrong = (f"{name} ({_shape(there)}, not {_shape(here)})" for name, there, here in info["mismatched_keys"])
        raise ValueError(f"weights of another shape than the config's: {_listed(wrong)}")
    # Angles are computed; some checkpoints hold them all the same.
    unused = sorted(name for name in info["unexpected_keys"] if not name.endswith("rotary_emb.inv_freq"))
    if unused:
        raise ValueError(f"the config has no place for {len(unused)} of its weights, such as {unused[0]}")
    for name, weight in model.named_parameters():
        low, high = weight.detach().aminmax()
        if not bool(torch.isfinite(low) & torch.isfinite(high)):
            raise ValueError(f"the weights {name} are not finite: the file is damaged")
        if weight.dim() > 1 and not bool((low != 0) | (high != 0)):
            raise ValueError(f"the weights {name} are all zero: the file is not of a trained model")


def _shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - NAMED
    return ", ".join(ordered[:NAMED]) + (f" and {more} more" if more > 0 else "")
