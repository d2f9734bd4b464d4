"""How a browser comes by its token: from the link, which keeps none of it, or from a form."""

import re

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect

from tests.browser import opened
from tests.e2e.dashboard.shown import Shown
from tests.http_tokens import bearer_of

pytestmark = pytest.mark.e2e
REFUSED = ["status of 401"]
"""No tokens; the first two no header can carry."""


def token_of(shown: Shown) -> str:
    return bearer_of(shown.url)["Authorization"].removeprefix("Bearer ")


def submit(page: Page, token: str) -> None:
    page.get_by_label("Token", exact=True).last.fill(token)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def kept(page: Page) -> str | None:
    found: str | None = page.evaluate("sessionStorage.getItem('headrace.token')")
    return found


def test_the_link_opens_every_page_and_the_address_keeps_no_token(browser: Browser, shown: Shown) -> None:
    token = token_of(shown)
    with opened(browser, f"{shown.url}/#token={token}", has_token=False) as page:
        expect(page.locator(".charts canvas").first).to_be_visible()
        expect(page.locator(".freshness")).to_have_text("Ended")  # The stream has the token, too.
        page.keyboard.press("3")
        expect(page).to_have_url(re.compile("#/fleet"))
        page.reload()
        expect(page.locator(".freshness")).to_have_text("Ended")
        page.get_by_role("link", name="Annotate").click()
        expect(page.locator("#ask-name")).to_be_visible()
        seen = [page.url]
        for _ in range(3):
            page.go_back()
            seen.append(page.url)
        assert not any(token in url or "token" in url for url in seen), seen


def test_without_a_token_the_page_asks_for_one_and_goes_on_where_it_was(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/fleet", has_token=False, allowed=REFUSED) as page:
        form = page.get_by_role("form", name="Token")
        expect(form).to_contain_text("headrace dashboard RUN_DIR")
        expect(form.get_by_role("alert")).to_have_count(0)
        submit(page, "0" * 64)
        expect(form.get_by_role("alert")).to_contain_text("this needs a token of the run")
        submit(page, f" {token_of(shown)} ")
        expect(page.locator(".freshness")).to_have_text("Ended")
        expect(form).to_have_count(0)
        expect(page).to_have_url(re.compile("#/fleet$"))
