"""`headrace doctor --gpu`: its words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.execute import FAILED, FINISHED, Output
from headrace.gpus import visible
from headrace.selfcheck.check import NOT_HERE, PROBES, Row, run_probes
from headrace.verb import json_line
from wire.errors import ConfigError

ON = "HEADRACE_GPU_TESTS_ON"
"""`cpu`: what can be tried without CUDA is, at a small size."""


def try_gpu(output: Output, environment: Mapping[str, str]) -> int:
    """Runs the probes, a line each as it ends; 1 if one failed. Raises ConfigError where there is no GPU."""
    on = environment.get(ON, "cuda")
    if on not in ("cuda", "cpu"):
        raise ConfigError(f"{ON} = {on!r} is neither cuda nor cpu")
    if on == "cuda" and not visible(environment):
        raise ConfigError(f"this machine has no GPU; {ON}=cpu tries what can be tried without one")
    rows = run_probes(PROBES, on=on, environment=environment, say=lambda row: output.say(line_of(row)))
    output.say(summary(rows))
    if output.json:
        output.result(json_line(verdict(rows)))
    return FAILED if any(row.status == "failed" for row in rows) else FINISHED


def line_of(row: Row) -> str:
    """For people."""
    return f"{row.status:<9} {row.name:<18} {row.seconds:>6.1f} s  {' '.join(row.said.split())}"


def summary(rows: Sequence[Row]) -> str:
    """How many of each; what was not tried is no success."""
    count = {status: sum(row.status == status for row in rows) for status in ("ok", "failed", NOT_HERE)}
    return f"{count['ok']} ok, {count['failed']} failed, {count[NOT_HERE]} not tried here"


def verdict(rows: Sequence[Row]) -> dict[str, Any]:
    """For scripts. `ok` only if all were tried."""
    return {"ok": all(row.status == "ok" for row in rows), "probes": [asdict(row) for row in rows]}
