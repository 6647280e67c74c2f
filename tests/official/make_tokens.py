"""Run official decoders beside ours on nano's weights and keep what they wrote: the goldens of
`test_official_tokens.py`.

    PYTHONPATH=tests/helpers python tests/official/make_tokens.py CHECKOUTS [--only klass,wino]
    [--problems 40]

CHECKOUTS is a folder with a git clone of every repository in `official_cases.SOURCES`, named after
its last part (LLaDA, Fast-dLLM, KLASS, ..). Their code is run, not kept. Every response is decoded
by theirs and by ours in turn, in this process and with the same weights, nano's: theirs in the
LLaDA class of Fast-dLLM's repository, which is the official one with a cache, or in ours; SHIMS
says what was changed for that. Writes goldens/tokens/NAME.json: repository, commit, file, function,
shims, SHA-256 of nano's weights and, for every case, hashes of the official tokens, how many are
ours too, calls and seconds of both.
"""

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from official_cases import (
    CASES,
    GOLDENS,
    NEVER,
    PROBLEMS,
    SOURCES,
    Case,
    hash_of,
    lengths,
    nano_sha256,
    prompts,
    respond,
)
from official_models import (
    Counted,
    ExactPast,
    OursAsTheirs,
    OursBeforePosition,
    OursInBlocks,
    OursInKeptBlocks,
    OursInWholeBlocks,
    TheirClass,
    fast_dllm_model,
)

from harness.suites.registry import PAPER_SUITES
from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.registry import NANO

Response = tuple[torch.Tensor, int]  # tokens (gen_length,), calls of the model


SHIMS = {
    "llada": "the ids of EOS and EoT, which the function has in its text, are nano's",
    "fast-dllm-prefix": (
        "the model class of the repository, with what transformers 5 needs (see fast_dllm_model)"
    ),
    "fast-dllm-dual": (
        "the model class of the repository, with what transformers 5 needs (see fast_dllm_model)"
    ),
    "factor-repaired": (
        "the loop over the n commits one position too many where only the last one is refused:"
        " mended"
    ),
    "dream": "the model is ours, its logits moved to the position before, where Dream has them",
    "klass": "the mask's id 126336, which the function sets itself, is nano's",
    "wino": "the model is ours: the official class takes no position_ids",
    "freedave": "the model is ours, on a cache that is exact (see ExactPast)",
    "sdar": (
        "the model is ours in blocks; for greedy decoding with confidences argmax instead of"
        " multinomial"
    ),
    "llada2": "the model is ours in blocks; what stands behind the block that holds EOS is EOS",
    "llada2.1": "the model is ours in blocks; what stands behind the block that holds EOS is EOS",
    "fast-dllm-v2": "the model is ours in blocks, its logits shifted; no token ends a response",
    "s2d2": (
        "the model is ours in blocks; every uniform is 0.5, and what is drawn the likeliest token"
    ),
    "pc-sampler": (
        "the vocabulary of 126464 tokens is nano's; the table of frequencies is handed over"
    ),
}


def repository(checkouts: Path, source: str) -> Path:
    return checkouts / SOURCES[source].repository.split("/")[1]


