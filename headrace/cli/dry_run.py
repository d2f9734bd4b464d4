"""The end of a dry run: reports what this machine lacks for a valid config."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.doctor.all_checks import machine_checks
from headrace.doctor.findings import Level, run_checks
from headrace.doctor.wants import Wants
from headrace.inspect.output import FAILED, FINISHED, Output

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def end_dry_run(
    wants: Wants, run_dir: Path, output: Output, environment: Mapping[str, str], *, facts: "DataclassInstance"
) -> int:
    """Runs doctor's checks, reports the findings, and returns the exit status: 0 only if the run could start here.

    `wants`: those of the settled config, whose run directory has been prepared; `facts`: what was prepared.
    """
    findings = run_checks(machine_checks(wants, run_dir, environment))
    lacks = [one.name for one in findings if one.level is Level.FAIL]
    kinds = {Level.FAIL: "lacks", Level.WARN: "warning"}
    for one in findings:
        if one.level in kinds:
            output.say(f"{kinds[one.level]}: {one.name}: {' '.join(one.said.split())}; {one.fix}")
    if lacks:
        output.say(f"the config is in order; this machine cannot run it: {', '.join(lacks)}. Prepared in {run_dir}")
    else:
        output.say(f"everything is in order; nothing was started. Prepared in {run_dir}")
    output.in_json({"ok": not lacks, "lacks": lacks, "run_dir": str(run_dir), **dataclasses.asdict(facts)})
    return FAILED if lacks else FINISHED
