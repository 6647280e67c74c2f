"""The report in a browser: opened from disk, sorted, filtered, clicked through, played, compared,
and safe."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsers
import pytest
from browsers import Visit, chromium, visit
from run_records import full_items, save
from traced_run import LENGTH, METHODS, traced_run

from tables import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(bool(browsers.MISSING), reason=f"no browser: {browsers.MISSING}"),
]
ITEMS = 12
RIGHT_OF_LLADA = [number % 3 != 1 for number in range(ITEMS)]
RIGHT_OF_FEF = [number % 4 != 1 for number in range(ITEMS)]
FLIPS = sum(a != b for a, b in zip(RIGHT_OF_LLADA, RIGHT_OF_FEF, strict=True))
ITEM = "#/item?suite=0&item=1&series=0%2C1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run."""
    folder = tmp_path_factory.mktemp("report")
    traced_run(folder / "run", ITEMS)
    report.main([str(folder / "run")])
    return folder / "run" / "report"


@pytest.fixture
def opened(browser: Any, made: Path) -> Iterator[Visit]:
    """The report, opened; that nobody complained is checked at the end."""
    with visit(browser, made) as visited:
        yield visited
        assert visited.complaints == []


def screen(visited: Visit, number: int = 0) -> str:
    """What the film of a method shows."""
    return visited.page.locator(".film").nth(number).inner_text()


def test_it_opens_from_disk_and_loads_what_is_large_on_demand_alone(opened: Visit) -> None:
    assert opened.shown("#table tbody th") == list(METHODS.values())
    opened.page.wait_for_selector("#plot-acceptance[data-drawn]")
    assert all(
        address.startswith(("file:", "about:", "data:", "blob:")) for address in opened.asked
    )
    assert not [address for address in opened.asked if re.search("data/(text|trace)/", address)]
    opened.go(ITEM)
    loaded = [address for address in opened.asked if re.search("data/(text|trace)/", address)]
    assert len(loaded) == 2


def test_a_column_sorts_both_ways_by_mouse_and_keyboard(opened: Visit) -> None:
    head = opened.page.get_by_role("button", name="GSM8K Acc.")
    accuracy = [sum(right) for right in (RIGHT_OF_LLADA, RIGHT_OF_FEF)]
    best_first = [
        name for _, name in sorted(zip(accuracy, METHODS.values(), strict=True), reverse=True)
    ]
    head.click()
    assert opened.shown("#table tbody th") == best_first
    assert opened.page.locator("th[aria-sort=descending]").count() == 1
    head.focus()
    opened.page.keyboard.press("Enter")
    assert opened.shown("#table tbody th") == best_first[::-1]


def test_a_cell_leads_to_its_items_and_these_to_an_item(opened: Visit) -> None:
    row = opened.page.locator("#table tbody tr").filter(has_text="FeF-DLLM")
    row.locator("td a[href*=suite]").first.click()  # behind the Mean, which leads to all suites
    opened.settled()
    assert opened.shown("#list tbody td:nth-child(2)") == ["FeF-DLLM (step=2)"] * ITEMS
    assert opened.shown("#list tbody td:nth-child(1)") == [
        f"GSM8K {number}" for number in range(ITEMS)
    ]
    opened.page.get_by_role("link", name="GSM8K 5", exact=True).click()
    opened.settled()
    assert opened.shown("#item article h2") == ["LLaDA", "FeF-DLLM (step=2)"]
    prompt = opened.page.locator("#item details").filter(has_text="Prompt")
    assert "What is 5 of gsm8k?" not in prompt.inner_text()
    prompt.locator("summary").click()
    assert "What is 5 of gsm8k?" in prompt.inner_text()
    assert "read 5" in opened.page.locator("article").first.inner_text()


def test_a_filter_keeps_what_it_says_and_a_search_looks_into_the_texts(opened: Visit) -> None:
    opened.go("#/items")
    right, wrong = (
        2 * (RIGHT_OF_LLADA.count(each) + RIGHT_OF_FEF.count(each)) for each in (True, False)
    )
    counts = {
        "wrong": wrong,
        "flips": 2 * FLIPS,
        "right": right,
        "unscored": 0,
        "slow": 4,
        "": 4 * ITEMS,
    }
    for only, count in counts.items():
        opened.page.get_by_label("Show").select_option(only)
        opened.settled()
        assert opened.page.locator("#count").inner_text() == f"{count} responses"
        assert opened.page.locator("#list tbody tr").count() == count
    opened.page.get_by_label("Text").fill("RESPONSE 11 of fef")
    opened.page.keyboard.press("Enter")
    opened.settled()
    assert opened.shown("#list tbody td:nth-child(1)") == ["GSM8K 11", "MATH 11"]


def test_what_a_response_costs_has_columns_where_any_response_does(
    browser: Any, opened: Visit, tmp_path: Path
) -> None:
    opened.go("#/items")
    assert opened.shown("#list thead th")[-1] == "Accepted"
    spent = {"draw_seconds": 0.5, "flop": 3 * 10**12, "peak_bytes": 2**31}
    first, *others = full_items()
    save(tmp_path / "run", [first | spent, *others])
    report.main([str(tmp_path / "run")])
    with visit(browser, tmp_path / "run" / "report") as visited:
        visited.go("#/items")
        assert visited.shown("#list thead th")[-3:] == ["Draws, %", "TFLOP", "Peak, GiB"]
        assert visited.shown("#list tbody tr:nth-child(1) td")[-3:] == ["25.0", "3.0000", "2.00"]
        assert visited.shown("#list tbody tr:nth-child(2) td")[-3:] == ["-", "-", "-"]


