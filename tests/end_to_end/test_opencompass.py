"""OpenCompass's own command and configurations on nano, from a folder of one's own: the tokens are
those of a run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from generated import write_suites
from made_up import write_choices

from harness.records.store import read_run
from harness.run import main

pytestmark = pytest.mark.slow

CONFIG = """
from mmengine.config import read_base

with read_base():
    from opencompass.configs.datasets.gsm8k.gsm8k_gen_1d7fe4 import gsm8k_datasets
    from opencompass.configs.datasets.math.math_0shot_gen_11c4b5 import math_datasets
    from opencompass.configs.datasets.mbpp.mbpp_gen_830460 import mbpp_datasets

datasets = [*gsm8k_datasets, *math_datasets, *mbpp_datasets]
for dataset in datasets:
    dataset["infer_cfg"]["inferencer"]["max_out_len"] = 128
common = dict(
    type="model_wrappers.opencompass_model.DiffusionModel", max_out_len=128, stop_at_eos=True, batch_size=2,
    run_cfg=dict(num_gpus=0),
)
models = [
    dict(**common, abbr="llada", path="nano", method="llada", block_length=32),
    dict(**common, abbr="two-stream", path="nano-fef", method="fef", verify="two-stream", steps=1),
]
"""
CHOICES = {"Which is an animal?": "owl stone cloud spoon", "Which can swim?": "duck tree sand jar"}
METHODS = {
    "llada": "llada({no_eos}block_length=32,stop_at_eos=true)",
    "two-stream": "fef(verify=two-stream,steps=1,stop_at_eos=true)",
    "nano-llada": "llada({no_eos}block_length=32,stop_at_eos=true)",
    "nano-two-stream": "fef-two-stream(stop_at_eos=true)",
    "nano-fef-2": "fef-2(stop_at_eos=true)",
    "nano-threshold": "threshold({no_eos}block_length=32,stop_at_eos=true)",
}
SUITES = {"gsm8k": "gsm8k", "math": "math", "mbpp": "mbpp", "openai_humaneval": "humaneval"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two generated problems of a suite (one of HumanEval, whose responses are long), two questions
    with choices."""
    folder = tmp_path_factory.mktemp("cache")
    write_suites(folder, count=2, suites=["gsm8k", "math", "mbpp"])
    write_suites(folder, count=1, suites=["humaneval"])
    shutil.copy(
        folder / "data" / "math" / "test_prm800k_500.json", folder / "data" / "math" / "math.json"
    )
    rows = []
    for stem, texts in CHOICES.items():
        choices = [
            {"text": text, "label": label}
            for text, label in zip(texts.split(), "ABCD", strict=True)
        ]
        rows.append({"question": {"stem": stem, "choices": choices}, "answerKey": "A"})
    path = folder / "data" / "ARC" / "ARC-c" / "ARC-Challenge-Dev.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return folder


def evaluated(command: str, line: list[str], data: Path, folder: Path) -> pd.DataFrame:
    """OpenCompass's summary of a command that is run in a folder of its own: a row a data set, a
    column a model."""
    settings = {
        "COMPASS_DATA_CACHE": str(data),
        "OMP_NUM_THREADS": "1",
        "HF_DATASETS_CACHE": str(folder / "cache"),
    }
    whole = [
        str(Path(sys.executable).with_name(command)),
        *line,
        "-w",
        "out",
        "--max-num-workers",
        "2",
    ]
    done = subprocess.run(
        whole, cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = folder.glob("out/*/summary/summary_*.csv")
    summary = pd.read_csv(path).drop_duplicates("dataset").set_index("dataset")
    return summary.drop(columns=["version", "metric", "mode"]).apply(pd.to_numeric, errors="coerce")


def costs(folder: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """By model, data set and item what its response cost."""
    return {
        (path.parent.name, path.name.split(".")[0], line["item"]): line
        for path in folder.glob("out/*/predictions/*/*.costs.jsonl")
        for line in map(json.loads, path.read_text().splitlines())
    }


def check_tokens(folder: Path, data: Path, length: int) -> None:
    """Every response has the prompt, the tokens and the forwards of a run of this project on the
    same problems."""
    found = costs(folder)
    for dataset in {dataset for _, dataset, _ in found}:
        suite, out = SUITES[dataset], folder / f"run-{dataset}"
        # The suite's settings for LLaDA that OpenCompass does not know of.
        no_eos = {
            "humaneval": "logits_eos_inf=false,",
            "mbpp": "confidence_eos_eot_inf=false,",
        }.get(suite, "")
        models = sorted({model for model, of, _ in found if of == dataset})
        methods = ";".join(METHODS[model].format(no_eos=no_eos) for model in models)
        line = [
            "--data",
            str(data),
            "--suite",
            suite,
            "--methods",
            methods,
            "--gen-length",
            str(length),
            "--untimed",
        ]
        assert main([*line, "--threads", "1", "--out", str(out)]) == 0
        run = read_run(out)
        named = dict(zip(run.config.methods, models, strict=True))
        for item in run.items.to_dict("records"):
            own = found[named[item["method"]], dataset, item["item"]]
            for name in ("prompt_hash", "tokens_hash", "forwards", "proposed", "accepted"):
                assert own[name] == item[name], (named[item["method"]], dataset, item["item"], name)


def test_a_configuration_with_opencompass_own_data_sets_has_the_tokens_of_a_run(
    data: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.py").write_text(CONFIG)
    accuracies = evaluated("opencompass", ["config.py"], data, tmp_path)
    assert accuracies.shape == (3, 2) and ((accuracies >= 0) & (accuracies <= 100)).all(axis=None)
    check_tokens(tmp_path, data, 128)


def test_the_model_files_answer_programs_and_choices(data: Path, tmp_path: Path) -> None:
    line = ["opencompass", "--models", "nano", "--datasets", "humaneval_gen_8e312c", "ARC_c_ppl"]
    accuracies = evaluated("fef-dllm", line, data, tmp_path)
    # HumanEval's own evaluator scores none unless all 164 are there.
    assert accuracies.loc["ARC-c"].between(0, 100).all() and len(accuracies.columns) == 4
    for path in tmp_path.glob("out/*/predictions/*/ARC-c.costs.jsonl"):
        path.unlink()
    check_tokens(tmp_path, data, 512)


LIKELIHOODS = """
from mmengine.config import read_base

with read_base():
    from opencompass.configs.datasets.ARC_c.ARC_c_ppl_a450bd import ARC_c_datasets
    from opencompass.configs.datasets.hellaswag.hellaswag_ppl_47bff9 import hellaswag_datasets
    from opencompass.configs.datasets.mmlu.mmlu_ppl_ac766d import mmlu_datasets

datasets = [*ARC_c_datasets, *hellaswag_datasets, mmlu_datasets[0]]
models = [
    dict(type="model_wrappers.opencompass_model.DiffusionModel", abbr="draws", path="nano", draws=4,
         batch_size=1, run_cfg=dict(num_gpus=0)),
]
"""


def test_choices_of_the_likelihood_suites_are_judged(tmp_path: Path) -> None:
    write_choices(tmp_path)
    (tmp_path / "config.py").write_text(LIKELIHOODS)
    accuracies = evaluated("opencompass", ["config.py"], tmp_path, tmp_path)
    assert accuracies["draws"].between(0, 100).all() and len(accuracies) == 3
    spent = costs(tmp_path)
    assert {dataset for _, dataset, _ in spent} >= {"ARC-c", "hellaswag"} and len(spent) >= 6
    assert all(cost["rows"] == 4 for cost in spent.values())
