"""Run official decoders beside ours on nano's weights and keep what they wrote: the goldens of
`test_official_tokens.py`.

    PYTHONPATH=tests/helpers python tests/official/make_tokens.py CHECKOUTS [--only klass,wino] [--problems 40]

CHECKOUTS is a folder with a git clone of every repository in `official_cases.SOURCES`, named after its last part
(LLaDA, Fast-dLLM, KLASS, ..). Their code is run, not kept. Every response is decoded by theirs and by ours in turn, in
this process and with the same weights, nano's: theirs in the LLaDA class of Fast-dLLM's repository, which is the
official one with a cache, or in ours; SHIMS says what was changed for that. Writes goldens/tokens/NAME.json:
repository, commit, file, function, shims and, for every case, hashes of the official tokens, how many are ours too,
calls and seconds of both.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
from official_cases import CASES, GOLDENS, PROBLEMS, SOURCES, Case, hash_of, lengths, prompts, respond

from harness.suites.registry import PAPER_SUITES
from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.registry import NANO

Response = tuple[torch.Tensor, int]  # tokens (gen_length,), calls of the model


class Counted:
    """A model that counts its calls."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls, self.device, self.config = model, 0, torch.device("cpu"), model.config

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.model(*args, **kwargs)


class OursAsTheirs:
    """Our LLaDA under the arguments that official decoders call theirs with."""

    def __init__(self, backbone: Backbone) -> None:
        self._model, self.config = backbone.model, backbone.model.config

    def __call__(self, input_ids: torch.Tensor, attention_mask: Any = None, position_ids: Any = None, **_: Any) -> Any:
        if position_ids is not None and position_ids.dim() == 1:
            position_ids = position_ids[None]
        if attention_mask is not None and attention_mask.dim() == 2:  # all ones: nothing is padded
            attention_mask = None
        return self._model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        )


class TheirClass:
    """The official LLaDA under the arguments of every official decoder."""

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, model.config

    def __call__(self, input_ids: torch.Tensor, attention_mask: Any = None, **_: Any) -> Any:
        return self._model(input_ids)  # attention masks are all ones: nothing is padded


class ExactPast:
    """Our LLaDA as FreeDave calls its model, with the prefix's tokens in the place of its keys and values.

    FreeDave runs on a prefix cache alone, whose keys and values are not those of the sequence any more. With the tokens
    it is the algorithm of the paper, whose tokens are LLaDA's.
    """

    def __init__(self, backbone: Backbone) -> None:
        self._model, self.config = backbone.model, backbone.model.config

    def __call__(self, input_ids: torch.Tensor, position_ids: torch.Tensor, past_key_values: Any, **_: Any) -> Any:
        first = int(position_ids.min())
        if first == 0:
            past_key_values.ids = input_ids
            return self._model(input_ids=input_ids, use_cache=False)
        prefix = past_key_values.ids[:, :first].expand(len(input_ids), -1)
        output = self._model(input_ids=torch.cat([prefix, input_ids], 1), use_cache=False)
        return types.SimpleNamespace(logits=output.logits[:, first:])


SHIMS = {
    "llada": "the ids of EOS and EoT, which the function has in its text, are nano's",
    "fast-dllm-prefix": "the model class of the repository, with what transformers 5 needs (see fast_dllm_model)",
    "fast-dllm-dual": "the model class of the repository, with what transformers 5 needs (see fast_dllm_model)",
    "factor-repaired": "the loop over the n commits one position too many where only the last one is refused: mended",
    "klass": "the mask's id 126336, which the function sets itself, is nano's",
    "wino": "the model is ours: the official class takes no position_ids",
    "freedave": "the model is ours, on a cache that is exact (see ExactPast)",
    "pc-sampler": "the vocabulary of 126464 tokens is nano's; the table of frequencies is handed over",
}


def repository(checkouts: Path, source: str) -> Path:
    return checkouts / SOURCES[source].repository.split("/")[1]


def commit_of(folder: Path) -> str:
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
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


