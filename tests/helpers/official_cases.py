"""What is compared with official decoders: nano's problems, options of ours and of theirs, and
where their code is.

`tests/official/make_tokens.py` runs both and keeps the tokens; the tests run ours alone. Shapes: P
prompt tokens.
"""

import hashlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from harness.records.files import file_hash
from harness.suites.registry import problems, suite_named
from model_wrappers import Backbone, Decoded, decode
from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.registry import NANO
from model_wrappers.chat import encode_question
from model_wrappers.sampling import Sampler

GOLDENS = Path(__file__).parents[1] / "official" / "goldens" / "tokens"
PROBLEMS = 40  # a suite
NEVER = 0  # an id that nano does not write: the beginning of a text
FULL = 0  # a block length: the whole response


@dataclass(frozen=True)
class Case:
    """Our decoder with its options, and what the official function of the same is called with.

    source: which of SOURCES. block_length: FULL is the whole response. theirs: arguments of the
    official function.
    """

    method: str
    source: str
    block_length: int = FULL
    options: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the golden file calls it."""
        block = "full" if self.block_length == FULL else str(self.block_length)
        return " ".join(
            [
                self.method,
                f"block={block}",
                *(f"{key}={value}" for key, value in self.options.items()),
            ]
        )


@dataclass(frozen=True)
class Source:
    """Official code: its repository on GitHub, the file, and the function that decodes.

    attends: it decodes block models; nano's weights then attend in the blocks of the case. shifted:
    logits are read where the token before stands.
    """

    repository: str
    file: str
    function: str
    attends: bool = False
    shifted: bool = False


SOURCES = {
    "llada": Source("ML-GSAI/LLaDA", "generate.py", "generate"),
    "fast-dllm": Source("NVlabs/Fast-dLLM", "llada/generate.py", "generate"),
    "fast-dllm-prefix": Source(
        "NVlabs/Fast-dLLM", "llada/generate.py", "generate_with_prefix_cache"
    ),
    "fast-dllm-dual": Source("NVlabs/Fast-dLLM", "llada/generate.py", "generate_with_dual_cache"),
    "factor": Source("NEUIR/PC-Sampler", "src/generate.py", "generate_with_fast_dllm"),
    "factor-repaired": Source("NEUIR/PC-Sampler", "src/generate.py", "generate_with_fast_dllm"),
    "klass": Source("shkim0116/KLASS", "src/model/llada_klass.py", "stable_confident_decode"),
    "wino": Source("Feng-Hong/WINO-DLLM", "LLaDA/decoding.py", "decoding_wino"),
    "freedave": Source(
        "cychomatica/FreeDave",
        "generation/core.py",
        "DLMGeneration.block_decode_with_full_attention_FreeDave",
    ),
    "prophet": Source("pixeli99/Prophet", "generate_earlyexit.py", "generate"),
    "dream": Source(
        "ZHZisZZ/dllm",
        "dllm/pipelines/dream/models/generation_utils.py",
        "DreamGenerationMixin._sample",
    ),
    "pc-sampler": Source("NEUIR/PC-Sampler", "src/generate.py", "generate_with_pc_sampler"),
    "eb-sampler": Source("NEUIR/PC-Sampler", "src/generate.py", "generate_with_eb_sampler"),
    "sdar": Source("JetAstra/SDAR", "generate.py", "block_diffusion_generate", attends=True),
    "llada2": Source(
        "ZHZisZZ/dllm", "dllm/pipelines/llada2/sampler.py", "LLaDA2Sampler", attends=True
    ),
    "llada2.1": Source(
        "ZHZisZZ/dllm", "dllm/pipelines/llada21/sampler.py", "LLaDA21Sampler", attends=True
    ),
    "fast-dllm-v2": Source(
        "phymhan/S2D2", "Fast-dLLM-v2/generate_utils.py", "generate", attends=True, shifted=True
    ),
    "s2d2": Source(
        "phymhan/S2D2", "SDAR/generate_ssd_policy.py", "block_diffusion_generate", attends=True
    ),
}


class Halves(Sampler):
    """A uniform is 0.5, and what is drawn the likeliest token: S2D2's official code draws at
    temperature 0 as well."""

    def uniforms(self, count: int, device: torch.device) -> torch.Tensor:
        return torch.full((count,), 0.5, device=device)

    def tokens(self, probs_NV: torch.Tensor, needed_1: torch.Tensor | None = None) -> torch.Tensor:
        return probs_NV.argmax(-1)


def _cases() -> Iterator[Case]:
    for block in (FULL, 16):
        yield Case("llada", "llada", block)
        yield Case("llada", "llada", block, {"logits_eos_inf": True}, {"logits_eos_inf": True})
        ends = {"confidence_eos_eot_inf": True}
        yield Case("llada", "llada", block, ends, ends)
    yield Case("llada", "llada", FULL, {"cfg_scale": 0.5}, {"cfg_scale": 0.5})
    caches = (("none", "fast-dllm"), ("prefix", "fast-dllm-prefix"), ("dual", "fast-dllm-dual"))
    for cache_name, source in caches:
        on = {} if cache_name == "none" else {"cache": cache_name}
        for block in (FULL, 16, 8):
            if on:
                yield Case("llada", source, block, on)
            yield Case("threshold", source, block, {"tau": 0.9, **on}, {"threshold": 0.9})
        yield Case("threshold", source, 16, {"tau": 0.7, **on}, {"threshold": 0.7})
    for factor in (1.0, 0.5):
        for block in (FULL, 16):
            for source in ("factor", "factor-repaired"):
                yield Case("factor", source, block, {"f": factor}, {"factor": factor})
    for block in (FULL, 16):
        for values in ((0.9, 0.01, 2), (0.6, 0.05, 2), (0.7, 0.01, 3)):
            names = ("conf_threshold", "kl_threshold")
            ours = dict(zip((*names, "history"), values, strict=True))
            yield Case(
                "klass",
                "klass",
                block,
                ours,
                dict(zip((*names, "kl_history_length"), values, strict=True)),
            )
        for pair in ((0.6, 0.9), (0.8, 0.95), (0.3, 0.6)):
            both = dict(zip(("threshold", "threshold_back"), pair, strict=True))
            yield Case("wino", "wino", block, both, both)
        for drafts in (4, 8):
            yield Case(
                "freedave", "freedave", block, {"draft_steps": drafts}, {"draft_steps": drafts}
            )
        for thresholds, answer_start in (((7.5, 5.0, 2.5), 20), ((4.0, 3.0, 2.0), 8)):
            exits = dict(zip(("early", "mid", "late"), thresholds, strict=True))
            theirs = {"early_exit_thresholds": exits, "answer_start": answer_start}
            yield Case("prophet", "prophet", block, {**exits, "answer_start": answer_start}, theirs)
        for values in ((0.25, 10.0), (0.5, 1.0)):
            both = dict(zip(("lambd", "alpha"), values, strict=True))
            yield Case("pc_sampler", "pc-sampler", block, {"baseline": "nano", **both}, both)
    for alg in ("maskgit_plus", "topk_margin", "entropy"):
        for more in ({}, {"top_p": 0.9}, {"top_p": 0.8, "top_k": 3}):
            both = {"alg": alg, **more}
            yield Case("dream", "dream", FULL, both, both)
        few = {"alg": alg, "steps": 12, "eps": 0.1}
        yield Case("dream", "dream", FULL, few, few)
    for block in (4, 8, 16):
        yield Case("llada", "sdar", block, {}, {"remasking_strategy": "low_confidence_static"})
        for tau in (0.9, 0.6):
            yield Case("threshold", "sdar", block, {"tau": tau}, {"confidence_threshold": tau})
        for tau, steps in ((0.95, block), (0.6, block), (0.6, block // 2)):
            ours = {"threshold": tau, "steps": steps}
            yield Case("block", "llada2", block, ours, {"threshold": tau, "steps_per_block": steps})
        for pair in ((0.95, 0.9), (0.7, 0.5), (0.5, 0.0)):
            both = dict(zip(("threshold", "editing_threshold"), pair, strict=True))
            yield Case("block", "llada2.1", block, both, both)
        routed = {
            "do_verify_policy": "score_threshold",
            "do_verify_score_type": "difference_static",
        }
        routed |= {
            "token_acceptance_estimator": "soft_entropy_negexp",
            "do_verify_score_threshold": 0.0,
        }
        for least in (0.0, 1.0):
            yield Case(
                "s2d2",
                "s2d2",
                block,
                {"min_expected": least},
                {**routed, "score_penalty_coef": least},
            )
        spans = {"min_ssd_span_length": 3, "confidence_threshold": 0.6}
        yield Case("s2d2", "s2d2", block, {"min_span": 3, "threshold": 0.6}, spans)
    for tau in (0.9, 0.3):
        for part in (4, 16):
            ours = {"threshold": tau, "sub_block": part}
            yield Case(
                "block", "fast-dllm-v2", 16, ours, {"threshold": tau, "small_block_size": part}
            )
    for gamma in (0.1, 1.0):
        yield Case("entropy", "eb-sampler", FULL, {"gamma": gamma}, {"gamma": gamma})


CASES = list(_cases())


@cache
def questions(suite: str) -> list[str]:
    """The first test problems of a suite of nano's."""
    return [problem.question for problem in problems(suite, "test", PROBLEMS)]


