"""Run Flash-dLLM's official decoding on nano's weights and keep its tokens: goldens/flash.json.

    TRITON_INTERPRET=1 PYTHONPATH=tests/helpers:tests/official python tests/official/make_flash.py \
        CHECKOUTS [--problems 8] [--interpreted 1] [--out FILE]

CHECKOUTS has a folder Flash-dLLM with FILES of VILA-Lab/Flash-dLLM at COMMIT, and a git clone of
NVlabs/Fast-dLLM, named Fast-dLLM, whose configuration class the official model class imports. The
official code is run, not kept. It needs triton, which the project does not, and no GPU. SHIMS says
what was changed.

Everything is decoded with KERNELS, functions in torch. The first problems of the first suite
(--interpreted) are decoded with the official kernels too, in Triton's interpreter, which takes a
minute and more a response: every call is then made to both, and must leave the same numbers.

Responses are left out (left_out) where the official code took a slice from before the sequence:
prompt and decoded tokens were fewer than it keeps for a step, none of them came along, and nothing
was verified.

Shapes: P prompt, L response, B blocks of rows, M rows of a call, N keys, H heads, D values a head.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from make_tokens import module_of
from official_cases import nano_sha256, prompts
from official_models import fast_dllm_model

from harness.records.files import file_hash
from harness.suites.registry import PAPER_SUITES, suite_named
from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.registry import NANO

REPOSITORY = "VILA-Lab/Flash-dLLM"
COMMIT = "7437a550fd3d1a0752edcbf58bd015ad69083068"
FUNCTION = "generate_with_Flash_dLLM"
FOLDER = REPOSITORY.split("/")[1]
FILES = ("llada/generate.py", "llada/flash_cache_triton.py", "llada/model/modeling_llada.py")
CONFIGURATION = "Fast-dLLM/llada/model/configuration_llada.py"
GOLDEN = Path(__file__).parent / "goldens" / "flash.json"
THRESHOLD = 0.9
NEAR = 1e-5
NUMBERS = re.compile(r"\[[\d,\s]+\]")  # a list of them, which the golden file has on one line
SHIMS = [
    "The five Triton kernels are functions in torch that compute the same from the same arguments."
    " Where the kernels themselves ran too, in Triton's interpreter (`interpreted`), every call"
    " left the same numbers in every argument, to 1e-5 (absolute or relative).",
    "The configuration class is that of Fast-dLLM, from whose model class the official one is"
    " derived; Flash-dLLM's own was not among the files that could be read.",
    "The official model class has nano's weights, with what transformers 5 needs (see"
    " fast_dllm_model).",
    "The tokenizer is a stand-in that keeps the ids it is given, and what is printed is dropped.",
]


@dataclass(frozen=True)
class Case:
    """Arguments of the official function.

    gen_length: None is the suite's own.
    """

    verify: bool
    track_num: int
    mask_num: int
    gamma: float = 0.8
    block_length: int = 16
    gen_length: int | None = None

    @property
    def name(self) -> str:
        """What the golden file calls it."""
        return " ".join(f"{key}={value}" for key, value in asdict(self).items())


CASES = (
    Case(True, -1, 4),
    Case(True, 4, 4),
    Case(True, 1, 0, gamma=0.5),
    Case(True, 4, 4, block_length=8),
    Case(False, 4, 4),
    Case(False, -1, 4),
    # nothing ends within so few tokens, and positions behind the response are decoded
    Case(True, 4, 4, gen_length=20),
    Case(False, 4, 4, gen_length=20),
)


def rows_of(table_B4: torch.Tensor) -> slice:
    """The rows that blocks are for: one sequence's, which lie next to each other."""
    return slice(int(table_B4[0, 2]), int(table_B4[-1, 3]))


def in_heads(x: torch.Tensor, sizes: dict[str, int]) -> torch.Tensor:
    return x.unflatten(-1, (-1, sizes["HEAD_DIM"]))


def project(
    x: torch.Tensor,
    position_M: torch.Tensor,
    weights: Sequence[torch.Tensor],
    angles: Sequence[torch.Tensor],
    sizes: dict[str, int],
) -> list[torch.Tensor]:
    """Queries and keys, turned to their positions, and values."""
    sin_M1D, cos_M1D = (each[position_M][:, None] for each in angles)
    made = [x @ weight.T for weight in weights]
    for index in (0, 1):
        each_MHD = in_heads(made[index], sizes)
        first, second = each_MHD.chunk(2, -1)
        turned_MHD = torch.cat([-second, first], -1)
        made[index] = (each_MHD * cos_M1D + turned_MHD * sin_M1D).flatten(1)
    return made


