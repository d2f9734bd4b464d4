"""Writes what `make chaos` has found into docs/reliability.md: `python -m tests.chaos.failpoints.report RESULTS`."""

import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"
KINDS = {
    "journal": "its journal",
    "line": "a line of a log",
    "event": "an event",
    "file": "a file that is replaced",
    "folder": "a folder that is replaced",
    "sync": "a file or folder that is synced",
    "database": "a transaction of its database",
    "stream": "the streams (read, claim, add, settle, ack, renew, release)",
    "rpc": "a call (before it, served and not answered, answered)",
    "step": "the moments of a step",
}


def table(results: dict[str, Any]) -> str:
    """The kills at failpoints in Markdown: a sentence, and a row for each service and kind of point."""
    runs = results["runs"]
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    points: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for strike in run["strikes"]:
            service, kind, *_ = strike["name"].split(".")
            points[service, kind].add(strike["name"])
            seconds[service, kind].append(strike["recovery_s"])
    kills = sum(len(run["strikes"]) for run in runs)
    plain = sum(run["plain_kills"] for run in runs)
    lines = [
        f"{len(runs)} runs, {kills} kills at {sum(map(len, points.values()))} failpoints and {plain} wherever the "
        f"service stood, seed {results['seed']}: {_harm(runs)}",
        "",
        "| killed | around | points | times | recovery, median s | worst s |",
        "|---|---|---|---|---|---|",
    ]
    for service, kind in sorted(points):
        found = seconds[service, kind]
        count = len(points[service, kind])
        lines.append(f"| {service} | {KINDS[kind]} | {count} | {len(found)} | {_recovery(found)} |")
    if results["not_again"]:
        names = ", ".join(f"`{name}`" for name in results["not_again"])
        lines += ["", f"Reached once, behind another kill, and not again while it was armed: {names}."]
    return "\n".join(lines) + "\n"


def fault_table(results: dict[str, Any]) -> str:
    """The other faults in Markdown: a sentence, and a row for each."""
    runs = results["runs"]
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for strike in run["strikes"]:
            seconds[strike["name"]].append(strike["recovery_s"])
    lines = [
        f"{len(runs)} runs, {sum(map(len, seconds.values()))} faults, seed {results['seed']}: {_harm(runs)}",
        "",
        "| fault | times | lost | doubled | recovery, median s | worst s |",
        "|---|---|---|---|---|---|",
    ]
    for name in sorted(seconds):
        struck = [run for run in runs if any(strike["name"] == name for strike in run["strikes"])]
        harm = f"{_sum(struck, 'lost')} | {_sum(struck, 'doubled')}"
        lines.append(f"| {name} | {len(seconds[name])} | {harm} | {_recovery(seconds[name])} |")
    return "\n".join(lines) + "\n"


def _sum(runs: list[dict[str, Any]], key: str) -> int:
    return sum(int(run[key]) for run in runs)


def _harm(runs: list[dict[str, Any]]) -> str:
    return (
        f"{_sum(runs, 'lost')} groups lost, {_sum(runs, 'doubled')} trained twice, the weights of every run bit-equal "
        "to those of a run that nothing disturbed."
    )


def _recovery(seconds: list[float]) -> str:
    """Median and worst; a kill at the end of a run has none."""
    known = [one for one in seconds if not math.isnan(one)]
    return f"{statistics.median(known):.1f} | {max(known):.1f}" if known else "- | -"


TABLES = {"failpoints": ("chaos", table), "faults": ("faults", fault_table)}
"""Section of the results -> the marks on the page, and what stands between them."""


def write(results: dict[str, Any], page: Path = PAGE) -> None:
    """Replaces the table of each section between its marks; another stays. Raises ValueError for a page without."""
    text = page.read_text()
    for section, (mark, made) in TABLES.items():
        if section in results:
            text = _between(text, f"<!-- {mark} -->\n", f"<!-- /{mark} -->", made(results[section]), page)
    page.write_text(text)


def _between(text: str, begin: str, end: str, inside: str, page: Path) -> str:
    before, first, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise ValueError(f"{page} has no {begin.strip()} ... {end}")
    return f"{before}{begin}{inside}{end}{after}"


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()))
