"""A headless browser for tests of pages: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:
    MISSING = "playwright is not installed (pip install playwright)"
else:
    MISSING = "" if CHROMIUM else "there is no chromium (apt-get install chromium)"
PATIENCE = 20_000  # milliseconds until a page that shows nothing has failed


@dataclass
class Visit:
    """A page that was opened. complaints: what the console and the network had to say against it;
    asked: addresses."""

    page: Page
    index: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def go(self, view: str) -> Visit:
        """Go to a view of the report that is open, or open it, and wait until it is there."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.index}{view}")
        return self.settled()

    def settled(self) -> Visit:
        """Wait until the view of the address is shown."""
        self.until("document.body.dataset.ready === (location.hash || '#')")
        return self

    def until(self, condition: str) -> None:
        """Wait until an expression is true; Playwright's own wait is code that the page's policy
        refuses."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, f"still not: {condition}"
            self.page.wait_for_timeout(20)

    def shown(self, selector: str) -> list[str]:
        """The texts of the elements that are to be seen."""
        return [
            each.inner_text() for each in self.page.locator(selector).all() if each.is_visible()
        ]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, which ends with the context."""
    with sync_playwright() as playwright:
        # Without its own sandbox, which root cannot have: it reads what a test has written, and no
        # network.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(browser: Browser, report: Path, width: int = 1280, **options: Any) -> Iterator[Visit]:
    """A report opened from disk in a window of that width."""
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    visited = Visit(page, (report / "index.html").resolve().as_uri())
    page.on(
        "console",
        lambda said: (
            visited.complaints.append(said.text) if said.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: visited.complaints.append(str(error)))
    page.on("requestfailed", lambda request: visited.complaints.extend(_failures(request)))
    page.on("request", lambda request: visited.asked.append(request.url))
    try:
        yield visited.go("")
    finally:
        context.close()


def _failures(request: Any) -> list[str]:
    """A request that failed, unless it was given up because the page went elsewhere."""
    return (
        []
        if request.failure == "net::ERR_ABORTED"
        else [f"failed: {request.url}: {request.failure}"]
    )
