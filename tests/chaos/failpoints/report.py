"""Writes what a campaign found into docs/reliability.md: `python -m tests.chaos.failpoints.report RESULTS.json`."""

import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.chaos.failpoints.source import ROOT

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos -->\n", "<!-- /chaos -->"
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
    """The table and its sentence, in Markdown."""
    runs = results["runs"]
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    points: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for strike in run["strikes"]:
            service, kind, *_ = strike["name"].split(".")
            points[service, kind].add(strike["name"])
            if not math.isnan(strike["recovery_s"]):
                seconds[service, kind].append(strike["recovery_s"])
    lost, doubled = sum(run["lost"] for run in runs), sum(run["doubled"] for run in runs)
    kills = sum(len(run["strikes"]) for run in runs)
    plain = sum(run["plain_kills"] for run in runs)
    lines = [
        f"{len(runs)} runs, {kills} kills at {sum(map(len, points.values()))} failpoints and {plain} wherever the "
        f"service stood, seed {results['seed']}: {lost} groups lost, {doubled} trained twice, the weights of every run "
        "bit-equal to those of a run that nothing disturbed.",
        "",
        "| killed | around | points | times | recovery, median s | worst s |",
        "|---|---|---|---|---|---|",
    ]
    for service, kind in sorted(points):
        found = seconds[service, kind]
        middle, worst = (f"{statistics.median(found):.1f}", f"{max(found):.1f}") if found else ("-", "-")
        times = sum(one["name"] in points[service, kind] for run in runs for one in run["strikes"])
        lines.append(f"| {service} | {KINDS[kind]} | {len(points[service, kind])} | {times} | {middle} | {worst} |")
    if results["not_again"]:
        names = ", ".join(f"`{name}`" for name in results["not_again"])
        lines += ["", f"Reached once, behind another kill, and not again while it was armed: {names}."]
    return "\n".join(lines) + "\n"


def write(results: dict[str, Any], page: Path = PAGE) -> None:
    """Replaces the table between its marks. Raises ValueError for a page without them."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN.strip()} ... {END}")
    page.write_text(f"{before}{BEGIN}{table(results)}{END}{after}")


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()))
