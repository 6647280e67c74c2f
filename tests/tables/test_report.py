"""The report's files: what they hold, and what they never do. What a browser makes of them:
test_report_browser.py."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from run_records import full_items, save
from traced_run import traced_run

from harness.measures.table import measure
from harness.records.files import each_frame, replay
from harness.records.store import Run, read_run
from tables import report
from tables.pages.data import generated_prompts, open_book, rows
from tables.pages.overview import main_table, numbers_of_runs
from tables.table import Table


def table_of(*runs: Run) -> Table:
    """The main table of a report."""
    book = open_book(runs)
    return main_table(book, numbers_of_runs(book))


def data(folder: Path, name: str) -> Any:
    """The value of a data file, as a page reads it."""
    text = (folder / "data" / f"{name}.js").read_text(encoding="ascii")
    found = re.fullmatch(r"Report\.(receive|unpack)\((.*?),(.*)\);\n", text, re.DOTALL)
    assert found is not None and json.loads(found[2]) == name
    value = json.loads(found[3])
    return json.loads(zlib.decompress(base64.b64decode(value))) if found[1] == "unpack" else value


@pytest.fixture
def made(tmp_path: Path) -> Path:
    traced_run(tmp_path / "run", 3)
    assert report.main([str(tmp_path / "run")]) == 0
    return tmp_path / "run" / "report"


def test_traces_that_are_not_there_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traced_run(tmp_path / "run", 3)
    (tmp_path / "run" / "traces.bin").unlink()
    assert report.main([str(tmp_path / "run")]) == 0
    assert (
        "12 responses of traced runs have no trace: traces.bin is not there, or was cut"
        in capsys.readouterr().out
    )


def test_texts_have_prompt_reference_response_reason_and_windows(made: Path) -> None:
    entry = data(made, "text/0-0")["1"]
    assert entry["prompt"] == "What is 1 of gsm8k?" and entry["gold"] == "gold 1"
    text, why, windows = entry["said"]["1"]
    assert (text, why) == ("Response 1 of fef-2", "read 1") and windows[0] == [0, 0, 4, 2, 3]


def test_a_trace_in_the_data_is_the_recorded_one(made: Path) -> None:
    pieces, traces = (data(made, "trace/1-0")[name] for name in ("pieces", "of"))
    recorded = {trace.key: trace for _, trace in each_frame(made.parent)}
    texts = {token: text for trace in recorded.values() for token, text in trace.pieces.items()}
    trace, record = traces["2"]["1"], recorded["fef-2", "math", 2]
    assert [pieces[token] for token in trace["token"]] == [
        texts[token] for token in record.column("token").tolist()
    ]
    assert trace["forward"] == record.column("forward").tolist()
    assert pieces[trace["mask"]] == "<mask>" and [pieces[end] for end in trace["ends"]] == ["<end>"]
    last = dict(
        zip(trace["position"], zip(trace["token"], trace["kind"], strict=True), strict=True)
    )
    final = [
        pieces[last[position][0]]
        for position in range(trace["length"])
        if last[position][1] not in "78"
    ]
    assert set(final) <= {texts[token] for token in replay(record).tolist()}


def test_rows_know_verdicts_and_which_responses_are_the_same(made: Path) -> None:
    groups = {(group["suite"], group["series"]): group for group in data(made, "rows")["groups"]}
    assert groups[0, 0]["right"] == "101" and groups[0, 0]["item"] == [0, 1, 2]
    assert groups[0, 0]["same"] == [0, 0, 0] and groups[0, 1]["same"] == [1, 1, 1]


def test_rows_have_what_responses_cost_where_any_record_does(made: Path, tmp_path: Path) -> None:
    costly = [row | {"flop": 5} for row in full_items()[:1]] + full_items()[1:]
    (group, *_) = rows(open_book([save(tmp_path / "run", costly)]))["groups"]
    assert group["flop"][0] == 5 and set(group["flop"][1:]) == {None} and "joules" not in group
    assert "flop" not in data(made, "rows")["groups"][0]


def test_the_table_has_the_numbers_of_the_tables(tmp_path: Path) -> None:
    run = save(tmp_path / "run", full_items())
    measured = measure(run).set_index(["method", "suite"])
    table = table_of(run)
    assert table.groups == [("Mean", 5), ("GSM8K", 5), ("MATH", 5)]
    ends = ["Empty, %", "Without end, %"]
    assert [column.heading for column in table.columns[:5]] == ["Acc.", "Speed", "Fwd.", *ends]
    assert [cell.value for cell in table.rows[1].cells[5:8]] == [
        *(
            measured.loc[("fef-2", "gsm8k"), name]
            for name in ("accuracy", "speedup", "forward_speedup")
        )
    ]
    assert table.rows[0].cells[5].below[0] == "30.1 to 95.4"


def test_two_methods_have_the_interval_of_the_table_wherever_they_are_compared(made: Path) -> None:
    table, ends = table_of(read_run(made.parent)), data(made, "speeds")
    for group, suite in enumerate(("", "0", "1")):
        interval = "{:.2f} to {:.2f}".format(*ends[suite][0][1])
        assert table.rows[1].cells[5 * group + 1].below[0] == interval
    assert ends["0"][0][1][0] * ends["0"][1][0][1] == pytest.approx(1, abs=1e-3)


def test_the_page_has_marks_and_the_card_as_key_and_value(tmp_path: Path) -> None:
    run = save(tmp_path / "run", full_items())
    config = run.config.to_json()
    lengths = {"llada": 64, "fef-2": 32}
    for name, length in lengths.items():
        setting = {"gen_length": length, "block_length": 32}
        config["methods"][name]["suites"] = dict.fromkeys(config["suites"], setting)
    save(tmp_path / "run", full_items(), config=config)
    assert report.main([str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert "<sup>l</sup> other length" in page
    assert page.count('<bdi>machine</bdi></th><td><bdi class="text">cpu (Test CPU)</bdi>') == 2
    assert '<bdi>FeF-DLLM (step=2)</bdi></th><td><bdi class="text">gen_length=32</bdi>' in page


def test_a_run_that_was_not_timed_has_no_speed(tmp_path: Path) -> None:
    traced_run(tmp_path / "run", 1)
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    meta["config"]["timed"] = False
    (tmp_path / "run" / "run.json").write_text(json.dumps(meta))
    table = table_of(read_run(tmp_path / "run"))
    headings = {column.heading for column in table.columns}
    assert headings == {"Acc.", "Fwd.", "Empty, %", "Without end, %"}


def test_all_that_comes_from_a_run_is_escaped_in_the_page(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"
    traced_run(
        tmp_path / "run", 1, {0: hostile}, {"llada": hostile, "fef-2": hostile}, name=hostile
    )
    report.main([str(tmp_path / "run")])
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert (
        "<script>" not in page and "49" not in re.sub(r"<[^>]*>", "", page).partition("Run card")[0]
    )
    assert re.findall(r"<script[^>]*>", page) == [
        f'<script src="assets/{name}" defer>' for name in SCRIPTS
    ]
    assert "default-src 'none'; script-src 'self';" in page
    assert " on" not in "".join(re.findall(r"<[^>]*>", page)).replace("aria-", "")


SCRIPTS = ("core.js", "overview.js", "items.js", "item.js", "player.js", "compare.js", "start.js")


def test_runs_with_other_problems_have_suites_of_their_own(tmp_path: Path) -> None:
    runs = []
    for name, digest in (("a", "5"), ("b", "5"), ("c", "6")):
        files = {"gsm8k": {"name": "f", "sha256": digest * 64}}
        runs.append(
            save(tmp_path / name, full_items({"gsm8k": ""}), data={"files": files}, name=name)
        )
    book = open_book(runs)
    assert [suite.title for suite in book.suites] == ["GSM8K", "GSM8K (c)"]
    assert [numbers["gsm8k"] for numbers in book.suite_numbers] == [0, 0, 1]
    assert [series.reference for series in book.series] == [0, 0, 2, 2, 4, 4]
    assert {row.cells[0].value for row in table_of(*runs).rows} == {None}


def test_committed_runs_get_their_prompts_by_the_hash_of_their_problems() -> None:
    run = read_run(ROOT / "results" / "reference" / "main")
    prompts = generated_prompts(run)
    gold = run.items[(run.items["suite"] == "math") & (run.items["item"] == 3)]["gold"].iloc[0]
    assert len(prompts) == 800 and prompts["math", 3] == "Find x if 5x + 1 = 16." and gold == "3"
    run.config.samples = 2
    assert generated_prompts(run)["math", 203] == prompts["math", 3]
    run.meta.data["files"]["math"]["sha256"] = "0" * 64
    assert {suite for suite, _ in generated_prompts(run)} == {"gsm8k", "humaneval", "mbpp"}
