"""What captions and notes say of a run: its model, items, machine, workers, code and settings, and
what is missing."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_records import NANO_SHA256, full_items, item, save, window

from harness.measures.captions import MOST_WORDS, divided
from harness.measures.notes import against_reference
from harness.measures.seconds import BUSY, FEWEST, drift, timing_sentences
from harness.records.schema import Setting
from harness.records.store import Run
from tables.render import render


def test_caption_names_other_models_and_not_where_they_lie(tmp_path: Path) -> None:
    weights: dict[str, Any] = {
        "base": {"name": "/models/LLaDA-8B-Instruct"},
        "fef": {"name": "/models/tuned"},
    }
    gpu = {"device": "cuda:0", "gpu": "H200", "cpu": "Test CPU", "dtype": "bfloat16"}
    caption = render(save(tmp_path, full_items(), weights=weights, environment=gpu))[
        "main.md"
    ].splitlines()[0]
    assert (
        "Measured on LLaDA-8B-Instruct, tuned." in caption
        and "nano" not in caption
        and "/models" not in caption
    )
    assert "Environment: cuda:0 (H200), bfloat16." in caption
    for parameters, sentence in (
        (
            2_612_345,
            "Measured on mine (2.6 M parameters); not comparable with the paper's 8B results.",
        ),
        (8_015_581_184, "Measured on mine (8.0 B parameters). Env"),
    ):
        weights = {"base": {"name": "/models/mine", "parameters": parameters}}
        assert sentence in render(save(tmp_path, full_items(), weights=weights))["main.md"]
    weights = {
        "8b": {"name": "LLaDA-8B-Instruct", "parameters": 8_015_581_184},
        "nano": {"name": "nano"},
    }
    caption = render(save(tmp_path, full_items(), weights=weights))["main.md"]
    assert "Measured on LLaDA-8B-Instruct, nano (at most 8.0 B parameters)." in caption


def test_what_is_not_the_default_for_all_methods_is_named(tmp_path: Path) -> None:
    usual = save(tmp_path / "usual", full_items())
    assert (
        "emperature" not in render(usual)["main.md"] and "prompts" not in render(usual)["main.md"]
    )
    config = msgspec.to_builtins(usual.config) | {
        "temperature": 0.7,
        "seed": 0,
        "prompt": "plain",
        "reads_at": -1,
    }
    caption = render(save(tmp_path / "own", full_items(), config=config))["main.md"]
    assert (
        "Temperature 0.7; seed 0; plain prompts, without a chat template; logits read at -1."
        in caption
    )
    del config["prompt"]
    config |= {"temperature": 0.0, "reads_at": 0, "chat_template_args": {"mood": "calm"}}
    assert (
        'Chat template with {"mood": "calm"}.'
        in render(save(tmp_path / "args", full_items(), config=config))["main.md"]
    )


def test_a_model_that_is_called_nano_and_has_other_weights_is_not_nano(tmp_path: Path) -> None:
    for sha256 in (
        {"model.safetensors": "0" * 64},
        {},
        NANO_SHA256 | {"more.safetensors": "0" * 64},
    ):
        weights = {"nano": {"name": "nano", "parameters": 2_512_345, "sha256": sha256}}
        caption = render(save(tmp_path, full_items(), weights=weights))["main.md"]
        assert (
            "Measured on nano (2.5 M parameters); not comparable" in caption
            and "this repository" not in caption
        )


def workers_of(*kinds: tuple[str, str]) -> dict[str, Any]:
    """The part of a session on its workers: host and device of each."""
    return {
        f"{host}:{number}": {"host": host, "name": name}
        for number, (host, name) in enumerate(kinds)
    }


@pytest.mark.parametrize(
    ("sessions", "said"),
    [
        ([[("n1", "H100"), ("n1", "H100"), ("n2", "H100")]], "3 workers on 2 hosts."),
        ([[("n1", "H100")], [("n1", "H100"), ("n2", "H100")]], "1 or 2 workers on 2 hosts."),
        (
            [[("n1", "H100"), ("n2", "A100"), ("n2", "A100")]],
            "3 workers (2 A100, 1 H100) on 2 hosts.",
        ),
    ],
)
def test_captions_say_how_many_workers_there_were(
    tmp_path: Path, sessions: list[list[tuple[str, str]]], said: str
) -> None:
    run = save(
        tmp_path, full_items(), sessions=[{"workers": workers_of(*kinds)} for kinds in sessions]
    )
    assert f"Environment: cpu (Test CPU), 2 threads, float32, {said}" in render(run)["main.md"]


def test_captions_say_that_the_code_had_changes_that_no_commit_has(tmp_path: Path) -> None:
    """In every table, with seconds or without."""
    for dirty in (True, False):
        run = save(
            tmp_path / str(dirty), full_items(), environment={"device": "cpu", "dirty": dirty}
        )
        captions = [
            text
            for name, text in render(run, paper=True, measures=True).items()
            if name.endswith(".md")
        ]
        assert len(captions) >= 4 and {
            "changes that no commit has." in text for text in captions
        } == {dirty}


@pytest.mark.parametrize(
    ("model", "says"),
    [("nano-fef", "Trained for FeF-DLLM: nano-fef."), ("own", "FeF-DLLM: own."), ("nano", "")],
)
def test_captions_call_no_model_trained_that_ships_as_another(
    tmp_path: Path, model: str, says: str
) -> None:
    config = save(tmp_path / "usual", full_items()).config.to_json() | {
        "models": {"fef": {"gsm8k": model}}
    }
    table = render(save(tmp_path / "run", full_items(), config=config))["main.md"]
    assert says in table if says else "Trained for" not in table


def test_captions_say_that_suites_are_the_same_problems(tmp_path: Path) -> None:
    files = {"gsm8k": {"sha256": "a"}, "math": {"sha256": "a"}}
    said = "GSM8K and MATH are the same problems, which every mean over suites counts 2 times."
    assert said in render(save(tmp_path, full_items(), data={"files": files}))["main.md"]
    other = files | {"math": {"sha256": "b"}}
    assert (
        "same problems"
        not in render(save(tmp_path / "b", full_items(), data={"files": other}))["main.md"]
    )


def test_captions_say_what_was_left_out_and_not_decoded_later(tmp_path: Path) -> None:
    rows = [
        {"method": "llada", "suite": "gsm8k", "item": number, "reason": "killed"}
        for number in (0, 4, 5)
    ]
    run = save(tmp_path, full_items(), sessions=[{"left_out": rows}])
    assert "2 responses were left out: killed." in render(run)["main.md"]


@pytest.mark.parametrize(
    ("with_it", "says"),
    [
        ("", ""),
        ("llada", "With stop\\_at\\_eos decoding ends at EOS; without it: FeF-DLLM (step=2)."),
        ("llada, fef-2", "Decoding ends at EOS."),
    ],
)
def test_captions_say_whose_decoding_does_not_end_at_eos(
    tmp_path: Path, with_it: str, says: str
) -> None:
    run = save(tmp_path, full_items())
    for name in ("llada", "fef-2", "dcd"):
        own = Setting(gen_length=64, block_length=64, options={"stop_at_eos": name in with_it})
        run.config.methods[name].suites["gsm8k"] = own
    run.config.methods["dcd"].role = "ar"  # always ends there
    notes, table = against_reference(run), render(run)["main.md"]
    assert says in table if says else "EOS" not in table
    assert notes["dcd", "gsm8k"] == ("" if with_it else "ends at EOS")
    assert notes["fef-2", "gsm8k"] == ("without stop_at_eos" if with_it == "llada" else "")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("generated", "4 problems per suite, generated in the suites' formats."),
        (
            "generated-dev:7",
            "4 dev problems per suite, generated in the suites' formats, drawn with seed 7.",
        ),
        ({"gsm8k": "sha256"}, "4 problems per suite."),
    ],
)
def test_problems_for_development_and_of_a_seed_look_like_no_others(
    tmp_path: Path, data: Any, says: str
) -> None:
    config = save(tmp_path / "usual", full_items()).config.to_json() | {"data": data}
    files = render(save(tmp_path / "run", full_items(), config=config), paper=True, measures=True)
    assert all(
        says in text.replace("\\", "") for name, text in files.items() if not name.endswith(".csv")
    )


def test_captions_are_short_and_what_they_leave_out_stands_below_the_table(tmp_path: Path) -> None:
    usual = [f"Sentence {number} has six words." for number in range(20)]
    caption, rest = divided(["One.", " ".join(["long"] * 61), *usual])
    assert len(caption.split()) <= MOST_WORDS < len(caption.split()) + 6 and caption.startswith(
        "One. Sentence 0"
    )
    assert {*f"{caption} {rest}".split()} == {*" ".join(usual).split(), "One.", "long"}
    suites = {f"suite-{number}": f"Suite {number}" for number in range(30)}
    items = [
        item("llada", suite, n)
        for number, suite in enumerate(suites)
        for n in range(1 + number % 2)
    ]
    files = render(save(tmp_path, items, suites=suites))
    for name in ("main.md", "main.tex"):
        assert "Suite 29 2" not in files[name].split("Method")[0] and "Suite 29 2" in files[name]


def test_captions_have_the_lengths_and_count_responses_without_an_end(tmp_path: Path) -> None:
    settings = {
        suite: {"gen_length": length}
        for suite, length in (("gsm8k", 48), ("math", 48), ("mbpp", 64))
    }
    config = {
        "methods": {"llada": {"label": "LLaDA", "suites": settings}},
        "suites": {
            "gsm8k": {"title": "GSM8K"},
            "math": {"title": "MATH"},
            "mbpp": {"title": "MBPP"},
        },
    }
    ends = ((0, 0), (3, 0), (0, 1), (None, None))
    items = [
        item("llada", suite, number) | {"eos_tokens": eos, "post_stop_tokens": more}
        for suite in settings
        for number, (eos, more) in enumerate(ends)
    ]
    caption = render(save(tmp_path, items, config=config))["main.md"].split("|")[0]
    assert "Responses have 48 tokens (MBPP: 64)." in caption
    assert "3 of 9 responses reach their length without an end-of-text token." in caption


# Settings that are not those of LLaDA's row
SOURCE, AS_PUBLISHED = (
    "owner/name@0123456789abcdef scripts/*.sh",
    "blocks of 8, as published (owner/name@0123456)",
)


def run_of(folder: Path, llada: dict[str, Any], other: dict[str, Any]) -> Run:
    """A run of LLaDA and another method on GSM8K, with these settings."""
    methods = {
        "llada": {"label": "LLaDA", "method": "llada", "suites": {"gsm8k": llada}},
        "dcd": {"label": "DCD", "method": "dcd", "suites": {"gsm8k": other}},
    }
    config = {"data": "generated", "methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    return save(
        folder,
        [item(name, "gsm8k", number) for name in methods for number in range(2)],
        config=config,
    )


BLOCKS = {"gen_length": 256, "block_length": 8}
ENDS = {"logits_eos_inf": True, "stop_at_eos": True}


@pytest.mark.parametrize(
    ("llada", "other", "says"),
    [
        (BLOCKS | {"options": {"steps": 256}}, BLOCKS | {"options": {"tau": 0.9}}, ""),
        ({}, BLOCKS, ""),  # an older record does not say
        (BLOCKS, BLOCKS | {"gen_length": 128}, "responses of 128 tokens, LLaDA's of 256"),
        (
            BLOCKS,
            BLOCKS | {"block_length": 32, "published": SOURCE},
            f"blocks of 32, LLaDA's {AS_PUBLISHED}",
        ),
        (BLOCKS, {"gen_length": 256, "block_length": 256}, "full sequence, LLaDA's blocks of 8"),
        (BLOCKS | {"options": ENDS}, BLOCKS, "without logits_eos_inf, without stop_at_eos"),
    ],
)
def test_settings_not_lladas_are_noted(
    tmp_path: Path, llada: dict[str, Any], other: dict[str, Any], says: str
) -> None:
    assert against_reference(run_of(tmp_path, llada, other))["dcd", "gsm8k"] == says


def test_files_of_questions_are_in_the_caption_and_not_code(tmp_path: Path) -> None:
    own = {
        "file": "q.jsonl",
        "sha256": "a" * 64,
        "judge": "judge.py:right",
        "judge_sha256": "b" * 64,
    }
    suites = {"gsm8k": {"title": "GSM8K"}, "mine": {"title": "mine", "questions": own}}
    methods = {"llada": {"label": "LLaDA", "method": "llada"}}
    items = [item("llada", suite, 0) for suite in suites]
    scoring = {"not_enforced": ["memory is limited"]}
    config = {"data": "generated", "methods": methods, "suites": suites}
    table = render(save(tmp_path, items, config=config, scoring=scoring))["main.md"]
    caption = table.splitlines()[0].replace("\\", "")
    assert "generated in the suites' formats but for mine." in caption
    assert (
        "Own questions: mine is q.jsonl (aaaaaaaa), judged by judge.py:right (bbbbbbbb)." in caption
    )
    assert "memory is limited" not in table


# The machine while a run was timed
def timed_run(folder: Path, paces: list[float], suite: str = "gsm8k", **meta: Any) -> Run:
    """LLaDA's items of one suite in the order of their lines, with these seconds a forward pass,
    and as many of DCD."""
    items = []
    for number, pace in enumerate(paces):
        forwards = 40 + number
        items.append(item("llada", suite, number, seconds=pace * forwards, forwards=forwards))
        items.append(item("dcd", suite, number, seconds=1.0 + number))
    items[1] |= {"proposed": 4, "accepted": 2, "rejected": 1}
    return save(folder, items, [window("dcd", suite, 0, 2)], {suite: suite.upper()}, **meta)


@pytest.mark.parametrize(
    ("paces", "moved"),
    [
        ([1.0, 9.0, 1.0, 1.0, 5.0, 5.0, 5.0, 1.2, 1.2, 0.1, 1.2], 0.2),  # of 11 items, 3 and 3
        ([1.0] * (FEWEST - 3) + [2.0] * 3, 1.0),
        ([1.0] * (FEWEST - 4) + [2.0] * 3, None),
    ],
)
def test_drift_is_of_medians_of_last_third_over_first(
    tmp_path: Path, paces: list[float], moved: float | None
) -> None:
    assert drift(timed_run(tmp_path, paces)) == (
        None if moved is None else (pytest.approx(moved), "gsm8k")
    )


def test_the_drift_of_a_run_is_that_of_the_suite_that_moved_farthest(tmp_path: Path) -> None:
    items = []
    for suite, end in (("gsm8k", 1.2), ("math", 0.7)):
        items += [
            item("llada", suite, n, seconds=1.0 if n < 6 else end, forwards=1) for n in range(9)
        ]
    assert drift(save(tmp_path, items)) == (pytest.approx(-0.3), "math")


def receipt(busy: float = 3.0, reasons: str | None = None) -> dict[str, Any]:
    return {"busy_percent": busy, "gpu": None if reasons is None else {"throttle_reasons": reasons}}


@pytest.mark.parametrize(
    ("sessions", "says"),
    [
        ([], []),
        ([{"start": receipt(BUSY), "end": receipt(100.0)}], []),  # the end is the run's own work
        (
            [{"start": receipt(BUSY + 1), "end": None}],
            ["The machine was 26% busy before the start."],
        ),
        (
            [{"start": receipt(), "end": receipt(reasons="0x5")}],
            ["The GPU reported throttling at the end (0x4)."],
        ),
        ([{"start": receipt(), "end": receipt()}] * 2, ["The run had 2 sessions."]),
        (
            [{"start": receipt(), "end": None}] * 2,
            ["The run had 2 sessions, 2 of them without an end."],
        ),
    ],
)
def test_each_receipt_gives_a_short_sentence(
    tmp_path: Path, sessions: list[dict[str, Any]], says: list[str]
) -> None:
    run = timed_run(tmp_path, [1.0], sessions=sessions)
    assert timing_sentences(run) == says and all(
        sentence in render(run)["main.md"] for sentence in says
    )


def test_each_worker_drifts_by_itself(tmp_path: Path) -> None:
    fast = [item("llada", "gsm8k", n, seconds=1.0, forwards=1, worker="a") for n in range(9)]
    slow = [item("llada", "gsm8k", 9 + n, seconds=2.0, forwards=1, worker="b") for n in range(9)]
    assert drift(save(tmp_path / "unlike", fast + slow)) == (0.0, "gsm8k")
    slow[-3:] = [row | {"seconds": 3.0} for row in slow[-3:]]
    assert drift(save(tmp_path / "moved", fast + slow)) == (pytest.approx(0.5), "gsm8k")
