"""Several runs in one set of tables: what must agree, what is said where it does not, and whose rows are shown."""

import copy
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from command_lines import refused
from msgspec import structs
from run_records import item, rows_of, save

from harness.errors import UserError
from harness.measures.against import against
from harness.measures.comparability import NAMES, differences
from harness.measures.speed import read_measured
from harness.measures.table import measure
from harness.measures.together import put_together
from harness.records.store import Run
from tables import render as cli
from tables.render import render

LABELS = {"llada": "LLaDA", "llada/2": "LLaDA/2", "dcd": "DCD", "fef-2": "FeF (step=2)", "fef-4": "FeF (step=4)"}
ENVIRONMENT = {
    **{"device": "cpu", "cpu": "Test CPU", "gpu": None, "threads": 2, "dtype": "float32"},
    **{"platform": "Linux x86_64", "packages": {"torch": "2.6.0"}},
}


def meta_of(*methods: str, suites: tuple[str, ...] = ("gsm8k", "math")) -> dict[str, Any]:
    """What run.json says beside the records, whole."""
    settings = {"gen_length": 48, "block_length": 48, "options": {"steps": 48}}
    config = {
        "models": {"base": dict.fromkeys(suites, "nano"), "fef": dict.fromkeys(suites, "nano-fef")},
        "suites": {suite: {"title": suite.upper()} for suite in suites},
        "methods": {
            method: {
                "label": LABELS[method],
                "method": method.split("-")[0].split("/")[0],
                "role": "fef" if method.startswith("fef") else "base",
                "draft_role": None,
                "suites": {suite: copy.deepcopy(settings) for suite in suites},
            }
            for method in methods
        },
        **{"data": "generated", "temperature": 0.0, "compile": False},
    }
    weights = {
        name: {"name": name, "parameters": 2_500_000, "max_length": 4096, "sha256": {"model": f"{number}" * 64}}
        for number, name in enumerate(("nano", "nano-fef"))
    }
    files = {suite: {"name": "test.jsonl", "sha256": f"of {suite}"} for suite in suites}
    return {"config": config, "weights": weights, "data": {"files": files}, "environment": copy.deepcopy(ENVIRONMENT)}


def items_of(
    *methods: str, pace: float = 1.0, suites: tuple[str, ...] = ("gsm8k", "math"), count: int = 3
) -> list[dict[str, Any]]:
    """Items with hashes; every method has tokens of its own, LLaDA takes 2 s, others 1 s, all times `pace`."""
    return [
        item(
            *(method, suite, number),
            seconds=pace * (2.0 if method == "llada" else 1.0),
            prompt_hash=f"{suite} {number}",
            tokens_hash=f"{method} {suite} {number}",
        )
        for method in methods
        for suite in suites
        for number in range(count)
    ]


def two_runs(folder: Path, change: Any = None, **fields: Any) -> list[Run]:
    """Run `one` with LLaDA and LLaDA/2; run `two` with LLaDA and DCD, half as fast, its meta altered by `change`."""
    one = save(folder / "one", items_of("llada", "llada/2"), name="one", **meta_of("llada", "llada/2"))
    meta = meta_of("llada", "dcd")
    if change is not None:
        change(meta)
    return [one, save(folder / "two", fields.get("items", items_of("llada", "dcd", pace=2.0)), name="two", **meta)]


def suite_settings(meta: dict[str, Any], suite: str) -> list[dict[str, Any]]:
    return [method["suites"][suite] for method in meta["config"]["methods"].values()]


def stop(meta: dict[str, Any]) -> None:
    for settings in suite_settings(meta, "gsm8k"):
        settings["options"]["stop_at_eos"] = True


def longer(meta: dict[str, Any]) -> None:
    for settings in suite_settings(meta, "math"):
        settings["gen_length"] = 64


CHANGES: dict[str, tuple[Any, str, str]] = {
    "device": (lambda meta: meta["environment"].update(cpu="Other CPU"), "Test CPU", "Other CPU"),
    "threads": (lambda meta: meta["environment"].update(threads=8), "2", "8"),
    "dtype": (lambda meta: meta["environment"].update(dtype="bfloat16"), "float32", "bfloat16"),
    "compile": (lambda meta: meta["config"].update(compile=True), "off", "on"),
    "graphs": (lambda meta: meta["config"].update(graphs=True), "off", "on"),
    "platform": (lambda meta: meta["environment"].update(platform="Darwin arm64"), "Linux x86_64", "Darwin arm64"),
    "torch": (lambda meta: meta["environment"]["packages"].update(torch="2.7.1"), "2.6.0", "2.7.1"),
    "timed": (lambda meta: meta["config"].update(timed=False), "timed", "untimed"),
    "architecture": (lambda meta: meta["weights"]["nano"].update(parameters=99), "2500000", "99"),
    "data": (lambda meta: meta["data"]["files"]["math"].update(sha256="other"), "of math", "other"),
    "gen_length": (longer, "48", "64"),
    "temperature": (lambda meta: meta["config"].update(temperature=1.0), "0.0", "1.0"),
    "stop_at_eos": (stop, "off", "on"),
    "methods": (lambda meta: meta["config"]["methods"]["llada"].update(label="Other"), "LLaDA", "Other"),
}


