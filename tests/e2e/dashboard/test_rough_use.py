"""Slow networks, odd addresses, answers that are none, and runs that go on while somebody types, scrolls and looks."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect

from tests.browser import opened
from tests.dashboard_run import write_metrics, write_run
from tests.e2e.dashboard.shown import Shown

STEPS = 100
SLOW_MS = 60_000


@pytest.fixture(scope="module")
def going(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A run that the tests add steps to."""
    server = Shown(write_run(tmp_path_factory.mktemp("going") / "run", steps=STEPS, rollouts=800))
    server.start()
    yield server
    server.stop()


@contextmanager
def steps_written(run: Shown, pause_s: float) -> Iterator[None]:
    """Beside the test, one after the other."""
    path, stop = run.run_dir / "metrics.jsonl", threading.Event()
    first = path.read_text().count("\n") + 1

    def write() -> None:
        for step in range(first, first + 10_000):
            write_metrics(path, [step], add=True)
            if stop.wait(pause_s):
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def slow_down(page: Page, latency_ms: int) -> None:
    """Every answer is so late."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    how = {"offline": False, "latency": latency_ms, "downloadThroughput": -1, "uploadThroughput": -1}
    session.send("Network.emulateNetworkConditions", how)


def test_typed_text_stays_while_new_steps_arrive(browser: Browser, going: Shown) -> None:
    with opened(browser, f"{going.url}/#/rollouts") as page:
        expect(page.locator(".row-link").first).to_be_visible()
        field = page.get_by_label("Text contains")
        field.click()
        with steps_written(going, 0.1):
            # Slower and faster than the address follows.
            page.keyboard.type("carry the ", delay=170)
            expect(page).to_have_url(re.compile(r"text=carry\+the"))
            expect(page.get_by_role("button", name="more steps")).to_be_visible()
            page.keyboard.type("first", delay=400)
            expect(field).to_have_value("carry the first")


def test_a_page_that_fails_to_render_shows_an_error_and_other_pages_work(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url, allowed=["cannot be drawn"]) as page:
        page.route("**/api/fleet", lambda route: route.fulfill(json={"replicas": 5, "publications": None}))
        page.evaluate("location.hash = '#/fleet'")
        expect(page.get_by_role("alert")).to_contain_text("cannot be drawn")
        page.get_by_role("link", name="Rollouts").click()
        expect(page.locator(".row-link").first).to_be_visible()
        page.unroute("**/api/fleet")
        page.get_by_role("link", name="Fleet").click()
        expect(page.locator(".phase-bar").first).to_be_visible()
