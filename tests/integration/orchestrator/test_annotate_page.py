"""The annotators' page in a real browser, before the real service."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.annotation import write_prompts, write_run, write_step
from tests.http_tokens import bearer_of, script
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


@pytest.mark.long
def test_the_buttons_do_what_the_keys_do(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        for number, button in enumerate(("left", "right", "tie", "skip"), start=1):
            page.click(f"#choose-{button}")
            expect(page.locator("#counts")).to_contain_text(f"{number} judged")
        assert [one["choice"] for one in votes(served)] == ["left", "right", "tie", "skip"]


@pytest.mark.long
def test_undo_brings_the_same_pair_back_also_after_a_reload(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        expect(page.locator("#undo")).to_be_disabled()
        first = answers(page)
        judge(page, "1")
        page.reload()
        expect(page.locator("#undo")).to_be_enabled()
        assert answers(page) != first
        page.keyboard.press("u")
        expect(page.locator("#counts")).to_contain_text("0 judged")
        assert answers(page) == first
        judge(page, "2")
    assert [(one["kind"], one.get("choice")) for one in votes(served)] == [
        ("vote", "left"), ("undo", None), ("vote", "right"),
    ]  # fmt: skip


@pytest.mark.long
def test_two_annotators_see_how_far_they_agree(browser: Browser, served: Served) -> None:
    write_run(served.run_dir, steps=1, groups=4)
    served.start()
    with opened(browser, served, "ann") as page:
        judge(page, "1", "2", "1", "2")
        expect(page.locator("#fact-percent")).to_have_text("-")
    with opened(browser, served, "bob") as page:
        # All pairs are Ann's: Bob says of each what she said, but for the last.
        said = {one["pair"]: one["choice"] for one in votes(served)}
        for number in range(4):
            expect(page.locator("#choose-left")).to_be_enabled()
            pair = page.evaluate(
                "async (headers) => "
                "(await (await fetch('/api/annotation/next?annotator=bob', { headers })).json()).pair.id",
                bearer_of(served.url),
            )
            choice = said[pair] if number < 3 else "tie"
            judge(page, {"left": "1", "right": "2", "tie": "t"}[choice])
        expect(page.locator("#fact-annotators")).to_have_text("2")
        expect(page.locator("#fact-shared")).to_have_text("4")
        expect(page.locator("#fact-percent")).to_have_text("75%")
        expect(page.locator("#fact-alpha")).to_have_text(re.compile(r"0\.6\d"))


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


class LostAnswer:
    """The service has kept the act, but the page did not hear so; a second try waits until it is let through."""

    def __init__(self) -> None:
        self._is_lost = self._is_open = False
        self._waiting: list[Route] = []

    def handle(self, route: Route) -> None:
        if self._is_open:
            route.continue_()
        elif self._is_lost:
            self._waiting.append(route)
        else:
            self._is_lost = True
            route.fetch()
            route.abort()

    def let_through(self) -> None:
        self._is_open = True
        for route in self._waiting:
            route.continue_()


@pytest.mark.long
def test_a_vote_whose_answer_was_lost_stays_with_who_gave_it(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        page.allowed = ("ERR_FAILED",)  # type: ignore[attr-defined]
        for act, key, path in (("Your verdict is not saved", "1", "votes"), ("Not undone", "u", "undo")):
            lost = LostAnswer()
            page.route(f"**/api/annotation/{path}", lost.handle)
            expect(page.locator("#choose-left")).to_be_enabled()
            page.keyboard.press(key)
            expect(page.locator("#notice")).to_contain_text(act)
            expect(page.locator("#who")).to_be_disabled()
            page.evaluate("document.getElementById('who').dispatchEvent(new MouseEvent('click'))")
            expect(page.locator("#ask-name")).to_be_hidden()
            lost.let_through()
            expect(page.locator("#notice")).to_be_hidden()
            expect(page.locator("#who")).to_be_enabled()
        page.click("#who")
        page.fill("#name-input", "bob")
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text("bob")
        judge(page, "2")
    assert [(one["kind"], one["annotator"]) for one in votes(served)] == [
        ("vote", "ann"), ("undo", "ann"), ("vote", "bob"),
    ]  # fmt: skip


@pytest.mark.long
def test_a_name_that_is_not_changed_after_all_stays(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann") as page:
        page.evaluate("localStorage.setItem('headrace.annotator', 'bob')")  # As another tab of this browser does it.
        page.click("#who")
        expect(page.locator("#name-input")).to_have_value("ann")
        page.keyboard.press("1")
        page.keyboard.press("Escape")
        expect(page.locator("#ask-name")).to_be_hidden()
        expect(page.locator("#who")).to_have_text("ann")
        judge(page, "1")
    assert [one["annotator"] for one in votes(served)] == ["ann"]


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


@pytest.mark.long
def test_fenced_blocks_stand_as_code_and_the_text_stays_whole(browser: Browser, served: Served) -> None:
    block = "~~~py\n<b>x</b> = '```'\n\n~~~~\n"
    closed = f"Before\n{block}between, ```no block``` here\n  ```\n  cut off"
    write_step(served.run_dir, 1, [[closed, "plain\n"]], prompt=f"\n{block}\u05d0\nb")
    served.start()
    with opened(browser, served, "ann") as page:
        expect(page.locator("#choose-left")).to_be_enabled()
        assert set(answers(page)) == {closed, "plain\n"}
        assert page.locator(".answers .code").all_text_contents() == [block, "  ```\n  cut off"]
        assert page.locator("#prompt .code").all_text_contents() == [block]
        assert page.locator("#prompt .said").text_content() == f"\n{block}\u05d0\nb"
        assert "monospace" in page.eval_on_selector(".answers .code", "(one) => getComputedStyle(one).fontFamily")


@pytest.mark.long
def test_the_head_of_a_long_answer_stays_and_leads_to_the_other(browser: Browser, served: Served) -> None:
    write_step(served.run_dir, 1, [["line\n" * 300, "word\n" * 300]], finish_reason="length")
    served.start()
    with opened(browser, served, "ann", viewport={"width": 390, "height": 844}) as page:
        expect(page.locator("#choose-left")).to_be_enabled()
        page.evaluate("window.scrollTo(0, 2000)")
        expect(page.locator("#left header")).to_be_in_viewport(ratio=1)
        page.click("#left .jump")
        expect(page.locator("#right header")).to_be_in_viewport(ratio=1)
        page.wait_for_function("Math.abs(document.querySelector('#right').getBoundingClientRect().top) <= 2")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.click("#right .jump")
        expect(page.locator("#left .text")).to_be_in_viewport()
        judge(page, "1")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(browser: Browser, served: Served, width: int, scheme: str) -> None:
    texts = ["one " * 200, "w" * 2000 + "\n```\n" + "c" * 999]
    write_step(served.run_dir, 1, [texts], finish_reason="length", prompt="long " * 900)
    served.start()
    size = {"width": width, "height": 800}
    with opened(
        browser, served, "a name of forty letters which is so long", viewport=size, color_scheme=scheme
    ) as page:
        expect(page.locator("#choose-left")).to_be_enabled()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for button in page.locator(".actions button").all():
            assert button.is_visible() and (button.bounding_box() or {"height": 0})["height"] >= 44
        for place in (
            "h1",
            "#counts",
            "#who",
            "#left h2",
            "#left .text",
            ".said",
            ".badge",
            ".answers .code",
            "#step",
            "#choose-left",
            "dt",
        ):
            assert contrast(page, place) >= 4.5, place


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


@pytest.mark.long
def test_colours_and_name_are_kept_in_the_browser(browser: Browser, served: Served) -> None:
    write_run(served.run_dir)
    served.start()
    with opened(browser, served, "ann", color_scheme="light") as page:
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        page.click("#theme")
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        expect(page.locator("#who")).to_have_text("ann")
        assert not page.locator("#ask-name").is_visible()
        page.click("#who")
        page.fill("#name-input", "<b>")
        page.keyboard.press("Enter")
        expect(page.locator("#name-problem")).to_contain_text("1 to 40 letters")
        page.allowed = ("422",)  # type: ignore[attr-defined]
        page.fill("#name-input", "bob")
        page.keyboard.press("1")
        page.keyboard.press("Backspace")
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text("bob")
        judge(page, "1")
    assert [(one["annotator"], one["choice"]) for one in votes(served)] == [("bob", "left")]
