"""What holds on every page: it loads clean, fits, can be read, and can be reached without a mouse."""

import re

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, expect

from tests.browser import contrast, opened
from tests.e2e.dashboard.shown import Shown
from tests.variants import keep

PAGES = {
    "run": ("/#/run?metrics=grad_norm", ".chart canvas"),
    "rollouts": ("/#/rollouts", ".row-link"),
    "group": ("/#/rollouts/400/2499", ".token"),
    "fleet": ("/#/fleet", ".phase-bar"),
    "queues": ("/#/queues", "#dead-title"),
    "compare": ("/#/compare?runs=first,second", ".config td"),
    "annotate": ("/annotate", "#name-input"),
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
@pytest.mark.parametrize("width", [pytest.param(390, marks=pytest.mark.long), 1280])
def test_it_loads_without_an_error_or_a_foreign_request_and_fits(
    browser: Browser, shown: Shown, name: str, width: int
) -> None:
    path, sign = PAGES[name]
    with opened(browser, shown.url + path, viewport={"width": width, "height": 800}) as page:
        expect(page.locator(sign).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        current = "annotate" if name == "annotate" else {"group": "rollouts"}.get(name, name)
        expect(page.locator('nav.pages [aria-current="page"]')).to_have_text(current.capitalize())


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_every_text_has_contrast(browser: Browser, shown: Shown, name: str, scheme: str) -> None:
    path, sign = PAGES[name]
    with opened(browser, shown.url + path, viewport={"width": 1280, "height": 800}, color_scheme=scheme) as page:
        expect(page.locator(sign).first).to_be_visible()
        texts = page.evaluate(TEXTS)
    assert len(texts) > 10
    weak = [(text, ink, ground) for text, ink, ground, large in texts if contrast(ink, ground) < (3 if large else 4.5)]
    assert weak == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_and_shades_of_tokens_have_contrast(browser: Browser, shown: Shown, scheme: str) -> None:
    with opened(browser, f"{shown.url}/#/run", color_scheme=scheme) as page:
        expect(page.locator(".card").first).to_be_visible()
        colours = page.evaluate(
            """() => {
              const probe = document.body.appendChild(document.createElement("span"));
              const computed = (name) => {
                probe.style.color = `var(${name})`;
                return getComputedStyle(probe).color;
              };
              const behind = (name) => {
                probe.className = name;
                return getComputedStyle(probe).backgroundColor;
              };
              const series = [...Array(8).keys()].map((at) => computed(`--series-${at + 1}`));
              const shades = [..."01234"].flatMap((at) => [`adv-p${at}`, `adv-m${at}`]).slice(0, 9);
              const names = ["adv-m4", ...shades.filter((one) => one !== "adv-m0"), ..."0123456"].map(
                (one) => (one.length === 1 ? `lp-${one}` : one),
              );
              return { card: computed("--card"), ink: computed("--ink"), edge: computed("--edge"), series,
                       shades: names.map((one) => [one, behind(one)]) };
            }"""
        )
    weak = [one for one in [*colours["series"], colours["edge"]] if contrast(one, colours["card"]) < 3]
    weak += [one for one in colours["shades"] if contrast(colours["ink"], one[1]) < 4.5]
    assert len(colours["shades"]) >= 15 and all(shade != "rgba(0, 0, 0, 0)" for _, shade in colours["shades"])
    assert weak == []


FOCUSABLE = "a[href], button:not(:disabled), input, select, [tabindex='0']"


@pytest.mark.parametrize("name", keep({"run"}, ["run", "group", "fleet", "queues", "compare"]))
def test_the_tab_key_reaches_everything_and_the_focus_is_seen(browser: Browser, shown: Shown, name: str) -> None:
    path, sign = PAGES[name]
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


SLOW_BODIES = """
const json = Response.prototype.json;
Response.prototype.json = async function () {
  await new Promise((resolve) => setTimeout(resolve, 400));
  return json.call(this);
};"""


def test_a_page_left_while_its_answers_come_in_says_no_error(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url) as page:
        page.add_init_script(SLOW_BODIES)
        page.reload()
        expect(page.locator(".headline")).to_be_visible()
        for key, name in zip("2341", ("rollouts", "fleet", "queues", "run"), strict=True):
            with page.expect_response(re.compile("/api/(series|rollouts|fleet|queues|dead)")):
                page.keyboard.press(key)
            expect(page).to_have_url(re.compile(f"#/{name}"))
        expect(page.locator(".chart canvas").first).to_be_visible()


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


def test_without_wish_for_motion_nothing_moves(browser: Browser, shown: Shown) -> None:
    def longest(page: Page) -> float:
        expect(page.locator(".headline")).to_be_visible()
        seconds: float = page.evaluate(
            """() => Math.max(...[...document.querySelectorAll("*")].flatMap((one) => {
              const style = getComputedStyle(one);
              return `${style.transitionDuration},${style.animationDuration}`.split(",").map(parseFloat);
            }))"""
        )
        return seconds

    with opened(browser, shown.url, reduced_motion="no-preference") as page:
        assert longest(page) > 0
    with opened(browser, shown.url, reduced_motion="reduce") as page:
        assert longest(page) == 0


def test_colours_are_kept_and_shared_with_the_annotators_page(browser: Browser, shown: Shown) -> None:
    with opened(browser, shown.url, color_scheme="light") as page:
        expect(page.locator(".headline")).to_be_visible()
        page.get_by_role("button", name="Colours: system").click()
        page.get_by_role("button", name="Colours: light").click()
        expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
        page.goto(f"{shown.url}/annotate")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 26)"


def test_the_fleet_page_says_how_weights_come_and_what_they_were_held_against(browser: Browser, shown: Shown) -> None:
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