def test_keys_move_through_a_decoding_and_space_plays_it_and_the_address_follows(
    opened: Visit,
) -> None:
    opened.go(ITEM)
    final = screen(opened)
    opened.page.keyboard.press("Home")
    assert screen(opened) == "▢" * LENGTH
    opened.page.keyboard.press("ArrowRight")
    assert screen(opened) == "one" + "▢" * (LENGTH - 1)
    assert opened.page.locator("#clock").inner_text() == f"forward 1 of {LENGTH}"
    opened.page.keyboard.press("End")
    assert screen(opened) == final == "one" * (LENGTH - 1) + " six"
    opened.go(f"{ITEM}&forward=5")
    opened.page.locator("#item h1").click()
    opened.page.keyboard.press("Space")
    opened.until(f"location.hash.endsWith('forward={LENGTH}')")
    assert opened.page.locator("#play").inner_text() == "Play"


def test_a_film_shows_drafts_in_flight_accepted_corrected_rejected_and_masked_again(
    opened: Visit,
) -> None:
    opened.go(f"{ITEM}&forward=1")
    film = opened.page.locator("article[data-series='1'] .film")
    kinds = "kind => kind.map(each => each.className.split(' ')[1])"
    assert film.locator(".token").evaluate_all(kinds)[:4] == ["flight"] * 4
    opened.go(f"{ITEM}&forward=2")
    expected = ["known", "accepted", "corrected", "rejected", "mask", "discarded"]
    assert film.locator(".token").evaluate_all(kinds)[:6] == expected
    rejected = film.locator(".rejected").get_attribute("title")
    assert rejected is not None and "p 0.700 by the draft, p 0.100 by the target" in rejected
    opened.go(f"{ITEM}&forward=4")
    assert film.locator(".remasked").count() == 2
    opened.go(f"{ITEM}&forward=6")
    assert film.locator(".filled").count() == 2 and film.locator(".mask").count() == 0


def test_an_address_leads_back_to_exactly_its_view(opened: Visit, browser: Any, made: Path) -> None:
    opened.go(f"{ITEM}&forward=3")
    opened.page.keyboard.press("ArrowRight")
    address, seen = opened.page.url, [screen(opened, number) for number in range(2)]
    with visit(browser, made) as other:
        other.go(f"#{address.partition('#')[2]}")
        assert [screen(other, number) for number in range(2)] == seen
        assert other.page.locator("#clock").inner_text() == f"forward 4 of {LENGTH}"


def test_a_window_is_drawn_where_it_is_and_leads_to_the_forward_that_judged_it(
    opened: Visit,
) -> None:
    opened.go(ITEM)
    rows = opened.page.locator("article[data-series='1'] .strip button")
    left = (
        "buttons => buttons.map(each => [...each.querySelectorAll('.bar')].map(bar =>"
        " bar.style.left))"
    )
    assert rows.evaluate_all(left) == [
        ["0%", "12.5%", "25%", "37.5%"],
        ["37.5%", "50%", "62.5%"],
        ["25%", "50%"],
    ]
    kept = (
        "buttons => buttons.map(each => [...each.querySelectorAll('.kept')].map(bar =>"
        " bar.style.width))"
    )
    assert rows.evaluate_all(kept)[0] == ["100%", "100%", "0%", "0%"]
    rows.nth(1).click()
    assert opened.page.locator("#clock").inner_text() == f"forward 4 of {LENGTH}"


def test_a_point_of_a_figure_leads_to_what_is_behind_it(opened: Visit) -> None:
    opened.page.wait_for_selector("#plot-acceptance[data-drawn]")
    opened.page.locator("#plot-acceptance .points path").first.hover(force=True)
    opened.page.locator("#plot-acceptance .points path").first.click(force=True)
    opened.until("location.hash.startsWith('#/items?')")
    assert "series=1" in opened.page.url


def test_two_methods_are_compared(opened: Visit) -> None:
    mean = opened.page.locator("#table tbody tr").nth(1).locator("td").nth(1)
    speed, interval = (mean.locator(part).inner_text() for part in ("a", "small"))
    opened.go("#/compare")
    assert opened.shown("#sums tbody tr:last-child td:last-child") == [f"{speed} ({interval})"]
    assert opened.page.locator("#differing").inner_text() == f"{2 * FLIPS} of {2 * ITEMS} items"
    opened.until("!document.querySelector('#pairs tbody').innerText.includes('..')")
    assert 'position 1: "one", " two"' in opened.page.locator("#pairs tbody tr").first.inner_text()
    opened.page.wait_for_selector("#plot-speed[data-drawn]")


def test_two_runs_are_compared(browser: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        traced_run(tmp_path / name, 3, name=name)
    report.main([str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both")])
    with visit(browser, tmp_path / "both") as opened:
        assert opened.shown("#table tbody th") == [
            f"{label} ({run})" for run in "ab" for label in METHODS.values()
        ]
        opened.go("#/compare?a=0&b=2&what=tokens")
        assert opened.page.locator("#differing").inner_text() == "0 of 6 items"
        opened.go("#/compare?a=0&b=3&what=")
        assert opened.page.locator("#pairs tbody tr").count() == 6
        assert opened.complaints == []
