"""The event stream when the service goes away and comes back: the page says so, and nothing is missing afterwards."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, Request, expect

from tests.browser import opened
from tests.dashboard_run import write_metrics, write_run
from tests.e2e.dashboard.shown import Shown

AWAY = ["net::ERR", "Failed to load resource"]


@pytest.fixture
def alone(tmp_path: Path) -> Shown:
    return Shown(write_run(tmp_path / "run", steps=50, rollouts=8))


def steps_drawn(page: Page) -> None:
    """And what comes from now on is told: steps before the stream has begun would be in neither."""
    expect(page.locator(".freshness")).to_have_text("Ended")
    expect(page.locator('figure[aria-label="Loss"] canvas')).to_be_visible()


def test_new_steps_appear_without_a_reload_and_missed_ones_after_a_restart(browser: Browser, alone: Shown) -> None:
    alone.start()
    metrics = alone.run_dir / "metrics.jsonl"
    try:
        with opened(browser, alone.url, allowed=AWAY) as page:
            steps_drawn(page)
            last = page.get_by_label("To step")
            expect(last).to_have_attribute("placeholder", "50")
            asked: list[Request] = []
            page.on("request", lambda one: asked.append(one) if "/api/series" in one.url else None)
            write_metrics(metrics, range(51, 61), add=True)
            expect(last).to_have_attribute("placeholder", "60")
            expect(page.locator(".headline h2")).to_contain_text("Step 60")
            alone.kill()
            expect(page.locator(".freshness")).to_contain_text(re.compile(r"Reconnecting, data \d+ s old"))
            write_metrics(metrics, range(61, 71), add=True)
            alone.start(wait=False)
            expect(page.locator(".freshness")).to_have_text("Ended")
            expect(last).to_have_attribute("placeholder", "70")
            page.wait_for_timeout(1500)
            assert asked == []
    finally:
        alone.stop()


def test_retrained_steps_make_the_page_reload(browser: Browser, alone: Shown) -> None:
    alone.start()
    try:
        with opened(browser, alone.url) as page:
            steps_drawn(page)
            before = page.locator('figure[aria-label="Loss"] .plot').get_attribute("aria-label")
            with page.expect_request(re.compile("/api/series")):
                write_metrics(alone.run_dir / "metrics.jsonl", range(41, 51), seed=7, add=True)
            expect(page.locator('figure[aria-label="Loss"] .plot')).not_to_have_attribute("aria-label", before or "")
    finally:
        alone.stop()
