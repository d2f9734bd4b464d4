"""Every page against a run that is being trained, and what operators do to it."""

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, Page, Route, expect

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import token_of
from headrace.wire.rundir.layout import RunPaths
from tests.browser import opened
from tests.dead_letters import bury_prompts
from tests.e2e.harness import TinyRun
from tests.http_tokens import remember

pytestmark = pytest.mark.e2e
SLOW_MS = 60_000
TOKEN = "tiny-runs-operator-token"
ASKS_TOKEN = ["status of 403"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "token").write_text(TOKEN)
    run = TinyRun(folder / "tiny", steps=100_000, staleness=1, deterministic=False)
    run.start("--orchestrator.operator-token-file", str(folder / "token"))
    run.wait_for_step(3)
    run.wait_until(lambda: len(run.serving()) == 2, "two replicas to serve")
    yield run
    run.close()


@pytest.fixture(scope="module")
def url(live: TinyRun) -> str:
    started = json.loads((live.run_dir / "run" / "orchestrator.json").read_text())
    address = f"http://127.0.0.1:{started['http_port']}"
    remember(address, token_of(RunPaths(live.run_dir).tokens, Role.VIEWER))
    return address


def confirm(page: Page, button: str) -> str:
    """Confirms what the dialog asks, with the operator's token where it wants one, and returns what was said."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog.locator(".said")).to_be_visible(timeout=SLOW_MS)
    token = dialog.get_by_label("Operator token")
    if token.count():
        expect(dialog.locator(".said.bad")).to_contain_text("is for operator, not for viewer")
        token.fill(TOKEN)
        page.keyboard.press("Enter")
        expect(token).to_have_count(0, timeout=SLOW_MS)
    return dialog.locator(".said").text_content() or ""


def act(page: Page, button: str, verb: str) -> str:
    """Presses a button, confirms in the dialog, and closes it."""
    page.get_by_role("button", name=button, exact=True).first.click()
    said = confirm(page, verb)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    return said


def operator(live: TinyRun) -> dict[str, Any]:
    """What has been asked of the run; empty while nobody answers."""
    found: dict[str, Any] = live.status().get("operator", {})
    return found


def post(url: str, path: str, body: dict[str, object]) -> None:
    headers = {"Origin": url, "Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(url + path, json=body, headers=headers, trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text


def test_the_run_page_follows_the_training(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        expect(page.locator(".headline .pill")).to_have_text("running")
        expect(page.locator(".freshness")).to_have_text("Live")
        expect(page.locator(".bottleneck")).not_to_be_empty()
        expect(page.locator(".tile").filter(has_text="Tokens a second")).to_contain_text("2 rollout replicas")
        before = page.locator(".headline h2").text_content() or ""
        shown = page.get_by_label("To step").get_attribute("placeholder") or ""
        expect(page.locator(".headline h2")).not_to_have_text(before, timeout=SLOW_MS)
        expect(page.get_by_label("To step")).not_to_have_attribute("placeholder", shown, timeout=SLOW_MS)
        expect(page.locator(".chart canvas")).to_have_count(17)
        expect(page.locator(".log tbody tr").first).to_contain_text("publication")


def test_the_fleet_page_shows_replicas_and_publications(browser: Browser, url: str) -> None:
    answers: list[Any] = []

    def first_answer(route: Route) -> None:
        """The fleet as it was: with a step so quick, the last publication soon makes room for others."""
        if not answers:
            answers.append(route.fetch().json())
        route.fulfill(json=answers[0])

    with opened(browser, url) as page:
        page.route("**/api/fleet", first_answer)
        page.get_by_role("link", name="Fleet").click()
        rows = page.locator(".replicas tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("rollout-0at a socket")
        expect(rows.first.locator(".address")).to_have_attribute("title", re.compile(r"unix:/.+/rollout-0\.sock"))
        expect(rows.first.locator(".weights")).to_have_text("proven over gloo")
        expect(page.locator(".phase-bar rect").first).to_be_attached()
        expect(page.locator(".card-head .legend")).to_contain_text("transfer")
        page.locator(".publications button").last.click()
        expect(page.locator(".members")).to_contain_text("committed")
        expect(page.locator(".members li").first).to_contain_text("proven")


def test_the_rollouts_page_shows_the_newest_trained_groups(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/#/rollouts") as page:
        expect(page.locator(".row-link").first).to_be_visible(timeout=SLOW_MS)
        page.get_by_role("button", name=re.compile("more steps?: show")).click(timeout=SLOW_MS)
        page.locator(".row-link").first.click()
        expect(page.locator("article.rollout")).to_have_count(4)
        expect(page.locator(".token").first).to_be_visible()
        expect(page.locator("article.rollout").first).to_contain_text("length")


def test_pause_stops_the_issue_of_prompts_and_resume_goes_on(browser: Browser, live: TinyRun, url: str) -> None:
    with opened(browser, url, allowed=ASKS_TOKEN) as page:
        assert "paused" in act(page, "Pause", "Pause")
        expect(page.locator(".headline .pill")).to_have_text("paused")
        live.wait_until(lambda: live.status().get("groups", {}).get("open") == 0, "what was under way to be trained")
        step = live.steps()
        page.get_by_role("button", name="Actions", exact=True).click()
        expect(page.locator(".log tbody tr").first).to_contain_text("by dashboard")
        assert "resumed" in act(page, "Resume", "Resume")
        expect(page.locator(".headline .pill")).to_have_text("running")
        live.wait_for_step(step + 1)


def test_replicas_are_drained_and_scaled_and_a_refusal_is_shown(browser: Browser, live: TinyRun, url: str) -> None:
    with opened(browser, f"{url}/#/fleet", allowed=["status of 409", *ASKS_TOKEN]) as page:
        row = page.locator(".replicas tbody tr").filter(has_text="rollout-1")
        row.get_by_role("button", name="Drain").click()
        assert "no more prompts" in confirm(page, "Drain")
        page.keyboard.press("Escape")
        expect(row.locator(".pill").first).to_have_text("draining")
        row.get_by_role("button", name="Undo drain").click()
        assert "prompts again" in confirm(page, "Undo drain")
        page.keyboard.press("Escape")
        expect(row.locator(".pill").first).not_to_have_text("draining")
        # Meanwhile somebody else takes the replica away: what is asked of it then is refused, and why is said.
        row.get_by_role("button", name="Drain").click()
        post(url, "/api/actions/scale", {"service": "rollout", "count": 1})
        live.wait_until(lambda: len(live.status().get("replicas", [])) == 1, "one replica to go")
        assert "there is no replica 'rollout-1'" in confirm(page, "Drain")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Scale rollout").click()
        page.get_by_role("spinbutton", name="Replicas").fill("2")
        assert re.search("rollout-1|started", confirm(page, "Scale"))
        live.wait_until(lambda: len(live.serving()) == 2, "the second replica")


def test_a_dead_letter_is_shown_and_requeued_once(browser: Browser, live: TinyRun, url: str) -> None:
    config = json.loads((live.run_dir / "config" / "orchestrator.json").read_text())
    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, bury_prompts(config["broker"]["url"], "tiny", 1)).result(120)
    with opened(browser, f"{url}/#/queues", allowed=ASKS_TOKEN) as page:
        letter = page.locator(".dead tbody tr")
        expect(letter).to_have_count(1, timeout=SLOW_MS)
        expect(letter).to_contain_text("rollout_failed")
        expect(letter).to_contain_text("the engine said no")
        expect(letter.locator(".excerpt")).not_to_be_empty()
        assert "is issued again" in act(page, "Re-queue", "Re-queue")
        expect(letter).to_contain_text("re-queued", timeout=SLOW_MS)
        expect(letter.get_by_role("button")).to_have_count(0)


def test_stop_ends_the_run_with_a_checkpoint(browser: Browser, live: TinyRun, url: str) -> None:
    with opened(browser, url, allowed=["net::ERR", *ASKS_TOKEN]) as page:
        assert "stopping" in act(page, "Stop", "Stop the run")
        assert live.process is not None
        live.process.wait(200)
        expect(page.locator(".freshness")).to_contain_text("Reconnecting", timeout=SLOW_MS)
    assert list((live.run_dir / "checkpoints").iterdir())
