"""Record what an official implementation computes on a tiny random checkpoint:
goldens/logits/NAME.safetensors.

    PYTHONPATH=tests/helpers python tests/official/make_logits.py NAME --code FOLDER \\
        --module M --class C --repository OWNER/NAME --commit HASH

It runs the code that it is given; run it where that may be done. `--code` is the folder that has
the modeling file as a module or as part of a package (`--module package.models.modeling_x`).
`--shim` notes a change to the code, and may be given several times. Needs torch, safetensors and a
transformers that the code was written for.
"""

import argparse
import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from official_weights import kernels, random_ids, random_weights
from safetensors import safe_open
from safetensors.torch import save_file

LOGITS = Path(__file__).parent / "goldens" / "logits"
SEED = 20
LENGTH = 24


def config_of(name: str, file: Path | None) -> dict[str, Any]:
    """The tiny config.json to record: of a file, or else of the record that is there already."""
    if file is not None:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return config
    with safe_open(LOGITS / f"{name}.safetensors", "pt") as record:
        return dict(json.loads(record.metadata()["config"]))


def official_model(
    config: dict[str, Any], module: str, name: str, attention: str | None
) -> torch.nn.Module:
    """The official class on a config, with random weights."""
    kind: Any = getattr(importlib.import_module(module), name)
    settings = kind.config_class(
        **{key: value for key, value in config.items() if key != "model_type"}
    )
    if attention is not None:
        settings._attn_implementation = attention
    model: torch.nn.Module = kind(settings)
    shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
    model.load_state_dict(random_weights(shapes, SEED))
    return model.eval()


def in_blocks(length: int) -> torch.Tensor:
    """What each token sees, bool (1, 1, L, L): all earlier blocks and its own."""
    number_L = torch.arange(LENGTH) // length
    return (number_L <= number_L[:, None])[None, None]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("name")
    add(
        "--config",
        type=Path,
        help="the config.json of a new record (default: of the one that is there)",
    )
    add("--code", type=Path, required=True, help="folder of the official code")
    add("--module", required=True)
    add("--class", dest="kind", required=True)
    add("--repository", required=True)
    add("--commit", required=True)
    add("--attention", help="the official code's attention, where it has several")
    add("--shim", action="append", default=[], help="what was changed in the code to run it")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(asked.code.resolve()))
    config = config_of(asked.name, asked.config)
    model: Any = official_model(config, asked.module, asked.kind, asked.attention)
    ids_BL = random_ids((2, LENGTH), config["vocab_size"], SEED)
    tensors = {"ids": ids_BL}
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            # `model.to` would cast what from_pretrained leaves as fp32: the angles
            for weight in model.parameters():
                weight.data = weight.data.to(dtype)
            length = config.get("block_size", config.get("bd_size"))
            seen = {} if length is None else {"attention_mask": in_blocks(length)}
            tensors[str(dtype).removeprefix("torch.")] = model(ids_BL, **seen).logits.contiguous()
    about = {
        "config": json.dumps(config),
        "shapes": json.dumps({key: list(value.shape) for key, value in model.state_dict().items()}),
        "seed": str(SEED),
        "repository": asked.repository,
        "commit": asked.commit,
        "module": f"{asked.module}:{asked.kind}"
        + (f", attention {asked.attention}" if asked.attention else ""),
        "shims": json.dumps(asked.shim),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "kernels": kernels(),
        "sha256": hashlib.sha256(tensors["float32"].numpy().tobytes()).hexdigest(),
    }
    save_file(tensors, LOGITS / f"{asked.name}.safetensors", metadata=about)
    print(
        json.dumps(
            {key: value for key, value in about.items() if key not in ("config", "shapes")},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
