"""`headrace doctor --gpu`: runs the probes and reports them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from headrace.doctor.placement import visible
from headrace.inspect.output import FAILED, FINISHED, Output
from headrace.selfcheck.check import NOT_HERE, PROBES, ProbeResult, run_probes
from headrace.wire.errors import ConfigError

ON = "HEADRACE_GPU_TESTS_ON"
"""Environment variable; `cpu` runs the probes that work without CUDA, at a small size."""


def try_gpu(output: Output, environment: Mapping[str, str]) -> int:
    """Runs the probes and prints a line as each ends; returns 1 if one failed. Raises ConfigError without a GPU."""
    on = environment.get(ON, "cuda")
    if on not in ("cuda", "cpu"):
        raise ConfigError(f"{ON} = {on!r} is neither cuda nor cpu")
    if on == "cuda" and not visible(environment):
        raise ConfigError(f"this machine has no GPU; {ON}=cpu tries what can be tried without one")
    rows = run_probes(PROBES, on=on, environment=environment, say=lambda row: output.say(line_of(row)))
    output.say(summary(rows))
    output.in_json(verdict(rows))
    return FAILED if any(row.status == "failed" for row in rows) else FINISHED


def line_of(row: ProbeResult) -> str:
    """Formats one row for the user."""
    return f"{row.status:<9} {row.name:<19} {row.seconds:>6.1f} s  {' '.join(row.said.split())}"


def summary(rows: Sequence[ProbeResult]) -> str:
    """Counts the rows by status; a probe that was not run does not count as a success."""
    count = {status: sum(row.status == status for row in rows) for status in ("ok", "failed", NOT_HERE)}
    return f"{count['ok']} ok, {count['failed']} failed, {count[NOT_HERE]} not tried here"


def verdict(rows: Sequence[ProbeResult]) -> dict[str, object]:
    """The rows as JSON values for scripts; `ok` only if all probes were run and passed."""
    return {"ok": all(row.status == "ok" for row in rows), "probes": [asdict(row) for row in rows]}