def test_rows_of_both_runs_stand_in_one_table_each_over_its_own_llada(tmp_path: Path) -> None:
    files = render(put_together(two_runs(tmp_path)))
    rows = rows_of(files["main.md"])
    assert list(rows)[2:] == ["LLaDA", "LLaDA/2", "DCD"]
    # In run two all takes twice as long: its DCD is still twice as fast as its LLaDA.
    assert rows["LLaDA/2"][1] == rows["DCD"][1] == "<ins>2.00x</ins>" and rows["LLaDA"][1] == "1.00x"
    assert "Put together from the runs one, two; a speedup is over the LLaDA of its own run." in files["main.md"]
    assert files["main.md"].count("Environment: cpu (Test CPU), 2 threads, float32.") == 1
    frame = pd.read_csv(io.StringIO(files["main.csv"]))
    assert frame[["method", "seconds_per_item"]].to_numpy().tolist() == [
        *([["llada", 2.0]] * 2),  # the first run's
        *([["llada/2", 1.0]] * 2),
        *([["dcd", 2.0]] * 2),
    ]


def test_suites_of_one_method_may_come_from_different_runs(tmp_path: Path) -> None:
    runs = [
        save(tmp_path / suite, items_of("llada", "dcd", suites=(suite,)), **meta_of("llada", "dcd", suites=(suite,)))
        for suite in ("gsm8k", "math")
    ]
    rows = rows_of(render(put_together(runs))["main.md"])
    assert rows["DCD"] == ["**100.00**", "<ins>2.00x</ins>", "1.00x"] * 3


@pytest.mark.parametrize("name", CHANGES)
def test_every_difference_is_refused_with_both_values_and_the_name_that_allows_it(tmp_path: Path, name: str) -> None:
    change, ours, theirs = CHANGES[name]
    runs = two_runs(tmp_path, change)
    with pytest.raises(UserError) as refusal:
        put_together(runs)
    said = str(refusal.value)
    assert f"{ours} in {runs[0].folder}" in said and f"{theirs} in {runs[1].folder}" in said
    assert said.endswith(f"--allow {name}")
    assert put_together(runs, [name]).names == ("one", "two")


def test_every_check_of_settings_is_tried_here() -> None:
    assert {*CHANGES, "seed", "prompts", "tokens", "verdicts"} == set(NAMES)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_samples_of_another_seed_are_refused_and_greedy_responses_are_not(tmp_path: Path, temperature: float) -> None:
    runs = two_runs(tmp_path)
    for seed, run in enumerate(runs):
        config = structs.replace(run.config, temperature=temperature, seed=seed)
        runs[seed] = replace(run, meta=structs.replace(run.meta, config=config))
    if temperature:
        with pytest.raises(UserError, match=r"seed: 0 in .*, 1 in .*--allow seed"):
            put_together(runs)
    else:
        assert put_together(runs).names == ("one", "two")


def test_all_differences_are_listed_at_once(tmp_path: Path) -> None:
    def change(meta: dict[str, Any]) -> None:
        meta["environment"].update(threads=8, dtype="bfloat16")

    with pytest.raises(UserError, match=r"threads: 2 in .*; dtype: float32 in .* --allow threads,dtype$"):
        put_together(two_runs(tmp_path, change))


