"""OpenCompass's own configurations: the prompts they send, what is refused, evaluators that judge
in their own way."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from generated import write_suites
from verdicts_only import evaluate

from harness.errors import UserError
from harness.sandbox import verdicts
from harness.suites.registry import problems, suite_named, suites_named
from model_wrappers import load_backbone

NAMED = ["gsm8k", "math", "math500", "humaneval", "mbpp"]
ZERO_SHOT = "opencompass:gsm8k_0shot_gen_a58960"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated problems laid out as the real files are, all of MATH's too."""
    folder = tmp_path_factory.mktemp("data")
    write_suites(folder, "dev", 3)
    shutil.copy(
        folder / "data" / "math" / "test_prm800k_500.json", folder / "data" / "math" / "math.json"
    )
    return folder


@pytest.mark.parametrize("suite", [*NAMED, ZERO_SHOT])
def test_prompts_are_those_that_opencompass_own_inferencer_sends(
    suite: str, data: Path, tmp_path: Path
) -> None:
    from mmengine.config import ConfigDict
    from opencompass.tasks import OpenICLInferTask

    from harness.runs.problems import load_problems, prepare
    from model_wrappers.opencompass_model import DiffusionModel, encode_chat

    sent: list[Any] = []

    class Spied(DiffusionModel):
        def generate(
            self, inputs: list[Any], max_out_len: int | None = None, **_: Any
        ) -> list[str]:
            sent.extend(inputs)
            return [""] * len(inputs)

    nano = load_backbone("nano")
    (config,) = suite_named(suite).datasets(False, data)
    job = prepare(
        suite_named(suite),
        load_problems(suite_named(suite), [config], 2),
        {"llada": DiffusionModel(nano, "llada", gen_length=8)},
    )
    model = {"type": "spied", "abbr": "spied", "path": "nano", "max_out_len": 8, "batch_size": 1}
    task = OpenICLInferTask(ConfigDict(models=[model], datasets=[[config]], work_dir=str(tmp_path)))
    task.run(cur_model=Spied(nano, "llada", gen_length=8), cur_model_abbr="spied")
    own = [encode_chat(nano, turns).tolist() for turns in sent[:2]]
    assert [prompt_P.tolist() for prompt_P in job.prompts] == own and own[0]
    texts = [nano.text_tokenizer().decode(ids) for ids in own]
    question = next(
        iter(problems(suite.replace("math500", "math") if suite in NAMED else "gsm8k", "dev", 1))
    ).row
    assert any(str(value) in texts[0] for value in question.values())


def test_the_math_suite_is_all_of_it_and_math500_a_selection(data: Path) -> None:
    (whole,), (part,) = (
        suite_named("math").datasets(False, data),
        suite_named("math500").datasets(False, data),
    )
    assert "file_name" not in whole and part["file_name"] == "test_prm800k_500.json"
    assert [path.name for path in suite_named("math").files(False, data)] == ["math.json"]
    assert suite_named("math").configuration_hash() != suite_named("math500").configuration_hash()


def test_a_missing_file_says_which_where_and_who_wants_it(tmp_path: Path) -> None:
    write_suites(tmp_path, "dev", 2)
    with pytest.raises(UserError, match=r"math/math\.json; .*math_0shot_gen_11c4b5 wants it there"):
        suite_named("math").datasets(False, tmp_path)
    with pytest.raises(
        UserError, match=r"data/ifeval/input_data\.jsonl; .*IFEval_gen_353ae7 wants it"
    ):
        suite_named("opencompass:IFEval_gen_353ae7").datasets(False, tmp_path)
    with pytest.raises(UserError, match="lists has generated problems alone"):
        suite_named("lists").datasets(False, tmp_path)


def test_unknown_configurations_and_those_that_generate_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no configuration gsm8k_0shot_gen; did you mean gsm8k_"):
        suite_named("opencompass:gsm8k_0shot_gen").datasets(False, tmp_path)
    with pytest.raises(UserError, match=r"does not generate text, it uses .*PPLInferencer"):
        suite_named("opencompass:hellaswag_ppl_a6e128").datasets(False, tmp_path)
    with pytest.raises(UserError, match=r"^unknown suite gsm9k; did you mean gsm8k"):
        suites_named("gsm8k,gsm9k")
    with pytest.raises(UserError, match=r"^unknown suite llada; llada is a method, for --methods$"):
        suites_named("llada")


def test_an_evaluator_without_verdicts_is_asked_item_by_item(tmp_path: Path) -> None:
    """With one item, its one number says whether that item is right."""
    write_suites(tmp_path, "dev", 3)
    config = suite_named("lists").datasets(True, tmp_path)[0]
    config["eval_cfg"] = {"evaluator": {"type": "verdicts_only.OneNumber"}}
    golds = [problem.row["answer"] for problem in problems("lists", "dev", 3)]
    assert evaluate(config, [0, 1, 2], [golds[0], "nonsense", golds[2]]) == [True, False, True]


def test_items_number_the_datasets_of_a_suite_one_after_the_other(tmp_path: Path) -> None:
    from harness.runs.problems import load_problems

    write_suites(tmp_path, "dev", 3)
    both = [suite_named(suite) for suite in ("gsm8k", "lists")]
    parts = load_problems(both[0], [suite.datasets(True, tmp_path)[0] for suite in both], 2)
    right = [
        problem.response
        for suite in ("gsm8k", "lists")
        for problem in list(problems(suite, "dev", 2))
    ]
    assert [len(part) for part in parts] == [2, 2]
    judged = verdicts.judged(parts, [3, 0, 2], [right[3], "nonsense", right[2]], None)
    assert [verdict for verdict, _ in judged] == [True, False, True]


@pytest.mark.parametrize(
    ("suite", "says"),
    [
        ("humaneval", "humaneval_gen_8e312c judges chat models"),
        ("opencompass:humaneval_gen_8e312c", "humaneval_gen_8e312c judges chat models"),
        (
            "mbpp",
            (
                "mbpp_gen judges a response of a base model that goes on with another task by that"
                " task's program"
            ),
        ),
        ("opencompass:internal_humaneval_v2_new_gen", ""),
    ],
)
def test_what_a_configuration_makes_of_base_models_is_said(suite: str, says: str) -> None:
    assert suite_named(suite).misjudged("plain").startswith(says)
    assert bool(says) == bool(suite_named(suite).misjudged("plain"))
    assert suite_named(suite).misjudged(None) == ""