def scores(q: torch.Tensor, k: torch.Tensor, sizes: dict[str, int]) -> torch.Tensor:
    return torch.einsum("mhd,nhd->hmn", in_heads(q, sizes), in_heads(k, sizes))


def mixed(scores_HMN: torch.Tensor, v: torch.Tensor, sizes: dict[str, int]) -> torch.Tensor:
    return torch.einsum("hmn,nhd->mhd", scores_HMN.softmax(-1), in_heads(v, sizes)).flatten(1)


def project_into_caches(*given: Any, **sizes: int) -> None:
    """Rows' keys and values go into the caches, where their positions are."""
    x, q, k_cache, v_cache, position, table_B4, *rest = given
    rows = rows_of(table_B4)
    position_M = position[rows]
    q_M, k_M, v_M = project(x[rows], position_M, rest[:3], rest[3:], sizes)
    q[rows] = q_M
    k_cache[position_M] = k_M
    v_cache[position_M] = v_M


def project_beside_caches(*given: Any, **sizes: int) -> None:
    """Rows' queries, keys and values, which are verified."""
    x, *outs, position, w_q, w_k, w_v, sin, cos, table_B4 = given
    rows = rows_of(table_B4)
    made = project(x[rows], position[rows], (w_q, w_k, w_v), (sin, cos), sizes)
    for out, each_M in zip(outs, made, strict=True):
        out[rows] = each_M


def attend_to_cache(*given: Any, **sizes: int) -> None:
    """Rows attend to all of the sequence."""
    q, out, k_cache, v_cache, table_B4, scale = given
    rows = rows_of(table_B4)
    end = int(table_B4[0, 1])
    scores_HMN = scores(q[rows], k_cache[:end], sizes)
    out[rows] = mixed(scores_HMN * scale, v_cache[:end], sizes)


def attend_and_track(*given: Any, **sizes: int) -> None:
    """The same, and the scores are kept as they are."""
    q, out, k_cache, v_cache, kept_MHBN, _, _, _, table_B4, scale = given
    attend_to_cache(q, out, k_cache, v_cache, table_B4, scale, **sizes)
    end = int(table_B4[0, 1])
    scores_HMN = scores(q[rows_of(table_B4)], k_cache[:end], sizes)
    kept_MHBN[: scores_HMN.shape[1], :, 0, :end] = scores_HMN.transpose(0, 1)


def attend_beside_cache(*given: Any, **sizes: int) -> None:
    """Rows attend to some of the cache, and to each other as a mask has it."""
    q, k, v, out, k_cache, v_cache, key_position, seen, table_B4, scale = given
    rows = rows_of(table_B4)
    position_N = key_position[int(table_B4[0, 0]) : int(table_B4[0, 1])]
    scores_HMN = scores(q[rows], torch.cat([k_cache[position_N], k[rows]]), sizes)
    count = scores_HMN.shape[1]
    scores_HMN[:, :, len(position_N) :].masked_fill_(~seen[:count, :count], -torch.inf)
    out[rows] = mixed(scores_HMN * scale, torch.cat([v_cache[position_N], v[rows]]), sizes)


KERNELS = {
    "_flash_qkv_proj_cache_fwd": project_into_caches,
    "_flash_masked_attention_fwd": attend_and_track,
    "_flash_tracked_attention_fwd": attend_to_cache,
    "_flash_verify_qkv_proj_fwd": project_beside_caches,
    "_flash_verify_attention_fwd": attend_beside_cache,
}


class InTorch:
    """A function, launched as a kernel is; beside the kernel where that one is given."""

    def __init__(self, function: Callable[..., None], kernel: Any = None) -> None:
        self._function = function
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
        if self._kernel is None:
            return self._function

        def launch(*given: Any, **sizes: int) -> None:
            copies = [each.clone() if torch.is_tensor(each) else each for each in given]
            self._function(*copies, **sizes)
            self._kernel[grid](*given, **sizes)
            torch.testing.assert_close(
                copies, list(given), rtol=NEAR, atol=NEAR, equal_nan=True, check_dtype=False
            )

        return launch


class Ids:
    """A tokenizer that keeps the first ids it is given, and the tensor that they are a part of."""

    def __init__(self) -> None:
        self.ids: Any = None

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> str:
        if self.ids is None:
            self.ids = ids
        return ""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": []}