def test_which_gpu_of_a_machine_it_was_does_not_matter(tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        meta = meta_of("llada", "dcd")
        meta["environment"].update(device=f"cuda:{number}", gpu="H200")
        runs.append(save(tmp_path / str(number), items_of("llada", "dcd"), **meta))
    assert differences(runs) == []
    assert "Environment: cuda (H200), 2 threads, float32." in render(put_together(runs))["main.md"]
    runs[1].meta.environment["gpu"] = "A100"
    assert [each.check for each in differences(runs)] == ["device"]


def test_what_an_older_record_does_not_say_differs_from_nothing(tmp_path: Path) -> None:
    def forget(meta: dict[str, Any]) -> None:
        meta["weights"]["nano"] = {"name": "nano"}
        meta["environment"] = {"device": "cpu"}
        meta["data"] = None
        for suite in ("gsm8k", "math"):
            for settings in suite_settings(meta, suite):
                del settings["gen_length"]

    items = [{key: row[key] for key in row if not key.endswith("hash")} for row in items_of("llada", "dcd")]
    assert differences(two_runs(tmp_path, forget, items=items)) == []


def test_an_allowed_difference_is_a_footnote_on_the_speeds_of_the_other_runs_rows(tmp_path: Path) -> None:
    together = put_together(two_runs(tmp_path, CHANGES["threads"][0]), ["threads"])
    files = render(together)
    rows = rows_of(files["main.md"])
    assert rows["DCD"][:3] == ["**100.00**", "<ins>2.00x</ins> [a]", "1.00x"]
    assert rows["DCD"][-3:] == rows["DCD"][:3] and rows["LLaDA/2"][1] == "<ins>2.00x</ins>"
    assert "[a] run two: threads: 8, not 2" in files["main.md"]
    assert "Environments: cpu (Test CPU), 2 threads, float32 (one); cpu (Test CPU), 8 threads" in files["main.md"]


def test_an_allowed_difference_that_can_change_tokens_is_a_footnote_on_accuracy_too(tmp_path: Path) -> None:
    rows = rows_of(render(put_together(two_runs(tmp_path, longer), ["gen_length"]))["main.md"])
    assert rows["DCD"][:2] == ["**100.00**", "<ins>2.00x</ins>"]  # only the suite that differs
    assert rows["DCD"][3:5] == ["**100.00** [a]", "<ins>2.00x</ins> [a]"]


def test_other_prompts_are_refused_by_their_first_item(tmp_path: Path) -> None:
    items = items_of("llada", "dcd")
    for row in items:
        if row["suite"] == "math" and row["item"] > 0:
            row["prompt_hash"] = "other"
    with pytest.raises(
        UserError, match=r"prompts on math, first at item 1: math 1 in .*, other in .* --allow prompts$"
    ):
        put_together(two_runs(tmp_path, items=items))


def test_a_method_of_several_runs_is_shown_once_if_its_tokens_agree(tmp_path: Path) -> None:
    assert len(pd.read_csv(io.StringIO(render(put_together(two_runs(tmp_path / "same")))["main.csv"]))) == 6
    items = items_of("llada", "dcd")
    items[2]["tokens_hash"] = items[1]["tokens_hash"] = "other"
    runs = two_runs(tmp_path / "other", items=items)
    with pytest.raises(UserError, match=r"tokens of llada on gsm8k, first at item 1: llada gsm8k 1 in .*, other in"):
        put_together(runs)
    files = render(put_together(runs, ["tokens"]))
    assert rows_of(files["main.md"])["LLaDA"][0] == "**100.00** [a]"
    assert "[a] run two: tokens of llada on gsm8k, first at item 1: other, not llada gsm8k 1" in files["main.md"]


def test_the_same_tokens_judged_differently_are_refused(tmp_path: Path) -> None:
    items = items_of("llada", "dcd")
    items[1]["correct"] = False
    runs = two_runs(tmp_path, items=items)
    says = (
        "the verdict on the same tokens of llada on gsm8k, first at item 1: right in .*, wrong in .* --allow verdicts$"
    )
    with pytest.raises(UserError, match=says):
        put_together(runs)


def test_rows_of_other_checkpoints_say_which(tmp_path: Path) -> None:
    runs = []
    for number, method in enumerate(("fef-2", "fef-4")):
        meta = meta_of("llada", method)
        meta["weights"]["nano-fef"]["sha256"] = {"model": f"{number + 5}" * 64}
        runs.append(save(tmp_path / str(number), items_of("llada", method), name=str(number), **meta))
    files = render(put_together(runs))
    rows = rows_of(files["main.md"])
    assert rows["FeF (step=2)"][:2] == ["nano-fef", "**100.00** [a]"] and rows["FeF (step=4)"][1] == "**100.00** [b]"
    assert rows["LLaDA"][:2] == ["nano", "**100.00**"]  # its weights are the same in both
    assert "[a] fef is nano-fef (55555555)\n- [b] fef is nano-fef (66666666)" in files["main.md"]


def test_rows_of_a_run_that_was_not_timed_have_no_speed_beside_one_that_was(tmp_path: Path) -> None:
    files = render(put_together(two_runs(tmp_path, CHANGES["timed"][0]), ["timed"]), measures=True)
    rows = rows_of(files["main.md"])
    assert rows["DCD"][:3] == ["**100.00**", "- [a]", "1.00x"] and rows["LLaDA/2"][1] == "<ins>2.00x</ins>"
    assert "Run two: Seconds were not measured for comparison." in files["main.md"] and "measures.md" in files


def test_intervals_and_holm_go_over_the_rows_of_all_runs(tmp_path: Path) -> None:
    files = render(put_together(two_runs(tmp_path)), intervals=True)
    assert "adjusted for 4 comparisons" in files["main.md"]
    frame = pd.read_csv(io.StringIO(files["main.csv"])).set_index("method")
    assert frame.loc["dcd", "speedup_low"].to_list() == pytest.approx([2.0, 2.0])


def test_runs_of_one_name_are_numbered(tmp_path: Path) -> None:
    runs = [save(tmp_path / name, items_of("llada", "dcd"), **meta_of("llada", "dcd")) for name in ("a", "b", "c")]
    assert put_together(runs).names == ("run (1)", "run (2)", "run (3)")


def test_the_command_line_puts_together_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(run.folder) for run in two_runs(tmp_path, CHANGES["threads"][0])]
    out = tmp_path / "out"
    assert (
        cli.main([*folders, "--together", "--allow", "threads, dtype", "--out", str(out), "--paper", "--measures"]) == 0
    )
    said = capsys.readouterr().out
    assert (out / "main.md").read_text() in said and f"written to {out}: main.md" in said
    assert not any((Path(folder) / "tables").exists() for folder in folders)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["one", "--together", "--out", "out"], "--together takes two runs or more, 1 was given"),
        (["one", "two", "--together"], "--together needs --out"),
        (["one", "two", "--out", "out"], "--out is for one run, 2 were given"),
        (["one", "--allow", "threads"], "--allow is for --together"),
        (["one", "two", "--together", "--out", "out", "--allow", "speed"], "no such check; they are device, threads,"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    two_runs(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert says in refused(cli.main, arguments, capsys) and not (tmp_path / "out").exists()


# Accuracy of one run and speed of another


def items_with(count: int, seconds: dict[str, float], tokens: str = "t") -> list[dict[str, Any]]:
    return [
        item(method, "gsm8k", n, seconds=spent, prompt_hash=f"p{n}", tokens_hash=f"{tokens}{n}", correct=n % 2 == 0)
        for method, spent in seconds.items()
        for n in range(count)
    ]


def untimed(folder: Path, **changes: Any) -> Run:
    config = save(folder, [], suites={"gsm8k": "GSM8K"}).config
    config = msgspec.to_builtins(config) | {"timed": False} | changes
    return save(folder, items_with(10, {"llada": 9.0, "dcd": 9.0}), config=config)


def test_accuracy_is_of_all_problems_and_speed_of_the_timed_ones(tmp_path: Path) -> None:
    untimed(tmp_path)
    save(tmp_path / "speed", items_with(4, {"llada": 3.0, "dcd": 1.5}), suites={"gsm8k": "GSM8K"})
    run = read_measured(tmp_path)
    row = measure(run).set_index("method").loc["dcd"]
    assert (row["items"], row["scored"], row["speedup"], row["seconds_per_item"]) == (10, 10, 2.0, 1.5)
    (beside,) = against(run, "llada").to_dict("records")
    assert (beside["items"], beside["speed"]) == (10, 2.0)
    assert "first 4 problems of each suite, 8 of 8 responses with these tokens" in render(run)["main.md"]


def test_without_a_timed_run_beside_it_there_is_no_speed(tmp_path: Path) -> None:
    untimed(tmp_path)
    assert measure(read_measured(tmp_path))["speedup"].isna().all()


def test_a_reference_of_the_timed_run_alone_joins_with_its_problems(tmp_path: Path) -> None:
    speed = save(tmp_path / "speed", items_with(4, {"llada": 3.0, "dcd": 1.5}), suites={"gsm8k": "GSM8K"})
    config = msgspec.to_builtins(speed.config) | {"timed": False}
    del config["methods"]["llada"]
    save(tmp_path, items_with(10, {"dcd": 9.0}), config=config)
    rows = measure(read_measured(tmp_path)).set_index("method")
    assert list(rows.index) == ["llada", "dcd"]
    assert (rows["items"].to_list(), rows["speedup"].to_list()) == ([4, 10], [1.0, 2.0])


@pytest.mark.parametrize("what", ["untimed", "settings", "problems", "more"])
def test_a_run_that_does_not_belong_is_refused(what: str, tmp_path: Path) -> None:
    run = untimed(tmp_path)
    config = msgspec.to_builtins(run.config) | {"timed": what != "untimed"}
    if what == "settings":
        config["methods"]["dcd"]["method"] = "llada"
    own = items_with(3, {"llada": 3.0, "dcd": 1.5})
    if what == "problems":
        own[0]["prompt_hash"] = own[3]["prompt_hash"] = "another"  # the first problem of both methods
    if what == "more":
        own.append(item("ssd", "gsm8k", 5, seconds=1.0, prompt_hash="p5", tokens_hash="t5"))
        config["methods"]["ssd"] = config["methods"]["dcd"]
    save(tmp_path / "speed", own, config=config)
    with pytest.raises(UserError, match="speed"):
        read_measured(tmp_path)