def prompts(backbone: Backbone, suite: str) -> list[torch.Tensor]:
    """Their prompts as ids, LongTensor (P,) each."""
    return [
        torch.tensor(encode_question(backbone.text_tokenizer(), text)) for text in questions(suite)
    ]


def lengths(case: Case, suite: str) -> dict[str, int]:
    """Generation length and block length of a case on a suite."""
    length = suite_named(suite).generated.length
    return {"gen_length": length, "block_length": case.block_length or length}


def respond(backbone: Backbone, case: Case, suite: str, prompt_P: torch.Tensor) -> Decoded:
    """Our decoder's response."""
    if SOURCES[case.source].attends:
        backbone = copy(backbone)
        backbone.blocks = Blocks(case.block_length)
    if SOURCES[case.source].shifted:
        # Read where the token before stands, nano's first token would end the response: another id
        # is EOS.
        backbone.reads_at, backbone.eos_id = -1, NEVER
    return decode(
        backbone, prompt_P, case.method, **lengths(case, suite), sampler=Halves(0), **case.options
    )


def nano_sha256() -> str:
    """SHA-256 of the weights of nano that are shipped: other weights write other tokens."""
    return file_hash(NANO / "model.safetensors")


def hash_of(tokens: torch.Tensor) -> str:
    """A response in 12 characters."""
    return hashlib.sha256(tokens.cpu().long().numpy().tobytes()).hexdigest()[:12]
