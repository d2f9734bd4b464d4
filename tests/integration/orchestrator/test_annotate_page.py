"""The annotators' page in a real browser, before the real service."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.annotation import write_prompts, write_run, write_step
from tests.http_tokens import script
from tests.integration.orchestrator.served import Served

PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

HOSTILE = [
    "<script>window.hit = 1; fetch('https://evil.example/')</script>",
    "<img src=x onerror=\"window.hit = 1\"><iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "</div></article><style>body{display:none}</style><a href='javascript:window.hit=1'>x</a>",
    "\u202egnp.exe ${window.hit=1} {{7*7}} &lt;b&gt; " + "wide" * 400,
]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, served: Served, name: str, **options: Any) -> Iterator[Page]:
    """A page of an annotator of their own browser; errors on it, and requests to elsewhere, fail the test."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(script(served.url))
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda one: errors.append(one.text) if one.type in ("error", "warning") else None)
    page.on("request", lambda one: None if one.url.startswith(served.url) else errors.append(one.url))
    page.goto(f"{served.url}/annotate")
    page.fill("#name-input", name)
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_have_text(name)
    yield page
    allowed = getattr(page, "allowed", ())
    assert [one for one in errors if not any(words in one for words in allowed)] == []
    context.close()


def judge(page: Page, *keys: str) -> None:
    for key in keys:
        before = int((page.locator("#counts").text_content() or "0").split()[0])
        expect(page.locator("#choose-left")).to_be_enabled()
        page.keyboard.press(key)
        expect(page.locator("#counts")).to_contain_text(f"{before + 1} judged")


def votes(served: Served) -> list[dict[str, Any]]:
    lines = (served.run_dir / "annotations" / "votes.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if json.loads(line)["kind"] != "pair"]


def answers(page: Page) -> list[str | None]:
    return [page.locator(f"#{side} .text").text_content() for side in ("left", "right")]


def test_one_hand_on_the_keyboard_judges_skips_and_ties(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        expect(page.locator("#counts")).to_have_text("0 judged by you, 6 waiting")
        judge(page, "1", "2", "ArrowLeft", "ArrowRight", "t", "s")
        expect(page.locator("#idle")).to_be_visible()
        expect(page.locator("#choose-left")).to_be_disabled()
        assert [one["choice"] for one in votes(served)] == ["left", "right", "left", "right", "tie", "skip"]
        expect(page.locator("#fact-judged")).to_have_text("5")
        expect(page.locator("#fact-ranked")).to_have_text("4")
        write_step(served.run_dir, 3, [["new one", "new two"]])
        expect(page.locator("#task")).to_be_visible()
        assert set(answers(page)) == {"new one", "new two"}


def test_a_kill_loses_no_vote_and_the_page_goes_on_by_itself(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        page.allowed = ("net::ERR",)  # type: ignore[attr-defined]
        judge(page, "1", "2")
        served.kill()
        expect(page.locator("#choose-left")).to_be_enabled()
        page.keyboard.press("t")
        expect(page.locator("#notice")).to_contain_text("Your verdict is not saved yet")
        page.keyboard.press("1")  # Nothing else can be said meanwhile.
        served.start()
        expect(page.locator("#counts")).to_contain_text("3 judged")
        expect(page.locator("#notice")).to_be_hidden()
        judge(page, "s")
    assert [one["choice"] for one in votes(served)] == ["left", "right", "tie", "skip"]
    served.stop()
    assert len((served.run_dir / "annotations" / "pairs.jsonl").read_text().splitlines()) == 2


def test_nobody_judges_without_a_name(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    context = browser.new_context()
    context.add_init_script(script(served.url))
    page = context.new_page()
    page.goto(f"{served.url}/annotate")
    for _ in range(3):  # A browser lets a second Escape close what a first one may not.
        page.keyboard.press("Escape")
        expect(page.locator("#ask-name")).to_be_visible()
    expect(page.locator("#choose-left")).to_be_disabled()
    context.close()


def test_what_a_model_wrote_stays_text(browser: Browser, served: Served) -> None:
    write_step(served.run_dir, 1, [HOSTILE[:2], HOSTILE[2:]])
    write_prompts(served.run_dir, {"s0": [{"role": "user", "content": HOSTILE[0]}], "s1": None})
    served.start()
    shown: set[str | None] = set()
    with opened(browser, served, "ann", viewport={"width": 390, "height": 844}) as page:
        for _ in range(2):
            expect(page.locator("#choose-left")).to_be_enabled()
            shown.update(answers(page))
            assert page.evaluate("[window.hit ?? null, document.scripts.length, document.images.length]") == [
                None,
                1,
                1,
            ]
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            judge(page, "1")
    assert shown == set(HOSTILE)


def contrast(page: Page, selector: str) -> float:
    """WCAG 2 contrast of a text against what is behind it."""
    ink, ground = page.eval_on_selector(
        selector,
        """(one) => {
          let behind = one;
          while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
          return [getComputedStyle(one).color, getComputedStyle(behind).backgroundColor];
        }""",
    )
    lights = sorted((_luminance(ink), _luminance(ground)), reverse=True)
    return (lights[0] + 0.05) / (lights[1] + 0.05)


def _luminance(color: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", color)[:3])
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
