"""A decoder from outside that leaves the models or the process other than they were is found."""

import itertools
import mmap
import os
import queue
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from command_lines import resolved_run
from fakes import tiny_llada
from torch.nn import functional

from harness.errors import UserError
from harness.runs.loading import load
from harness.runs.pool import Chunk
from harness.runs.problems import SuiteJob
from harness.runs.respond import _respond, check_batch
from harness.runs.watch import unchanged
from harness.runs.worker import Worker
from model_wrappers import Backbone, Decoded
from model_wrappers.batches import at_once
from model_wrappers.decoders import Decoder
from model_wrappers.opencompass_model import DiffusionModel
from model_wrappers.options import Options
from model_wrappers.request import Request


@pytest.fixture
def own() -> Backbone:
    """A model that no other test has."""
    return tiny_llada(seed=5)


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """The process as it was, after a test that changes it."""
    folder = Path.cwd()
    threads, states = torch.get_num_threads(), (torch.get_rng_state(), random.getstate(), np.random.get_state())
    yield
    os.chdir(folder)
    while HOOKS:
        HOOKS.pop().remove()
    functional.silu, torch.softmax, torch.Tensor.mul = FUNCTIONS  # type: ignore[assignment,method-assign]
    torch.set_num_threads(threads)
    torch.backends.cuda.enable_math_sdp(True)
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def scaled(backbone: Backbone) -> None:
    with torch.inference_mode():
        next(backbone.model.parameters()).mul_(0.2)


def scaled_attention(backbone: Backbone) -> None:
    for module in backbone.model.modules():
        if hasattr(module, "scaling"):
            module.scaling *= 0.05


def scaled_unseen(backbone: Backbone) -> None:
    last = [*backbone.model.parameters()][-1]
    last.data *= 0.2  # does not count as a write of the tensor


FUNCTIONS = functional.silu, torch.softmax, torch.Tensor.mul


def other_function(space: Any, name: str) -> None:
    setattr(space, name, partial(getattr(space, name)))


def global_hook() -> None:
    HOOKS.append(torch.nn.modules.module.register_module_forward_hook(lambda *given: None))


