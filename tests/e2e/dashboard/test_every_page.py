"""What holds on every page: it loads clean, fits, can be read, and can be reached without a mouse."""

import re

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, expect

from tests.browser import contrast, opened
from tests.e2e.dashboard.shown import Shown

PAGES = {
    "run": ("/#/run?metrics=grad_norm", ".chart canvas"),
    "rollouts": ("/#/rollouts", ".row-link"),
    "group": ("/#/rollouts/400/2499", ".token"),
    "fleet": ("/#/fleet", ".phase-bar"),
    "queues": ("/#/queues", "#dead-title"),
    "compare": ("/#/compare?runs=first,second", ".config td"),
    "annotate": ("/annotate", "#ask-name"),
}
TEXTS = """() => {
  const shown = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.checkVisibility() || one.closest(":disabled, [aria-disabled=true]")) continue;
    let behind = one;
    const clear = (of) => getComputedStyle(of).backgroundColor === "rgba(0, 0, 0, 0)";
    while (clear(behind) && behind.parentElement) behind = behind.parentElement;
    const style = getComputedStyle(one);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    shown.push([one.textContent.trim().slice(0, 40), style.color, getComputedStyle(behind).backgroundColor, large]);
  }
  return shown;
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_without_errors_or_external_requests_and_is_readable(
    browser: Browser, shown: Shown, name: str
) -> None:
    path, sign = PAGES[name]
    with opened(browser, shown.url + path, viewport={"width": 1280, "height": 800}, color_scheme="dark") as page:
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 1280
        current = "annotate" if name == "annotate" else {"group": "rollouts"}.get(name, name)
        expect(page.locator('nav.pages [aria-current="page"]')).to_have_text(current.capitalize())
        texts = page.evaluate(TEXTS)
    assert len(texts) > 9
    weak = [(text, ink, ground) for text, ink, ground, large in texts if contrast(ink, ground) < (3 if large else 4.5)]
    assert weak == []


FOCUSABLE = "a[href], button:not(:disabled), input, select, [tabindex='0']"


def test_the_tab_key_reaches_every_control_with_visible_focus(browser: Browser, shown: Shown) -> None:
    path, sign = PAGES["run"]
    with opened(browser, shown.url + path, viewport={"width": 1280, "height": 800}) as page:
        expect(page.locator(sign).first).to_be_visible()
        page.wait_for_timeout(300)
        wanted = page.evaluate(
            """(of) => {
              const all = [...document.querySelectorAll(of)].filter((one) => one.checkVisibility());
              all.forEach((one, at) => { one.dataset.walk = at; });
              return all.length;
            }""",
            FOCUSABLE,
        )
        reached = set()
        for _ in range(wanted + 5):
            page.keyboard.press("Tab")
            at, is_seen = page.evaluate(
                """() => {
                  const one = document.activeElement;
                  const styles = [one, one.closest(".list-row") ?? one].map((each) => getComputedStyle(each));
                  return [one.dataset.walk, styles.some((each) => each.outlineStyle !== "none")];
                }"""
            )
            if at is not None:
                assert is_seen
                reached.add(at)
        assert len(reached) == wanted


def test_keys_go_to_pages_open_the_help_and_leave_a_group(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        expect(page.locator(".headline")).to_be_visible()
        for key, name in zip("2345", ("rollouts", "fleet", "queues", "compare"), strict=True):
            page.keyboard.press(key)
            expect(page).to_have_url(re.compile(f"#/{name}"))
        page.keyboard.press("1")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard and mouse")).to_be_visible()
        page.keyboard.press("2")
        expect(page).to_have_url(re.compile("#/run"))
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.goto(f"{shown.url}/#/rollouts/400/2499?reward_min=1")
        expect(page.locator(".token").first).to_be_visible()
        page.keyboard.press("Escape")
        expect(page).to_have_url(re.compile(r"#/rollouts\?reward_min=1"))
        page.keyboard.press("6")
        expect(page).to_have_url(re.compile("/annotate"))


def test_keys_typed_into_a_field_are_text(browser: Browser, shown: Shown) -> None:
    with opened(browser, f"{shown.url}/#/rollouts") as page:
        page.get_by_label("Text contains").press_sequentially("1?")
        expect(page.get_by_label("Text contains")).to_have_value("1?")
        expect(page).to_have_url(re.compile("#/rollouts"))


def test_the_policy_forbids_inline_code_and_the_page_has_none(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        answer = page.reload()
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy and "style-src 'self'" in policy and "unsafe" not in policy
        html = answer.text()
    assert "style=" not in html and "<style" not in html
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []


def test_a_chosen_colour_scheme_is_kept(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url, color_scheme="light") as page:
        expect(page.locator(".headline")).to_be_visible()
        page.get_by_role("button", name="Colours: system").click()
        page.get_by_role("button", name="Colours: light").click()
        expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
        page.goto(f"{shown.url}/annotate")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 26)"


def test_the_fleet_page_shows_weight_routes_and_proofs(browser: Browser, shown: Shown) -> None:
    replica = {"id": "rollout-0", "state": "serving", "version": "1.7", "in_flight_rollouts": 1, "waiting_share": 0.0}
    replica |= {"waiting_for": "", "tokens_per_second": 5.0, "publication": "", "engine": "sglang"}
    table = "the trainer's table does not fit this server: model.layers.0.mlp.gate_up_proj.weight differ in model.path"
    fleet = [
        replica | {"route": "nccl", "route_reason": "", "proof": "proven", "proof_note": ""},
        replica | {"id": "rollout-1", "route": "gloo", "route_reason": "unequal NCCL versions hang", "proof": "canary"},
        replica | {"id": "rollout-2", "route": "disk", "route_reason": "", "proof": "compared", "proof_note": table},
        replica | {"id": "rollout-3", "route": "", "route_reason": "", "proof": "", "proof_note": ""},
    ]
    with opened(browser, shown.url, viewport={"width": 390, "height": 800}) as page:
        page.route("**/api/status", lambda route: route.fulfill(json=route.fetch().json() | {"replicas": fleet}))
        page.route("**/api/events*", lambda route: route.fulfill(body=": ", content_type="text/event-stream"))
        page.goto(f"{shown.url}/#/fleet")
        page.reload()
        cells = page.locator(".replicas tbody .weights")
        expect(cells).to_have_text(
            ["proven over nccl", "canary over gloounequal NCCL versions hang", f"compared from disk{table}", "\u2013"]
        )
        expect(cells.first.locator("[title]")).to_have_attribute("title", re.compile("what the trainer computed"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