def fast_dllm_model(folder: Path, backbone: Backbone) -> Any:
    """nano's weights in the LLaDA class of Fast-dLLM, whose attention takes cached keys and values."""
    sys.path.insert(0, str(folder / "llada"))
    modeling = importlib.import_module("model.modeling_llada")
    configuration = importlib.import_module("model.configuration_llada")
    ours = backbone.model.config
    config = configuration.LLaDAConfig(
        d_model=ours.hidden_size,
        n_layers=ours.num_hidden_layers,
        n_heads=ours.num_attention_heads,
        n_kv_heads=ours.num_key_value_heads,
        mlp_hidden_size=ours.intermediate_size,
        max_sequence_length=ours.max_position_embeddings,
        vocab_size=ours.vocab_size,
        embedding_size=ours.vocab_size,
        rms_norm_eps=ours.rms_norm_eps,
        layer_norm_eps=ours.rms_norm_eps,
        rope_theta=ours.rope_parameters["rope_theta"],
        weight_tying=ours.tie_word_embeddings,
        mask_token_id=ours.mask_token_id,
        eos_token_id=ours.eos_token_id,
        pad_token_id=ours.eos_token_id,
        block_type="llama",
        activation_type="silu",
        layer_norm_type="rms",
        rope=True,
        rope_full_precision=True,
        alibi=False,
        include_bias=False,
        include_qkv_bias=False,
        flash_attention=False,
        attention_dropout=0.0,
        residual_dropout=0.0,
        embedding_dropout=0.0,
        init_device="cpu",
    )
    config.use_cache = False  # transformers 5 does not set it any more
    # transformers 5 asks every class which weights are tied, by another name than this one's time knew.
    modeling.LLaDAModelLM.all_tied_weights_keys = {}
    model = modeling.LLaDAModelLM(config, init_params=False)
    names = {
        "model.embed_tokens.": "model.transformer.wte.",
        "model.norm.": "model.transformer.ln_f.",
        "lm_head.": "model.transformer.ff_out.",
        "model.layers.": "model.transformer.blocks.",
        ".input_layernorm.": ".attn_norm.",
        ".post_attention_layernorm.": ".ff_norm.",
        ".self_attn.q_proj.": ".q_proj.",
        ".self_attn.k_proj.": ".k_proj.",
        ".self_attn.v_proj.": ".v_proj.",
        ".self_attn.o_proj.": ".attn_out.",
        ".mlp.gate_proj.": ".ff_proj.",
        ".mlp.up_proj.": ".up_proj.",
        ".mlp.down_proj.": ".ff_out.",
    }
    weights = {}
    for name, weight in backbone.model.state_dict().items():
        for new, old in names.items():
            name = name.replace(new, old)
        weights[name] = weight
    wanted = set(model.state_dict())
    model.load_state_dict({name: weight for name, weight in weights.items() if name in wanted}, strict=True)
    return model.eval()


