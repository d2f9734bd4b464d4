"""Runs all probes one after the other, each in a process with its own deadline, and collects a row for each."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.supervisor.once import ChildFailedError, child_environment, python, run_once
from headrace.wire.errors import HeadraceError

Status = Literal["ok", "failed", "not here"]
NOT_HERE: Status = "not here"
"""The probe needs CUDA, NCCL or more memory, and was not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe, run as a process."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] | None = None
    """Arguments that make it smaller on a CPU; None = it needs CUDA."""
    deadline_s: float = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Result of one probe."""

    name: str
    status: Status
    seconds: float
    said: str
    numbers: Mapping[str, object]


_SMALL = ("--mib", "4", "--limit", "3", "--linger", "1")
GROUPS = "headrace.selfcheck.groups"
PROBES: tuple[Probe, ...] = (
    *(Probe(name=f"nccl {case}", module=GROUPS, arguments=(case,)) for case in ("bytes", "sglang")),
    *(Probe(name=f"nccl {case}", module=GROUPS, arguments=(case,)) for case in ("kill", "freeze", "two")),
    *(
        Probe(name=f"gloo {case}", module=GROUPS, arguments=(case, "--backend", "gloo"), on_cpu=_SMALL)
        for case in ("bytes", "sglang", "kill", "freeze", "two")
    ),
    Probe(name="snapshot 3.2 GB", module="headrace.selfcheck.publish", on_cpu=("--gb", "0.05")),
    Probe(name="snapshot 16.4 GB", module="headrace.selfcheck.publish", arguments=("--gb", "16.4")),
    Probe(
        name="step 0.6 B",
        module="headrace.selfcheck.step",
        arguments=("--size", "0.6", "--longest", "1024", "--budget", "8192"),
        on_cpu=("--size", "tiny", "--longest", "32", "--budget", "256", "--tokens", "512"),
    ),
    Probe(name="step 1.7 B", module="headrace.selfcheck.step", arguments=("--size", "1.7")),
    Probe(name="step 1.7 B compiled", module="headrace.selfcheck.step", arguments=("--size", "1.7", "--compile")),
    Probe(
        name="step 4 B",
        module="headrace.selfcheck.step",
        arguments=("--size", "4", "--tokens", "32768", "--checkpointing"),
    ),
)


def run_probes(
    probes: Sequence[Probe], *, on: str, environment: Mapping[str, str], say: Callable[[ProbeResult], None]
) -> list[ProbeResult]:
    """Returns rows in the order of the probes, and reports each as it ends. A probe that fails raises nothing."""
    rows = []
    for probe in probes:
        if on == "cpu" and probe.on_cpu is None:
            row = ProbeResult(name=probe.name, status=NOT_HERE, seconds=0.0, said="needs CUDA", numbers={})
        else:
            row = _run(probe, on, environment)
        say(row)
        rows.append(row)
    return rows


def _run(probe: Probe, on: str, environment: Mapping[str, str]) -> ProbeResult:
    smaller = probe.on_cpu if on == "cpu" and probe.on_cpu is not None else ()
    argv = python(probe.module, *probe.arguments, *smaller, "--on", on)
    env = child_environment(dict(environment), threads=1)
    began = time.monotonic()
    try:
        found = read_end(run_once(f"probe {probe.name}", argv, env=env, log=None, timeout_s=probe.deadline_s))
        status: Status = "ok" if found.pop("ok") else "failed"
        status = status if found.pop("here", True) else NOT_HERE
        said = str(found.pop("said"))
    except ChildFailedError as error:
        # 134 is SIGABRT: torch's watchdog.
        status, found = "failed", {}
        said = f"status {error.status}: {(error.message.splitlines() or [''])[-1]}"
    except (HeadraceError, ValueError, KeyError) as error:
        status, said, found = "failed", f"{type(error).__name__}: {error}", {}
    return ProbeResult(
        name=probe.name, status=status, seconds=round(time.monotonic() - began, 1), said=said, numbers=found
    )


def read_end(out: str) -> dict[str, object]:
    """Parses the last line of a probe's output. Raises ValueError if there is none."""
    lines = out.strip().splitlines()
    if not lines:
        raise ValueError("the probe ended without output")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
