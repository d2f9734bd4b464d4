"""The annotators' page in a real browser, before the real service."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect

from tests import browser as browsers
from tests.annotation import write_prompts, write_run, write_step
from tests.integration.orchestrator.served import Served

HOSTILE = [
    "<script>window.hit = 1; fetch('https://evil.example/')</script>",
    "<img src=x onerror=\"window.hit = 1\"><iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "</div></article><style>body{display:none}</style><a href='javascript:window.hit=1'>x</a>",
    "\u202egnp.exe ${window.hit=1} {{7*7}} &lt;b&gt; " + "wide" * 400,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.launched() as browser:
        yield browser


@contextmanager
def opened(browser: Browser, served: Served, name: str, **options: Any) -> Iterator[Page]:
    """A page of an annotator of their own browser."""
    with browsers.opened(browser, f"{served.url}/annotate", **options) as page:
        expect(page.locator("#name-input")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.locator("#choose-left")).to_have_count(0)  # Nobody judges without a name.
        page.fill("#name-input", name)
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text(name)
        yield page


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


def test_keyboard_shortcuts_judge_skip_and_tie(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        expect(page.locator("#counts")).to_have_text("0 judged by you")
        judge(page, "1", "2", "ArrowLeft", "ArrowRight", "t", "s")
        expect(page.locator("#idle")).to_be_visible()
        expect(page.locator("#choose-left")).to_be_disabled()
        assert [one["choice"] for one in votes(served)] == ["left", "right", "left", "right", "tie", "skip"]
        write_step(served.run_dir, 3, [["new one", "new two"]])
        expect(page.locator("#left")).to_be_visible()
        assert set(answers(page)) == {"new one", "new two"}


def test_a_kill_loses_no_vote_and_the_page_goes_on_by_itself(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann", allowed=["net::ERR"]) as page:
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


def test_model_output_is_shown_as_text_not_markup(browser: Browser, served: Served) -> None:
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