class Watched:
    """The official model, and how many calls to verify lacked the rows of decoded tokens: the slice
    of their positions began before the sequence and was empty."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.lacking = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids_1M: torch.Tensor, lengths: list[Any], **given: Any) -> Any:
        *_, block, _, _, verifies = lengths
        self.lacking += verifies and ids_1M.shape[1] != 2 * block
        return self._model(ids_1M, lengths=lengths, **given)


class Official:
    """The official decoding of nano."""

    def __init__(self, checkouts: Path, backbone: Backbone) -> None:
        module_of(checkouts / CONFIGURATION, "model.configuration_llada", {})
        self._backbone = backbone
        self._model = fast_dllm_model(checkouts / FOLDER, backbone)
        self._function = getattr(importlib.import_module("generate"), FUNCTION)
        self._module = importlib.import_module("flash_cache_triton")
        self._kernels = {name: getattr(self._module, name) for name in KERNELS}

    def launch(self, kernels: bool) -> None:
        """Whether the official kernels run, beside ours, or ours alone."""
        for name, function in KERNELS.items():
            beside = self._kernels[name] if kernels else None
            setattr(self._module, name, InTorch(function, beside))

    def respond(self, case: Case, suite: str, prompt_P: torch.Tensor) -> dict[str, Any]:
        """The tokens, EOS from the first on, in how many steps, and how many lacked rows."""
        backbone = self._backbone
        length = case.gen_length or suite_named(suite).generated.length
        model = Watched(self._model)
        ids = Ids()
        steps = [0]
        start = len(prompt_P)
        with contextlib.redirect_stdout(io.StringIO()):
            self._function(
                model,
                [prompt_P],
                [start],
                1,
                [""],
                steps,
                threshold=THRESHOLD,
                mask_id=backbone.mask_id,
                eos_id=backbone.eos_id,
                tokenizer=ids,
                stop_tokens=[],
                **asdict(case) | {"gen_length": length},
            )
        # what it is given is a part of all tokens, the prompt's and those behind the response too
        tokens_L = ids.ids._base[start : start + length].clone()
        tokens_L[(tokens_L == backbone.eos_id).cumsum(0) > 0] = backbone.eos_id
        return {"tokens": tokens_L.tolist(), "steps": steps[0], "lacking": model.lacking}


def interpreted(official: Official, asked: argparse.Namespace, backbone: Backbone) -> list[str]:
    """The responses that came out the same with the official kernels."""
    suite = PAPER_SUITES[0]
    same = []
    for case in CASES:
        for problem, prompt_P in enumerate(prompts(backbone, suite)[: asked.interpreted]):
            official.launch(kernels=True)
            theirs = official.respond(case, suite, prompt_P)
            official.launch(kernels=False)
            if theirs != official.respond(case, suite, prompt_P):
                raise SystemExit(f"other tokens without kernels: {case.name}, {suite} {problem}")
            same.append(f"{case.name}: {suite} {problem}")
            print(same[-1], flush=True)
    return same


def responses(official: Official, case: Case, count: int, backbone: Backbone) -> dict[str, Any]:
    """A case on the first problems of every suite."""
    made: dict[str, Any] = {"settings": asdict(case), "responses": [], "left_out": []}
    for suite in PAPER_SUITES:
        for problem, prompt_P in enumerate(prompts(backbone, suite)[:count]):
            response = official.respond(case, suite, prompt_P)
            kept = made["left_out" if response.pop("lacking") else "responses"]
            kept.append({"suite": suite, "problem": problem, **response})
    return made


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--problems", type=int, default=8, help="of each suite")
    parser.add_argument("--interpreted", type=int, default=1, help="with the official kernels too")
    parser.add_argument("--out", type=Path, default=GOLDEN)
    asked = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise SystemExit("set TRITON_INTERPRET=1: kernels run in Triton's interpreter")
    torch.set_num_threads(1)
    backbone = load_backbone("nano")
    official = Official(asked.checkouts, backbone)
    same = interpreted(official, asked, backbone)
    official.launch(kernels=False)
    golden = {
        "repository": REPOSITORY,
        "commit": COMMIT,
        "file": FILES[0],
        "function": FUNCTION,
        "files_sha256": {file: file_hash(asked.checkouts / FOLDER / file) for file in FILES},
        "model": f"nano ({NANO.name}, float32, CPU)",
        "weights_sha256": nano_sha256(),
        "torch": torch.__version__,
        "triton": importlib.import_module("triton").__version__,
        "shims": SHIMS,
        "interpreted": same,
        "threshold": THRESHOLD,
        "cases": {case.name: responses(official, case, asked.problems, backbone) for case in CASES},
    }
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()), json.dumps(golden, indent=1))
    asked.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
