"""Fixtures that several test files share. Nothing here may reach the network."""

import atexit
import os
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="datasets-")

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes import add_nanos_tokenizer, official_checkpoint, tiny_llada
from hypothesis import HealthCheck, settings
from registered import forgotten

from model_wrappers import Backbone, load_backbone

torch.set_num_threads(1)
# Examples of a property: few in every change, ten times as many at night
# (--hypothesis-profile=nightly).
for profile, examples in (("quick", 50), ("nightly", 500)):
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
settings.load_profile("quick")
atexit.register(shutil.rmtree, os.environ["HF_DATASETS_CACHE"], ignore_errors=True)


@pytest.fixture(autouse=True)
def quiet_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No response is timed again or marked, whatever else runs beside the test.

    Tests run side by side, and would else decode most responses of timed runs twice.
    """
    if "disturbed" not in request.keywords:
        monkeypatch.setattr("harness.runs.timing.is_disturbed", lambda *_: False)


@pytest.fixture(scope="session")
def tiny() -> Backbone:
    """A tiny random model: vocabulary of 40, at most 64 tokens."""
    return tiny_llada(seed=0)


@pytest.fixture(scope="session")
def small() -> Backbone:
    """Two tokens and a mask: what it is in doubt about depends on the threshold."""
    return tiny_llada(3, vocab_size=3)


@pytest.fixture(scope="session")
def nano() -> Backbone:
    """The shipped model."""
    return load_backbone("nano")


@pytest.fixture(scope="session")
def prompt() -> torch.Tensor:
    """A prompt of five tokens of the tiny models."""
    return torch.tensor([3, 14, 15, 9, 26])


@pytest.fixture(scope="session")
def official_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint in the official format, in one file."""
    return official_checkpoint(tmp_path_factory.mktemp("official"))


@pytest.fixture(scope="session")
def official_with_tokenizer(nano: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint in the official format, with nano's tokenizer."""
    sizes = {
        "vocab_size": nano.vocab_size,
        "embedding_size": nano.vocab_size,
        "max_sequence_length": 4096,
    }
    ids = {"eos_token_id": nano.eos_id, "pad_token_id": nano.eos_id, "mask_token_id": nano.mask_id}
    return add_nanos_tokenizer(
        official_checkpoint(tmp_path_factory.mktemp("official_with_tokenizer"), **sizes, **ids)
    )


@pytest.fixture
def broken_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejected draft is replaced from the target itself, as a wrong implementation would."""
    monkeypatch.setattr("model_wrappers.sampling.residual", lambda target_V, draft_V: target_V)


@pytest.fixture
def registries() -> Iterator[None]:
    """What is registered meanwhile is forgotten afterwards."""
    with forgotten():
        yield
