"""A real browser on pages of ours: errors on them, and requests to elsewhere, fail the test."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.wire.process.environment import inherited

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.http_tokens import script

# Playwright's own 5 s, and 30 s for what is done to a page, are few on a busy machine.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

REQUIRE = "HEADRACE_REQUIRE_BROWSER"


def chromium_path() -> str:
    """Path of the browser; without one the test is skipped, unless it is said that it must run."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if inherited().get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but there is no chromium on the path")
        pytest.skip(f"no chromium on the path; {REQUIRE}=1 makes this a failure")
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, allowed: Sequence[str] = (), has_token: bool = True, **options: Any
) -> Iterator[Page]:
    """A page in a browser context of its own; what the console says with one of the words `allowed` is let pass.

    `has_token`: the tab has the token that is known of the page.
    """
    origin = re.match(r"https?://[^/]+", url)
    assert origin is not None
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    if has_token:
        context.add_init_script(script(url))
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda one: errors.append(one.text) if one.type in ("error", "warning") else None)
    page.on("request", lambda one: None if one.url.startswith(origin.group()) else errors.append(one.url))
    page.goto(url)
    yield page
    context.close()
    heard = [one for one in errors if not any(words in one for words in allowed)]
    assert heard == [], heard


def luminance(color: str) -> float:
    """WCAG 2 relative luminance of a computed `rgb(...)`."""
    red, green, blue = (float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3])
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, ground: str) -> float:
    """WCAG 2 contrast of two computed colours, in 1 to 21."""
    lights = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (lights[0] + 0.05) / (lights[1] + 0.05)
