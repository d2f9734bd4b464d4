"""The Run page: the headline, and charts that zoom, are smoothed and picked; its address says what is shown."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect

from tests.browser import opened
from tests.e2e.dashboard.shown import Shown

CATALOG = Path(__file__).parents[3] / "ui/src/charts/catalog.ts"
CHARTS = re.findall(r'title: "(.*?)"', CATALOG.read_text("utf-8"))


def chart(page: Page, title: str) -> str:
    """What a screen reader is told of it."""
    return page.locator(f'figure[aria-label="{title}"] .plot').get_attribute("aria-label") or ""


def test_the_headline_shows_the_state_of_the_run(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        headline = page.locator(".headline")
        expect(headline.locator("h2")).to_have_text("Step 400 of 400")
        expect(headline.locator(".pill")).to_have_text("finished")
        expect(headline.locator(".tile").filter(has_text="Held-out accuracy").locator(".tile-value")).to_contain_text(
            "%"
        )
        expect(headline).to_contain_text("ran 5 min 21 s")
        expect(headline.locator(".tile").filter(has_text="Trainer waited")).to_contain_text("mean of 400 steps")
        expect(page.locator(".freshness")).to_have_text("Ended")
        expect(headline.locator(".bottleneck")).not_to_be_empty()
        expect(headline.get_by_role("button")).to_have_count(0)
        expect(page.locator(".log tbody tr").first).to_contain_text("run ended")


def test_all_charts_are_drawn_and_described_in_words(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        expect(page.locator(".chart canvas")).to_have_count(len(CHARTS))
        assert [one.text_content() for one in page.locator(".chart h3").all()] == CHARTS
        assert re.fullmatch(r"Reward: mean now [\d.]+, between .*; largest now 1.5, .*", chart(page, "Reward"))
        assert re.match(r"Reward by component: correct now [\d.]+, .*; format now", chart(page, "Reward by component"))
        step_time = re.findall(r"(?:: |; )([a-z ]+) now ", chart(page, "Step time"))
        # From the bottom up; what is small is part of the last.
        assert step_time == [
            *("policy update", "wait for batch", "old logprobs", "reference", "optimizer", "snapshot", "checkpoint"),
            "other",
        ]
        assert re.search(r"trained now [\d.k]+, .*; generated now [\d.k]+", chart(page, "Tokens a second"))
        assert re.search(r"whole step now 24\.9%, .*; training now 28\.0%", chart(page, "MFU"))
        assert re.search(r"GPU now 56\.8 GiB, .*; host now 4\.1 GiB", chart(page, "Peak memory"))
        inked = page.evaluate(
            """() => [...document.querySelectorAll(".chart canvas")].map((canvas) => {
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              return new Set(new Uint32Array(data.buffer)).size;
            })"""
        )
        assert min(inked) > 8


def test_a_drag_zooms_all_charts_and_asks_for_a_finer_series(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/run?smooth=off") as page:
        plot = page.locator('figure[aria-label="Loss"] .u-over')
        box = plot.bounding_box()
        assert box is not None
        reward = page.locator('figure[aria-label="Reward"] .plot')
        whole = chart(page, "Reward")
        # `hover` waits until the chart stands still, wherever on the page it is.
        plot.hover(position={"x": box["width"] * 0.25, "y": box["height"] / 2})
        page.mouse.down()
        for share in (0.3, 0.4, 0.5):
            plot.hover(position={"x": box["width"] * share, "y": box["height"] / 2})
        with page.expect_response(re.compile(r"/api/series.*from=10\d&to=(19|20)\d")):
            page.mouse.up()
        expect(page).to_have_url(re.compile(r"from=10\d&to=(19|20)\d"))
        expect(page.get_by_label("From step")).to_have_value(re.compile(r"10\d"))
        # The other charts follow, and a link or a reload shows the same.
        expect(reward).not_to_have_attribute("aria-label", whole)
        zoomed = chart(page, "Reward")
        page.reload()
        expect(reward).to_have_attribute("aria-label", zoomed)
        page.locator('figure[aria-label="Loss"] .u-over').dblclick()
        expect(page).not_to_have_url(re.compile("from="))


def test_a_click_at_a_step_shows_what_moved_in_it_with_links_to_rollouts(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/run?from=301&to=400") as page:
        plot = page.locator('figure[aria-label="Reward"] .u-over')
        box = plot.bounding_box()
        assert box is not None
        plot.click(position={"x": box["width"] / 2, "y": 40})
        dialog = page.get_by_role("dialog", name=re.compile(r"Step 35\d against the steps before it"))
        expect(dialog).to_contain_text(re.compile(r"\d+ rollouts against \d+ of 12 steps"))
        expect(dialog.locator("tbody tr")).to_have_count(20)
        expect(page).to_have_url(re.compile(r"step=35\d"))
        dialog.get_by_role("link", name=re.compile("now g")).first.click()
        expect(page).to_have_url(re.compile(r"#/rollouts/35\d/\d+\?rollout=\d"))


def test_the_cursor_tells_the_values_of_all_charts_at_its_step(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        values = [page.locator(f'figure[aria-label="{title}"] .legend-value').first for title in ("Reward", "Entropy")]
        expect(page.locator('figure[aria-label="Reward"] .u-over')).to_be_visible()
        before = [value.text_content() for value in values]
        page.locator('figure[aria-label="Reward"] .u-over').hover(position={"x": 10, "y": 20})
        for value, old in zip(values, before, strict=True):
            expect(value).not_to_have_text(old or "")
        expect(page.locator('figure[aria-label="Entropy"] figcaption')).to_contain_text(re.compile(r"nats, step \d+"))


def test_curves_lie_along_time_or_tokens_and_a_zoom_stays_one_of_steps(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/run?x=tokens&y=log&from=101&to=200") as page:
        expect(page.locator('figure[aria-label="Loss"] figcaption')).to_contain_text("linear: not all above 0")
        page.locator('figure[aria-label="Entropy"] .u-over').hover(position={"x": 2, "y": 20})
        expect(page.locator('figure[aria-label="Entropy"] figcaption')).to_contain_text("step 101")
        page.get_by_role("button", name="Time").click()
        expect(page).to_have_url(re.compile("x=time"))
        expect(page.get_by_label("From step")).to_have_value("101")


def test_any_metric_can_be_picked(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        page.get_by_role("button", name="Metrics").click()
        dialog = page.get_by_role("dialog", name="Metrics")
        dialog.get_by_label("Find").fill("norm of the gradient before")
        expect(dialog).to_contain_text("Policy")
        expect(dialog.get_by_role("checkbox")).to_have_count(1)
        dialog.get_by_label("grad_norm").check()
        dialog.get_by_role("button", name="Done").click()
        expect(page).to_have_url(re.compile("metrics=grad_norm"))
        expect(page.locator('figure[aria-label="grad_norm"] canvas')).to_be_visible()
        expect(page.get_by_role("button", name="Metrics")).to_be_focused()
