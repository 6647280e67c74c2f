"""Fixtures that several test files share. Nothing here may reach the network."""

from __future__ import annotations

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="datasets-")

from pathlib import Path

import pytest
import torch
from fakes import official_checkpoint, tiny_llada

from model_wrappers import Backbone

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> Backbone:
    """A tiny random model: vocabulary of 40, at most 64 tokens."""
    return tiny_llada(seed=0)


@pytest.fixture(scope="session")
def prompt() -> torch.Tensor:
    """A prompt of five tokens of the tiny models."""
    return torch.tensor([3, 14, 15, 9, 26])


@pytest.fixture(scope="session")
def official_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint in the official format, in one file."""
    return official_checkpoint(tmp_path_factory.mktemp("official"))