class Official:
    """The official decoders, each called as its repository calls it."""

    def __init__(self, checkouts: Path, backbone: Backbone) -> None:
        self._checkouts, self._backbone = checkouts, backbone
        self._loaded: dict[str, Any] = {}

    def respond(self, case: Case, suite: str, prompt_P: torch.Tensor) -> Response:
        """The official response."""
        if case.source not in self._loaded:
            self._loaded[case.source] = getattr(self, "_" + case.source.replace("-", "_"))()
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
        generate = self._module("llada", **{"126081": str(backbone.eos_id), "126348": str(backbone.eot_id)}).generate

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            steps, everything = length["gen_length"], torch.ones_like(prompt)
            return generate(model, prompt, everything, steps=steps, mask_id=mask_id, **length, **theirs)

        return run, TheirClass(self._official_class())

    def _official_class(self) -> Any:
        """nano in the official class; that of Fast-dLLM's repository, which is LLaDA's with a cache."""
        if "class" not in self._loaded:
            self._loaded["class"] = fast_dllm_model(repository(self._checkouts, "fast-dllm"), self._backbone)
        return self._loaded["class"]

    def _fast_dllm_function(self, name: str) -> Any:
        folder = repository(self._checkouts, "fast-dllm")
        model = self._official_class()
        module = module_of(folder / SOURCES["fast-dllm"].file, "official_fast_dllm", {})
        mask_id = self._backbone.mask_id

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            function = getattr(module, name)
            return function(model, prompt, steps=length["gen_length"], mask_id=mask_id, **length, **theirs)[0]

        return run, model

    def _fast_dllm(self) -> Any:
        return self._fast_dllm_function("generate")

    def _fast_dllm_prefix(self) -> Any:
        return self._fast_dllm_function("generate_with_prefix_cache")

    def _fast_dllm_dual(self) -> Any:
        return self._fast_dllm_function("generate_with_dual_cache")

    def _factor(self) -> Any:
        return self._factor_of(self._pc_module())

    def _factor_repaired(self) -> Any:
        end = "                break\n\n        if top_i == 0 or top_i == len(threshs)-1:\n            top_i+=1\n"
        return self._factor_of(
            self._module("pc-sampler", **{end: "                break\n        else:\n            top_i+=1\n"})
        )

    def _factor_of(self, module: Any) -> Any:
        function, mask_id = module.generate_with_fast_dllm, self._backbone.mask_id

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            return function(model, prompt, steps=length["gen_length"], mask_id=mask_id, **length, **theirs)[0]

        return run, TheirClass(self._official_class())

    def _klass(self) -> Any:
        module = self._module("klass", **{"    mask_id = 126336\n": f"    mask_id = {self._backbone.mask_id}\n"})

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            steps = length["gen_length"]
            return module.stable_confident_decode(model, None, prompt, steps=steps, alg="klass", **length, **theirs)[0]

        return run, TheirClass(self._official_class())

    def _wino(self) -> Any:
        function, mask_id = self._module("wino").decoding_wino, self._backbone.mask_id

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            return function(model, prompt, mask_id=mask_id, **length, **theirs)[0]

        return run, OursAsTheirs(self._backbone)

    def _freedave(self) -> Any:
        folder = repository(self._checkouts, "freedave")
        sys.path.insert(0, str(folder))
        decorators: Any = types.ModuleType("deprecated")  # a package that is wanted for a mark on one function
        decorators.deprecated = lambda *_: lambda function: function
        sys.modules.setdefault("deprecated", decorators)
        made = importlib.import_module("generation.core").DLMGeneration(device=torch.device("cpu"))
        backbone = self._backbone

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            return made.block_decode_with_full_attention_FreeDave(
                model,
                prompt,
                block_length=length["block_length"],
                max_gen_length=length["gen_length"],
                decoding_steps=length["gen_length"],
                draft_mode="batch_expanding",
                use_cache=True,
                mask_token_id=backbone.mask_id,
                eos_token_id=backbone.eos_id,
                pad_token_id=backbone.eos_id,
                **theirs,
            ).sequences

        return run, ExactPast(self._backbone)

    def _pc_module(self) -> Any:
        if "pc" not in self._loaded:
            self._loaded["pc"] = self._module("pc-sampler", **{"(126464,)": f"({self._backbone.vocab_size},)"})
        return self._loaded["pc"]

    def _pc_sampler(self) -> Any:
        from model_wrappers.decoders.pc_sampler import read_frequencies

        module, mask_id = self._pc_module(), self._backbone.mask_id
        module.BASE_LINE = read_frequencies(Path("nano"), self._backbone.vocab_size)

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            steps = length["gen_length"]
            return module.generate_with_pc_sampler(model, prompt, steps=steps, mask_id=mask_id, **length, **theirs)

        return run, TheirClass(self._official_class())

    def _prophet(self) -> Any:
        function, mask_id = self._module("prophet").generate, self._backbone.mask_id

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            told = {**theirs, "answer_start_pos": prompt.shape[1] + theirs["answer_start"], "analyze_gap": True}
            with contextlib.redirect_stdout(io.StringIO()):  # it prints every exit
                return function(model, prompt, steps=length["gen_length"], mask_id=mask_id, **length, **told)[0]

        return run, TheirClass(self._official_class())

    def _eb_sampler(self) -> Any:
        module, mask_id = self._pc_module(), self._backbone.mask_id

        def run(model: Any, prompt: torch.Tensor, length: dict[str, int], theirs: dict[str, Any]) -> torch.Tensor:
            return module.generate_with_eb_sampler(
                model, prompt, gen_length=length["gen_length"], mask_id=mask_id, **theirs
            )

        return run, TheirClass(self._official_class())


def compare(official: Official, backbone: Backbone, case: Case, count: int) -> dict[str, Any]:
    """A case on the first problems of every suite: official tokens by hash, calls and seconds of both."""
    tokens: dict[str, list[str]] = {suite: [] for suite in PAPER_SUITES}
    calls: dict[str, list[int]] = {suite: [] for suite in PAPER_SUITES}
    unlike = []
    seconds = {"official": 0.0, "ours": 0.0}
    forwards = 0
    official.respond(case, PAPER_SUITES[0], prompts(backbone, PAPER_SUITES[0])[0])  # loads the code and warms up
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
    print(
        f"{case.name}: {equal} of {count * len(PAPER_SUITES)} equal, {seconds['official'] / seconds['ours']:.2f} times"
    )
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            "torch": torch.__version__,
            "cases": {
                case.name: compare(official, backbone, case, asked.problems) for case in CASES if case.source == name
            },
        }
        (asked.out / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
