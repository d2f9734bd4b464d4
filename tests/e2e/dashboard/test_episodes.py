"""An episode on the Rollouts page: whose tokens, what was read, calls with arguments, results, time and version."""

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="the python package playwright is not installed")

from playwright.sync_api import Browser, expect

from tests.browser import opened
from tests.dashboard_run import write_run
from tests.e2e.dashboard.shown import Shown
from tests.played_run import write_played_step


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A run whose third step was trained on episodes."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "played", steps=3, rollouts=8)
    write_played_step(folder, 3)
    server = Shown(folder)
    server.start()
    yield server
    server.stop()


def test_an_episode_is_a_conversation_with_its_calls(browser: Browser, played: Shown) -> None:
    with opened(browser, f"{played.url}/#/rollouts/3/0", viewport={"width": 1280, "height": 900}) as page:
        cards = page.locator("article.rollout")
        expect(cards).to_have_count(2)
        whole, hung = cards.nth(0), cards.nth(1)
        told = whole.locator(".conversation > li")
        expect(told).to_have_count(5)
        expect(told.nth(0)).to_contain_text("When was Ada born?")
        expect(told.nth(1)).to_contain_text("Context of 23 tokens")
        expect(told.nth(2)).to_contain_text("Turn 1, policy")
        for part in ("tokens 0\u20137 sampled", "version 1.2", "rollout-1", "500 ms", "I look."):
            expect(told.nth(2)).to_contain_text(part)
        for part in ("Tool find", "returned", "250 ms", '{"who": "Ada"}', "1815"):
            expect(told.nth(3)).to_contain_text(part)
        expect(told.nth(4)).to_contain_text("9 tokens read before it, masked")
        expect(told.nth(4)).to_contain_text("In 1815.")
        expect(whole).to_contain_text("2 turns: 15 tokens sampled, 9 read. Environment: reward 1, found 1")
        expect(hung).to_contain_text("unanswered")
        expect(hung).to_contain_text("took longer than environment.tool_s = 30 s")
        expect(hung).to_contain_text("ended by time")


def test_context_tokens_are_set_apart_and_have_no_logprob_or_advantage(browser: Browser, played: Shown) -> None:
    with opened(browser, f"{played.url}/#/rollouts/3/0") as page:
        turn = page.locator("article.rollout").first.locator(".conversation > li").nth(4)
        turn.locator("summary").click()
        read, said = turn.locator(".token-text").nth(0), turn.locator(".token-text").nth(1)
        expect(read).to_have_text("tool:1815")
        expect(read.locator(".token").first).to_have_class("token ")
        expect(said.locator(".token").first).to_have_class(re.compile("adv-p"))
        read.locator(".token").first.hover()
        expect(page.locator(".tip")).to_contain_text("8 of 24")
        expect(page.locator(".tip")).to_contain_text("\u2013 (\u2013)")
        page.mouse.move(0, 0)
        said.locator(".token").first.hover()
        expect(page.locator(".tip")).to_contain_text("17 of 24")
        expect(page.locator(".tip")).to_contain_text("-0.1")
