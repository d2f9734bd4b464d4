"""The Rollouts page: 10,000 rows of which few are drawn, filters in the address, and a group side by side."""

import re

import httpx
import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, expect

from tests.browser import opened
from tests.e2e.dashboard.shown import Shown
from tests.http_tokens import bearer_of


def test_ten_thousand_rows_are_browsed_with_few_drawn(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts", viewport={"width": 1280, "height": 800}) as page:
        expect(page.locator(".page-head")).to_contain_text("10,000 rollouts")
        expect(page.locator(".row-link").first).to_have_text("400")
        page.evaluate("document.querySelector('.list-body').scrollTop = 1e9")
        expect(page.locator('[aria-rowindex="10001"] .row-link')).to_have_text("1")
        assert page.locator(".list-row").count() < 100
        page.evaluate("document.querySelector('.list-body').scrollTop = 170000")
        expect(page.locator('[aria-rowindex="5010"] .row-link')).to_be_visible()


def test_filters_and_order_are_in_the_address(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts") as page:
        page.get_by_label("Step from").fill("390")
        page.get_by_label("Reward from").fill("1")
        page.get_by_label("Finish").select_option("length")
        expect(page).to_have_url(re.compile("finish=length"))
        expect(page).to_have_url(re.compile("step_from=390"))
        page.get_by_role("button", name="Tokens").click()
        expect(page.get_by_role("columnheader", name="Tokens")).to_have_attribute("aria-sort", "descending")
        # Until the answer is here, the list before it is shown: it has such rows, too.
        wanted = {"step_from": 390, "reward_min": 1, "finish": "length"}
        url, headers = f"{shown.url}/api/rollouts", bearer_of(shown.url)
        found = httpx.get(url, params=wanted, headers=headers, trust_env=False, timeout=60).json()["total"]
        expect(page.locator(".page-head")).to_contain_text(f"Rollouts{found} rollouts")
        page.reload()
        expect(page.locator(".page-head")).to_contain_text(f"Rollouts{found} rollouts")
        expect(page.get_by_label("Step from")).to_have_value("390")
        lengths = [int(text) for text in page.locator(".list-body .tokens").all_text_contents()]
        assert lengths == sorted(lengths, reverse=True) and len(lengths) > 3
        page.get_by_role("button", name="Clear").click()
        expect(page.locator(".page-head")).to_contain_text("10,000 rollouts")


def test_text_search_reports_when_nothing_matches(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts") as page:
        page.get_by_label("Text contains").fill("carry the")
        expect(page.locator(".completion", has_text="carry the").first).to_be_visible()
        page.get_by_label("Text contains").fill("no such words")
        expect(page.get_by_role("heading", name="No rollouts")).to_be_visible()


def test_the_keyboard_walks_the_list_into_a_group_and_back(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts", viewport={"width": 1280, "height": 800}) as page:
        page.locator(".row-link").first.focus()
        for number in range(1, 61):
            # Rows out of sight are drawn with the frame after the scroll, and keys may come faster than frames.
            expect(page.locator(f'.row-link[data-at="{number}"]')).to_be_attached()
            page.keyboard.press("ArrowDown")
        expect(page.locator('.row-link[data-at="60"]')).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(page.locator('.row-link[data-at="59"]')).to_be_focused()
        name = page.locator('.row-link[data-at="59"]').get_attribute("aria-label")
        # With the next frame the page has heard of the scroll, too.
        at = page.evaluate(
            """() => new Promise((resolve) => requestAnimationFrame(
              () => resolve(document.querySelector('.list-body').scrollTop)))"""
        )
        assert at > 0
        page.keyboard.press("Enter")
        expect(page.locator("article.rollout")).to_have_count(4)
        assert f"Rollout {(name or '')[-1]}" == page.locator("article.rollout.chosen").get_attribute("aria-label")
        page.keyboard.press("Escape")
        expect(page.locator('.row-link[data-at="59"]')).to_be_visible()
        page.wait_for_function("(at) => document.querySelector('.list-body').scrollTop === at", arg=at)


def test_a_group_stands_side_by_side_with_scores_and_every_token(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts/400/2499", viewport={"width": 1280, "height": 800}) as page:
        cards = page.locator("article.rollout")
        expect(cards).to_have_count(4)
        tops = [(one.bounding_box() or {})["y"] for one in cards.all()]
        assert len(set(tops)) == 1
        first = cards.first
        for words in ("reward", "advantage", "correct", "format", "ended by", "by version"):
            expect(first).to_contain_text(words)
        # A click is answered before the page is drawn anew.
        shaded = """(how) => [...document.querySelectorAll('.token')].every(
            (one) => (one.className.match(/(adv|lp)-\\w/)?.[1] ?? '') === how)"""
        page.wait_for_function(shaded, arg="adv")
        page.get_by_role("button", name="Logprob").click()
        page.wait_for_function(shaded, arg="lp")
        page.get_by_role("button", name="Plain").click()
        page.wait_for_function(shaded, arg="")


def test_each_token_shows_its_details_to_mouse_and_keyboard(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts/400/2499") as page:
        text = page.locator(".token-text").first
        expect(text.locator(".token").first).to_be_visible()
        text.locator(".token").nth(3).hover()
        expect(page.locator(".tip")).to_contain_text(re.compile(r"4 of \d+"))
        expect(page.locator(".tip")).to_contain_text("logprob")
        page.mouse.move(0, 0)
        expect(page.locator(".tip")).to_have_count(0)
        text.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".tip")).to_contain_text(re.compile(r"2 of \d+"))
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".tip")).to_contain_text(re.compile(r"1 of \d+"))