HOOKS: list[Any] = []
CHANGES: dict[str, Callable[[Backbone], object]] = {
    "the weights of": scaled,
    "the weights of .*": scaled_unseen,
    "the weight.*": lambda own: next(own.model.buffers()).mul_(2),
    "torch's autocast": lambda own: torch.set_autocast_enabled("cpu", True),
    "torch's modes": lambda own: torch.set_default_device("cpu"),
    "the weights .*": lambda own: own.model.to(torch.bfloat16),
    "torch's number of threads": lambda own: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch's default dtype": lambda own: torch.set_default_dtype(torch.float64),
    "torch's precision": lambda own: torch.set_float32_matmul_precision("medium"),
    "torch's precision .*": lambda own: torch.backends.cuda.enable_math_sdp(False),
    "torch's precision.*": lambda own: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "torch's random state": lambda own: torch.rand(3),
    "Python's random state": lambda own: random.random(),
    "numpy's random state": lambda own: np.random.rand(),
    "the working directory": lambda own: os.chdir(".."),
    "the hooks of": lambda own: own.model.get_output_embeddings().register_forward_hook(lambda *given: None),
    "the hooks of .*": lambda own: global_hook(),
    "the special tokens of": lambda own: setattr(own, "eos_id", own.eos_id + 1),
    "torch's functions": lambda own: other_function(functional, "silu"),
    "torch's functions.*": lambda own: other_function(torch, "softmax"),
    "torch's function.*": lambda own: other_function(torch.Tensor, "mul"),
    "the settings of": scaled_attention,
    "the settings .*": lambda own: setattr(own, "reads_at", -1),
    "the settings of .*": lambda own: setattr(own.model.config, "rms_norm_eps", 0.5),
    "the functions of": lambda own: other_function([*own.model.modules()][-1], "forward"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_named_with_the_response(what: str, own: Backbone) -> None:
    refused = pytest.raises(UserError, match=f"mine on gsm8k, item 3: the decoder leaves .*{what}")
    with refused, unchanged([own], "mine on gsm8k, item 3"):
        CHANGES[what](own)


def test_a_model_that_is_run_itself_is_named(own: Backbone) -> None:
    refused = pytest.raises(UserError, match=r"mine: the decoder runs .* itself, and its forwards are not counted")
    with refused, unchanged([own], "mine"):
        own.logits(torch.ones(1, 4, dtype=torch.long))
        with torch.inference_mode():
            own.model(torch.tensor([[1, 2, 3]]))
    with unchanged([own], ""):  # decoding changes nothing
        own.logits(torch.ones(1, 4, dtype=torch.long))


def test_a_model_of_its_own_is_named(own: Backbone) -> None:
    other = tiny_llada(seed=6)
    other.name = "another"
    refused = pytest.raises(UserError, match=r"mine: the decoder runs another itself, and its forwards are not counted")
    with refused, unchanged([own], "mine"):
        other.logits(torch.ones(1, 4, dtype=torch.long))
    with unchanged([own, other], ""):
        other.logits(torch.ones(1, 4, dtype=torch.long))


def step(request: Request, position: int) -> None:
    """One token, the likeliest, at a position of the response."""
    place = torch.tensor([request.start + position])
    request.commit(place, request.backbone.logits(request.x_1L, positions=place)[0].argmax(-1), None, "unmasked")


SEEN: dict[int, int] = {}
LAST, NESTED, ARRAY = 0, {"of": [0]}, np.zeros(2)
__KEPT = [0]


class Kept:
    """What a decoder keeps of the position before."""

    last = 0


KEPT = Kept()


def kept_by(keep: Callable[[int], object]) -> Callable[[Request, Options], None]:
    """A decoder that keeps something between its calls of the model."""

    def keeping(request: Request, options: Options) -> None:
        for position in range(request.length):
            keep(position + 1)
            step(request, position)
        keep(0)

    return keeping


def keep_last(position: int) -> None:
    global LAST
    LAST = position


def keep_privately(position: int) -> None:
    __KEPT[0] = position


def keep_nested(position: int) -> None:
    NESTED["of"][0] = position


def keep_array(position: int) -> None:
    ARRAY[1] = position


def keep_in_object(position: int) -> None:
    KEPT.last = position


def keep_in_class(position: int) -> None:
    Kept.last = position


GENERATOR, CYCLE, NOISE, LONG = random.Random(0), itertools.cycle(range(9)), torch.Generator(), [0] * 2000


def counter() -> Iterator[int]:
    """Gives what it was sent."""
    kept = 0
    while True:
        kept = yield kept


COUNTER = counter()
next(COUNTER)
QUEUE, MAPPED = queue.SimpleQueue[int](), mmap.mmap(-1, 9)
TENSOR, DEEP = torch.zeros(3), {"a": {"b": {"c": {"d": {"e": [0]}}}}}


@dataclass(slots=True)
class Slots:
    """Without a __dict__."""

    last: int = 0


class Silent:
    """Which says nothing of what it keeps."""

    last = 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Silent, ()


SLOTS, SILENT, VIEW = Slots(), Silent(), memoryview(bytearray(9))


def keep_in_slots(position: int) -> None:
    SLOTS.last = position


def keep_in_silence(position: int) -> None:
    SILENT.last = position


def keep_in_view(position: int) -> None:
    VIEW[1] = position


def keep_far(position: int) -> None:
    LONG[1500] = position


def keep_deep(position: int) -> None:
    DEEP["a"]["b"]["c"]["d"]["e"][0] = position


def keep_in_tensor(position: int) -> None:
    TENSOR.data[1] = position


def keep_in_default(position: int, kept: list[int] = [0]) -> None:  # noqa: B006
    kept[0] = position


def keep_at_the_end(position: int) -> None:
    if position == 0:
        DEEP["last"] = {}


def keep_in_function(position: int) -> None:
    keep_in_function.last = position  # type: ignore[attr-defined]


def remembering(request: Request, options: Options) -> None:
    SEEN.clear()
    for position in range(request.length):
        step(request, position)
        SEEN[position] = len(SEEN)


def in_bfloat16(request: Request, options: Options) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for position in range(request.length):
            step(request, position)


def in_a_mode(request: Request, options: Options) -> None:
    with torch.device("cpu"):
        for position in range(request.length):
            step(request, position)


def in_another_function(request: Request, options: Options) -> None:
    other_function(functional, "silu")
    for position in range(request.length):
        step(request, position)
    functional.silu = FUNCTIONS[0]


def drawing(request: Request, options: Options) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for position in range(request.length):
            step(request, position)


class Held:
    """The model that `turning` changes."""

    model: Backbone


def turning(request: Request, options: Options) -> None:
    head = Held.model.model.get_output_embeddings().weight
    with torch.inference_mode():
        head.neg_()
        for position in range(request.length):
            step(request, position)
        head.neg_()


def honest(request: Request, options: Options) -> None:
    for position in range(request.length):
        step(request, position)


DEFERRED = """
from model_wrappers.options import Options


def decode(request, options: Options):
    from below_here.far_one import KEPT

    for position in range(request.start, request.x_1L.shape[1]):
        KEPT[0] = position
        request.commit([position], request.backbone.logits(request.x_1L)[0, :1].argmax(-1), None, "unmasked")
    KEPT[0] = 0
"""


def counting(request: Request, options: Options) -> None:
    """What has been committed so far is kept where no one looks for it."""
    Request.count = 0  # type: ignore[attr-defined]
    for position in range(request.length):
        place = torch.tensor([request.start + position])
        request.backbone.logits(request.x_1L, positions=place)
        request.commit(place, torch.tensor([Request.count]), None, "unmasked")  # type: ignore[attr-defined]
        Request.count += 1  # type: ignore[attr-defined]


def job_of(decoder: Callable[[Request, Options], None], backbone: Backbone) -> SuiteJob:
    """Two prompts for a decoder from outside."""
    Held.model, prompts = backbone, [torch.tensor([3, 4]), torch.tensor([5, 6])]
    model = DiffusionModel(backbone, Decoder(decoder, "mine"), {}, 4)
    return SuiteJob("gsm8k", prompts, ["", ""], None, {"mine": model})


SHARED = """
import os

from model_wrappers.decoders import register
from model_wrappers.options import Options


@register("counted")
def counted(request, options: Options):
    os.counted = 0
    for position in range(request.start, request.x_1L.shape[1]):
        request.backbone.logits(request.x_1L)
        request.commit([position], 5 + os.counted // 8, None, "unmasked")
        os.counted += 1
"""


def batch_of(decoder: Callable[[Request, Options], None], backbone: Backbone) -> list[Decoded]:
    """Two responses of a decoder from outside, decoded at once."""
    job = job_of(decoder, backbone)
    return list(at_once([partial(_respond, job, "mine", at, job.prompts[at], 0, None, True) for at in (0, 1)], 2))


@pytest.mark.parametrize(
    ("decoder", "what"),
    [
        (remembering, "its SEEN"),
        (kept_by(keep_last), "its LAST"),
        (kept_by(keep_privately), "its __KEPT"),
        (kept_by(keep_nested), "its NESTED"),
        (kept_by(keep_array), "its ARRAY"),
        (kept_by(keep_in_object), "its KEPT"),
        (kept_by(keep_in_class), "its Kept"),
        (kept_by(keep_in_function), "its .*keep_in_function"),
        (kept_by(keep_in_slots), "its SLOTS"),
        (kept_by(keep_in_silence), "its SILENT"),
        (kept_by(keep_in_view), "its VIEW"),
        (kept_by(keep_far), "its LONG"),
        (kept_by(keep_deep), "its DEEP"),
        (kept_by(keep_in_tensor), "its TENSOR"),
        (kept_by(keep_in_default), "its .*keep_in_default"),
        (kept_by(lambda position: GENERATOR.random()), "its GENERATOR"),
        (kept_by(lambda position: next(CYCLE)), "its CYCLE"),
        (kept_by(lambda position: torch.rand(1, generator=NOISE)), "its NOISE"),
        (kept_by(lambda position: COUNTER.send(position)), "its COUNTER"),
        (kept_by(lambda position: QUEUE.put(position)), "its QUEUE"),
        (kept_by(lambda position: MAPPED.__setitem__(0, position % 256)), "its MAPPED"),
        (kept_by(lambda position: os.environ.update(KEPT=str(position))), "the environment"),
        (kept_by(keep_at_the_end), "its DEEP"),
        (in_bfloat16, "torch's autocast"),
        (in_a_mode, "torch's modes"),
        (in_another_function, "torch's functions"),
        (drawing, "torch's random state"),
        (turning, "the weights of"),
    ],
)
def test_in_a_batch_what_is_put_back_at_the_end_is_found(
    decoder: Callable[[Request, Options], None], what: str, own: Backbone
) -> None:
    with pytest.raises(UserError, match=rf"mine on gsm8k, item \d.*leaves {what}.* or give --batch 1"):
        batch_of(decoder, own)


def test_modules_in_folders_below_are_looked_at(tmp_path: Path, own: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below_here").mkdir()
    (tmp_path / "below_here" / "far_one.py").write_text("KEPT = [0]\n")
    (tmp_path / "near_one.py").write_text(DEFERRED)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("below_here.far_one")
    with pytest.raises(UserError, match="its KEPT"):
        batch_of(import_module("near_one").decode, own)


def keep_in_made(position: int) -> None:
    import made_here  # type: ignore[import-not-found]

    made_here.last = position


def test_modules_of_no_file_are_looked_at(own: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_here", ModuleType("made_here"))
    keep_in_made(0)
    with pytest.raises(UserError, match="its last"):
        batch_of(kept_by(keep_in_made), own)


def test_in_a_batch_a_decoder_that_shares_nothing_decodes(own: Backbone) -> None:
    assert len(batch_of(honest, own)) == 2
    check_batch(job_of(honest, own), "mine", [0, 1])


def test_what_responses_share_is_found_by_their_tokens_wherever_it_is_kept(own: Backbone) -> None:
    job = job_of(counting, own)
    try:
        assert [out.tokens.tolist() for out in batch_of(counting, own)] != [[0, 1, 2, 3]] * 2
        with pytest.raises(UserError, match=r"mine on gsm8k, items 0, 1: responses .* others in turns than one after"):
            check_batch(job, "mine", [0, 1])
        with pytest.raises(ValueError, match="others in turns than one after the other"):
            job.models["mine"].responses(job.prompts)
        assert job.models["mine"].responses(job.prompts[:1])[0][0].tokens.tolist() == [0, 1, 2, 3]
    finally:
        del Request.count  # type: ignore[attr-defined]


def test_a_decoder_from_outside_is_tried_before_its_first_batch(registries: None, tmp_path: Path) -> None:
    """One response, as at the end of a run that is gone on with, is no batch yet."""
    (tmp_path / "mine.py").write_text(SHARED)
    line = f"--methods {tmp_path / 'mine.py'}:counted --suite gsm8k --limit 3 --gen-length 8 --batch 2 --data generated"
    run = resolved_run(*line.split())
    worker = Worker(run, tmp_path, *load(run, tmp_path))
    assert len([*worker.decode(Chunk("gsm8k", {"counted": [0]}))]) == 1
    with pytest.raises(UserError, match="counted on gsm8k, items 1, 2: responses of the decoder are others in turns"):
        next(worker.decode(Chunk("gsm8k", {"counted": [1, 2]})))
