"""The dashboard in a real browser: how soon 100,000 steps are on screen, and how evenly 10,000 rollouts scroll.

    python -m benchmarks.dashboard --json

Both runs are synthetic, the service and the browser are real processes on this machine. "Loaded" is from the
navigation to the first frame in which every chart is drawn, with an empty cache; the service has read the run before,
as it has in life (how long that takes is reported too). Frames are those of a list that is scrolled by wheel for some
seconds: a stutter is a frame of more than 50 ms, at 60 frames a second three in a row that were missed. On a busy
machine frames are late for want of a core; how long the page's own thread computes for a frame shows its share.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.dashboard_run import write_run
from tests.e2e.dashboard.shown import Shown
from tests.http_tokens import bearer_of, script

STUTTER_MS = 50.0
_CHARTS_DRAWN = "() => document.querySelectorAll('.chart canvas').length >= 10"
_FRAMES = """() => {
  window.frames = [];
  let last = performance.now();
  const next = (now) => { window.frames.push(now - last); last = now; window.going = requestAnimationFrame(next); };
  window.going = requestAnimationFrame(next);
}"""


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scroll-seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        found = measure(browser, Path(folder), options)
        browser.close()
    sys.stdout.write((json.dumps(found) if options.json else json.dumps(found, indent=1)) + "\n")


def measure(browser: Browser, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Both runs, one after the other."""
    long = Shown(write_run(folder / "long", steps=options.steps, rollouts=0))
    began = time.monotonic()
    long.start()
    wait_for_steps(long, options.steps)
    read_s = time.monotonic() - began
    loads = [load(browser, long.url) for _ in range(options.rounds)]
    series_ms = [series(long.url) for _ in range(options.rounds)]
    long.stop()
    wide = Shown(write_run(folder / "wide", steps=200, rollouts=options.rollouts))
    wide.start()
    frames = scroll(browser, wide.url, options.scroll_seconds)
    wide.stop()
    return {
        "steps": options.steps,
        "started_and_read_s": round(read_s, 2),
        "loaded_ms": {"median": round(statistics.median(loads)), "most": round(max(loads))},
        "series_ms": {"median": round(statistics.median(series_ms), 1), "most": round(max(series_ms), 1)},
        "rollouts": options.rollouts,
        "scrolled": frames,
    }


def wait_for_steps(shown: Shown, steps: int) -> None:
    """Until the service has read all of them; raises AssertionError after a minute."""
    end = time.monotonic() + 60
    while (
        httpx.get(f"{shown.url}/api/status", headers=bearer_of(shown.url), trust_env=False, timeout=30).json()["step"]
        < steps
    ):
        assert time.monotonic() < end, shown.logs()
        time.sleep(0.05)


def load(browser: Browser, url: str) -> float:
    """Milliseconds from the navigation until all charts are drawn, in a browser context of its own."""
    page = context_of(browser, url).new_page()
    page.goto(url, wait_until="commit")
    page.wait_for_function(_CHARTS_DRAWN, polling="raf")
    loaded: float = page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done(performance.now())))")
    page.context.close()
    return loaded


def context_of(browser: Browser, url: str) -> BrowserContext:
    """One that has the token of the page."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(script(url))
    return context


def series(url: str) -> float:
    """Milliseconds of the one request for all curves of the Run page."""
    names = "reward_mean,loss,kl,entropy,clip_fraction,staleness_mean,staleness_max,train_seconds,seconds"
    began = time.monotonic()
    params: dict[str, str | int] = {"names": names, "points": 800}
    httpx.get(f"{url}/api/series", params=params, headers=bearer_of(url), trust_env=False).raise_for_status()
    return 1000 * (time.monotonic() - began)


def scroll(browser: Browser, url: str, seconds: float) -> dict[str, Any]:
    """Frame times while the list of rollouts runs under the wheel."""
    page: Page = context_of(browser, url).new_page()
    page.goto(f"{url}/#/rollouts")
    page.locator(".row-link").first.wait_for()
    page.locator(".list-body").hover()
    page.evaluate(_FRAMES)
    busy = busy_seconds(page)
    before = busy()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        page.mouse.wheel(0, 700)
        page.wait_for_timeout(16)
    used = busy() - before
    frames: list[float] = sorted(page.evaluate("() => { cancelAnimationFrame(window.going); return window.frames; }"))
    rows = page.evaluate("document.querySelector('.list-body').scrollTop / 34")
    page.context.close()
    return {
        "rows_passed": round(rows),
        "frames": len(frames),
        "median_ms": round(statistics.median(frames), 1),
        "p95_ms": round(frames[int(0.95 * len(frames))], 1),
        "most_ms": round(frames[-1], 1),
        "computed_ms_a_frame": round(1000 * used / len(frames), 1),
        "stutters": sum(frame > STUTTER_MS for frame in frames),
    }


def busy_seconds(page: Page) -> Callable[[], float]:
    """Reads how much processor time the page's main thread has used."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")

    return read


if __name__ == "__main__":
    main(sys.argv[1:])
