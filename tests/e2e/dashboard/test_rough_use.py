"""Slow networks, odd addresses, answers that are none, and runs that go on while somebody types, scrolls and looks."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect

from tests.browser import opened
from tests.dashboard_run import write_metrics, write_rollout_file, write_run
from tests.e2e.dashboard.shown import Shown
from tests.http_tokens import bearer_of
from tests.waiting import until

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


@pytest.mark.long
def test_an_address_that_is_none_is_no_empty_page(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/%E0%A4%A?runs=%E0", allowed=["422"]) as page:
        expect(page.locator(".chart canvas").first).to_be_visible()
        page.evaluate("location.hash = '#/rollouts/%E0%A4%A/3'")
        expect(page.get_by_role("alert")).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("params", ["from=9999999999999999999999", "newest=9999999999999999999999", "from=50&to=10"])
def test_steps_that_are_none_hide_no_curves_of_others(browser: Browser, shown: Shown, params: str) -> None:
    with opened(browser, f"{shown.url}/#/run?{params}") as page:
        expect(page.locator(".headline h2")).to_contain_text("Step 400")
        expect(page.locator(".chart").first).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.long
def test_all_metrics_at_once_have_charts(browser: Browser, shown: Shown) -> None:
    wanted = ",".join([*(f"none_{number}" for number in range(100)), "extra_21"])
    with opened(browser, f"{shown.url}/#/run?metrics={wanted}") as page:
        expect(page.locator('figure[aria-label="extra_21"] canvas')).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_what_is_typed_stays_while_steps_come(browser: Browser, going: Shown) -> None:
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


@pytest.mark.long
def test_who_leaves_while_typing_takes_nothing_along(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts") as page:
        expect(page.locator(".row-link").first).to_be_visible()
        page.evaluate(
            """() => {
              const field = document.querySelector("[name=text]");
              field.value = "carry";
              field.dispatchEvent(new Event("input", { bubbles: true }));
              setTimeout(() => { location.hash = "#/compare"; });
            }"""
        )
        expect(page.locator(".chart canvas").first).to_be_visible()
        page.wait_for_timeout(500)
        assert page.url.endswith("#/compare")


@pytest.mark.long
def test_a_list_that_grows_above_does_not_shift_below(browser: Browser, going: Shown) -> None:
    def asked(**params: int) -> Any:
        return httpx.get(
            f"{going.url}/api/rollouts", params=params, headers=bearer_of(going.url), trust_env=False, timeout=30
        ).json()

    with opened(browser, f"{going.url}/#/rollouts") as page:
        expect(page.locator(".page-head")).to_contain_text("800 rollouts")
        row = asked(offset=300, limit=1)["rows"][0]
        write_rollout_file(going.run_dir / "rollouts", 9000, 1000, 30)
        until(lambda: asked(limit=0)["total"] == 920, "the new rollouts to be read")
        page.evaluate("document.querySelector('.list-body').scrollTop = 300 * 34")
        label = f"Step {row['step']}, group {row['group_index']}, rollout {row['rollout_index']}"
        expect(page.locator('[aria-rowindex="302"] .row-link')).to_have_attribute("aria-label", label)
        expect(page.locator(".page-head")).to_contain_text("800 rollouts")


@pytest.mark.long
def test_of_what_is_long_the_beginning_is_drawn_until_all_is_wanted(browser: Browser, going: Shown) -> None:
    path = write_rollout_file(going.run_dir / "rollouts", 9001, 2000, 1)
    rows = pq.read_table(path).to_pylist()
    rows[0] |= {"token_ids": [40] * 12_000, "logprobs": [-0.5] * 12_000, "spans": "[[1, 2]]"}
    rows[1] |= {"token_ids": None, "logprobs": None, "completion": "A" * 60_000 + "end", "components": '{"a": NaN}'}
    pq.write_table(pa.Table.from_pylist(rows), path)
    group = f"{going.url}/api/rollouts/9001/2000"
    until(
        lambda: httpx.get(group, headers=bearer_of(group), trust_env=False, timeout=30).status_code == 200,
        "the group to be read",
    )
    with opened(browser, f"{going.url}/#/rollouts/9001/2000") as page:
        first, second = page.get_by_label("Rollout 0", exact=True), page.get_by_label("Rollout 1", exact=True).first
        expect(first).to_contain_text("The first 10,000 of 12,000 tokens are shown", timeout=SLOW_MS)
        assert page.locator(".token-text").first.locator(".token").count() == 10_000
        first.get_by_role("button", name="Show all").click()
        expect(page.locator('[data-token="11999"]')).to_have_count(1)
        expect(second).not_to_contain_text("Aend")
        second.get_by_role("button", name="Show all").click()
        expect(second).to_contain_text("Aend")


@pytest.mark.long
def test_a_slow_answer_is_waited_for(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        expect(page.locator(".chart canvas").first).to_be_visible()
        slow_down(page, 2500)  # More than the pause between two questions.
        page.evaluate("location.hash = '#/fleet'")
        expect(page.locator(".phase-bar").first).to_be_visible(timeout=SLOW_MS)


@pytest.mark.long
def test_curves_come_over_a_slow_network_while_steps_come(browser: Browser, going: Shown) -> None:
    with opened(browser, f"{going.url}/#/queues") as page:
        expect(page.locator(".freshness")).to_have_text("Live")
        slow_down(page, 1500)
        with steps_written(going, 0.2):
            page.evaluate("location.hash = '#/run'")
            expect(page.locator(".chart canvas").first).to_be_visible(timeout=SLOW_MS)


def test_a_page_that_cannot_be_drawn_says_so_and_the_others_are_there(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url, allowed=["cannot be drawn"]) as page:
        page.route("**/api/fleet", lambda route: route.fulfill(json={"replicas": 5, "publications": None}))
        page.evaluate("location.hash = '#/fleet'")
        expect(page.get_by_role("alert")).to_contain_text("cannot be drawn")
        page.get_by_role("link", name="Rollouts").click()
        expect(page.locator(".row-link").first).to_be_visible()
        page.unroute("**/api/fleet")
        page.get_by_role("link", name="Fleet").click()
        expect(page.locator(".phase-bar").first).to_be_visible()