def commit_of(folder: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def module_of(path: Path, name: str, changes: dict[str, str]) -> Any:
    """A file of official code as a module, with some of its text replaced."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        if old not in text:
            raise SystemExit(f"{path} is not as it was: it lacks {old!r}")
        text = text.replace(old, new)
    module = types.ModuleType(name)
    module.__dict__.update(__file__=str(path), __package__=name.rpartition(".")[0])
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


class Official:
    """The official decoders, each called as its repository calls it."""

    def __init__(self, checkouts: Path, backbone: Backbone) -> None:
        self._checkouts, self._backbone = checkouts, backbone
        self._loaded: dict[str, Any] = {}

    def respond(self, case: Case, suite: str, prompt_P: torch.Tensor) -> Response:
        """The official response."""
        if case.source not in self._loaded:
            self._loaded[case.source] = getattr(self, "_" + re.sub(r"\W", "_", case.source))()
        function, model = self._loaded[case.source]
        counted = Counted(model)
        length = lengths(case, suite)
        with torch.no_grad():
            out = function(counted, prompt_P[None], length, case.theirs)
        return out[0, len(prompt_P) :][: length["gen_length"]], counted.calls

    def _module(self, source: str, **changes: str) -> Any:
        path = repository(self._checkouts, source) / SOURCES[source].file
        return module_of(path, f"official_{source.replace('-', '_')}", changes)

    def _llada(self) -> Any:
        backbone, mask_id = self._backbone, self._backbone.mask_id
        generate = self._module(
            "llada", **{"126081": str(backbone.eos_id), "126348": str(backbone.eot_id)}
        ).generate

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            steps, everything = length["gen_length"], torch.ones_like(prompt)
            return generate(
                model, prompt, everything, steps=steps, mask_id=mask_id, **length, **theirs
            )

        return run, TheirClass(self._official_class())

    def _official_class(self) -> Any:
        """nano in the official class; that of Fast-dLLM's repository, which is LLaDA's with a
        cache."""
        if "class" not in self._loaded:
            self._loaded["class"] = fast_dllm_model(
                repository(self._checkouts, "fast-dllm"), self._backbone
            )
        return self._loaded["class"]

    def _fast_dllm_function(self, name: str) -> Any:
        folder = repository(self._checkouts, "fast-dllm")
        model = self._official_class()
        module = module_of(folder / SOURCES["fast-dllm"].file, "official_fast_dllm", {})
        return self._with_steps(getattr(module, name)), model

    def _with_steps(self, function: Any, tupled: bool = True) -> Any:
        """An official function, called with as many steps as tokens; tupled: the response is the
        first thing given."""
        mask_id = self._backbone.mask_id

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            out = function(
                model, prompt, steps=length["gen_length"], mask_id=mask_id, **length, **theirs
            )
            return out[0] if tupled else out

        return run

    def _fast_dllm(self) -> Any:
        return self._fast_dllm_function("generate")

    def _fast_dllm_prefix(self) -> Any:
        return self._fast_dllm_function("generate_with_prefix_cache")

    def _fast_dllm_dual(self) -> Any:
        return self._fast_dllm_function("generate_with_dual_cache")

    def _factor(self) -> Any:
        return self._factor_of(self._pc_module())

    def _factor_repaired(self) -> Any:
        end = (
            "                break\n\n        if top_i == 0 or top_i == len(threshs)-1:\n          "
            "  top_i+=1\n"
        )
        return self._factor_of(
            self._module(
                "pc-sampler",
                **{end: "                break\n        else:\n            top_i+=1\n"},
            )
        )

    def _factor_of(self, module: Any) -> Any:
        return self._with_steps(module.generate_with_fast_dllm), TheirClass(self._official_class())

    def _klass(self) -> Any:
        module = self._module(
            "klass", **{"    mask_id = 126336\n": f"    mask_id = {self._backbone.mask_id}\n"}
        )

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            steps = length["gen_length"]
            return module.stable_confident_decode(
                model, None, prompt, steps=steps, alg="klass", **length, **theirs
            )[0]

        return run, TheirClass(self._official_class())

    def _wino(self) -> Any:
        function, mask_id = self._module("wino").decoding_wino, self._backbone.mask_id

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            return function(model, prompt, mask_id=mask_id, **length, **theirs)[0]

        return run, OursAsTheirs(self._backbone)

    def _freedave(self) -> Any:
        folder = repository(self._checkouts, "freedave")
        sys.path.insert(0, str(folder))
        # a package that is wanted for a mark on one function
        decorators: Any = types.ModuleType("deprecated")
        decorators.deprecated = lambda *_: lambda function: function
        sys.modules.setdefault("deprecated", decorators)
        made = importlib.import_module("generation.core").DLMGeneration(device=torch.device("cpu"))
        backbone = self._backbone

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            told = dict.fromkeys(("max_gen_length", "decoding_steps"), length["gen_length"])
            told |= {
                "block_length": length["block_length"],
                "mask_token_id": backbone.mask_id,
                **theirs,
            }
            told |= dict.fromkeys(("eos_token_id", "pad_token_id"), backbone.eos_id)
            how = {"draft_mode": "batch_expanding", "use_cache": True}
            return made.block_decode_with_full_attention_FreeDave(
                model, prompt, **how, **told
            ).sequences

        return run, ExactPast(self._backbone)

    def _pc_module(self) -> Any:
        if "pc" not in self._loaded:
            self._loaded["pc"] = self._module(
                "pc-sampler", **{"(126464,)": f"({self._backbone.vocab_size},)"}
            )
        return self._loaded["pc"]

    def _pc_sampler(self) -> Any:
        from model_wrappers.decoders.pc_sampler import read_frequencies

        module = self._pc_module()
        module.BASE_LINE = read_frequencies(Path("nano"), self._backbone.vocab_size)
        return self._with_steps(module.generate_with_pc_sampler, False), TheirClass(
            self._official_class()
        )

    def _prophet(self) -> Any:
        function, mask_id = self._module("prophet").generate, self._backbone.mask_id

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            told = {
                **theirs,
                "answer_start_pos": prompt.shape[1] + theirs["answer_start"],
                "analyze_gap": True,
            }
            with contextlib.redirect_stdout(io.StringIO()):  # it prints every exit
                return function(
                    model, prompt, steps=length["gen_length"], mask_id=mask_id, **length, **told
                )[0]

        return run, TheirClass(self._official_class())

    def _dream(self) -> Any:
        function = self._module("dream").DreamGenerationMixin._sample
        mask_id = self._backbone.mask_id

        def unchanged(step: int | None, x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            return x

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            tokens = length["gen_length"]
            settings = {
                "max_length": prompt.shape[1] + tokens,
                "mask_token_id": mask_id,
                "steps": tokens,
                "eps": 1e-3,
                "alg_temp": None,
                "temperature": 0.0,
                "top_p": None,
                "top_k": None,
                "output_history": False,
                "return_dict": False,
                **theirs,
            }
            config = types.SimpleNamespace(**settings)
            return function(model, prompt, None, config, unchanged, lambda step, x, logits: logits)

        return run, OursBeforePosition(self._backbone)

    def _sdar(self) -> Any:
        drawn = {"torch.multinomial(probs, num_samples=1)": "probs.argmax(-1, keepdim=True)"}
        return self._in_blocks("sdar", drawn, lambda ids: {"prompt": {"input_ids": ids}})

    def _llada2(self) -> Any:
        return self._in_whole_blocks("llada2", "LLaDA2Sampler")

    def _llada2_1(self) -> Any:
        return self._in_whole_blocks("llada2.1", "LLaDA21Sampler")

    def _in_whole_blocks(self, source: str, name: str) -> Any:
        imported = (
            "from dllm.core.samplers.base import BaseSampler, BaseSamplerConfig,"
            " BaseSamplerOutput\n"
        )
        bases = (
            "BaseSampler = BaseSamplerOutput = object\nclass BaseSamplerConfig: return_dict ="
            " False\n"
        )
        module = self._module(source, **{imported: bases})
        backbone, sampler = self._backbone, getattr(module, name)()
        sampler.tokenizer = types.SimpleNamespace(
            mask_token_id=backbone.mask_id, eos_token_id=backbone.eos_id
        )

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            sampler.model, start, block = model, prompt.shape[1], length["block_length"]
            told = {
                "max_new_tokens": length["gen_length"],
                "block_size": block,
                "return_dict": False,
                **theirs,
            }
            out = sampler.sample([prompt[0]], **told)
            ends = start + (out[0, start:] == backbone.eos_id).nonzero()[:, 0]
            if len(ends):
                out[0, (int(ends[0]) // block + 1) * block :] = backbone.eos_id
            return out

        return run, OursInWholeBlocks(backbone)

    def _fast_dllm_v2(self) -> Any:
        function, mask_id = self._module("fast-dllm-v2").generate, self._backbone.mask_id

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            block, tokens = length["block_length"], length["gen_length"]
            told = {"mask_id": mask_id, "stop_token": NEVER, "block_size": block, **theirs}
            return function(model, prompt, max_new_tokens=tokens + block, **told)

        return run, OursInKeptBlocks(self._backbone)

    def _s2d2(self) -> Any:
        uniform = "torch.rand((ratios.shape[0],), device=ratios.device, dtype=ratios.dtype)"
        drawn = "torch.multinomial(delta, num_samples=1)"
        changes = {uniform: "torch.full_like(ratios, 0.5)", drawn: "delta.argmax(-1, keepdim=True)"}
        return self._in_blocks(
            "s2d2", changes, lambda ids: {"input_ids": ids, "trim_stop_tokens": False}
        )

    def _in_blocks(
        self, source: str, changes: dict[str, str], given: Callable[[torch.Tensor], dict[str, Any]]
    ) -> Any:
        function = self._module(source, **changes).block_diffusion_generate
        eos_id, mask_id = self._backbone.eos_id, self._backbone.mask_id

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            model.eval = model.model.eval
            told = {
                **length,
                "denoising_steps": length["block_length"],
                "stopping_criteria_idx": [eos_id],
                **theirs,
            }
            out = function(model, mask_id=mask_id, **given(prompt), **told)
            # behind the block that holds EOS nothing is decoded
            return out.masked_fill(out == mask_id, eos_id)

        return run, OursInBlocks(self._backbone)

    def _eb_sampler(self) -> Any:
        module, mask_id = self._pc_module(), self._backbone.mask_id

        def run(
            model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]
        ) -> torch.Tensor:
            told = {"gen_length": length["gen_length"], "mask_id": mask_id, **theirs}
            return module.generate_with_eb_sampler(model, prompt, **told)

        return run, TheirClass(self._official_class())


def compare(official: Official, backbone: Backbone, case: Case, count: int) -> dict[str, Any]:
    """A case on the first problems of every suite: official tokens by hash, calls and seconds of
    both."""
    tokens: dict[str, list[str]] = {suite: [] for suite in PAPER_SUITES}
    calls: dict[str, list[int]] = {suite: [] for suite in PAPER_SUITES}
    unlike = []
    seconds = {"official": 0.0, "ours": 0.0}
    forwards = 0
    # loads the code and warms up
    official.respond(case, PAPER_SUITES[0], prompts(backbone, PAPER_SUITES[0])[0])
    for suite in PAPER_SUITES:
        for item, prompt_P in enumerate(prompts(backbone, suite)[:count]):
            began = time.perf_counter()
            theirs, called = official.respond(case, suite, prompt_P)
            seconds["official"] += time.perf_counter() - began
            ours = respond(backbone, case, suite, prompt_P)
            seconds["ours"] += ours.trace.seconds
            forwards += ours.trace.forwards
            tokens[suite].append(hash_of(theirs))
            calls[suite].append(called)
            if hash_of(theirs) != hash_of(ours.tokens):
                unlike.append(f"{suite} {item}")
    equal = count * len(PAPER_SUITES) - len(unlike)
    ratio = seconds["official"] / seconds["ours"]
    print(f"{case.name}: {equal} of {count * len(PAPER_SUITES)} equal, {ratio:.2f} times")
    return {
        "responses": count * len(PAPER_SUITES),
        "equal": equal,
        "unlike": unlike,
        "official_calls": sum(map(sum, calls.values())),
        "our_calls": forwards,
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "tokens": tokens,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", help="comma-separated sources (default: all)")
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--out", type=Path, default=GOLDENS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("nano")
    official = Official(asked.checkouts, backbone)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.only.split(",") if asked.only else SOURCES:
        source = SOURCES[name]
        golden = {
            "repository": source.repository,
            "commit": commit_of(repository(asked.checkouts, name)),
            "file": source.file,
            "function": source.function,
            "shims": SHIMS.get(name, ""),
            "model": f"nano ({NANO.name}, float32, CPU)",
            "weights_sha256": nano_sha256(),
            "torch": torch.__version__,
            "cases": {
                case.name: compare(official, backbone, case, asked.problems)
                for case in CASES
                if case.source == name
            },
        }
        (asked.out / f"{name}.json").write_text(
            json.dumps(golden, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
