"""The list of all checks: of the machine and, given a config, of what that config needs."""

from collections.abc import Mapping
from pathlib import Path

from headrace.doctor import config_checks, gpu, machine, memory_finding, network, software
from headrace.doctor.findings import Check
from headrace.doctor.wants import Wants


def all_checks(wants: Wants, run_dir: Path, environment: Mapping[str, str]) -> list[Check]:
    """All checks, in the order in which they are reported."""
    checks = machine_checks(wants, run_dir, environment)
    if resolved := wants.resolved:
        checks.append(Check(name="config", look=lambda: config_checks.keys(resolved)))
        checks.append(Check(name="model", look=lambda: config_checks.model(resolved)))
        checks.append(Check(name="memory plan", look=lambda: memory_finding.memory_plan(resolved)))
        checks.append(Check(name="data", look=lambda: config_checks.data(resolved)))
    return checks


def machine_checks(wants: Wants, run_dir: Path, environment: Mapping[str, str]) -> list[Check]:
    """Checks whose result depends on the machine, not only on the config."""
    reboot = "the driver hangs: dmesg shows why; often only a reboot helps"
    return [
        Check(name="python", look=software.interpreter),
        Check(name="packages", look=software.packages),
        Check(name="extras", look=lambda: software.extras(wants)),
        Check(name="gpu", look=lambda: gpu.driver(wants, environment), fix=reboot),
        Check(name="torch", look=lambda: gpu.torch(wants, environment), deadline_s=gpu.TORCH_S, fix=reboot),
        Check(name="compiler", look=lambda: software.compiler(wants, environment)),
        Check(name="sglang", look=lambda: software.sglang(wants, environment), deadline_s=70.0),
        Check(name="memory", look=lambda: machine.memory(wants)),
        Check(name="shared memory", look=lambda: machine.shared_memory(wants)),
        Check(name="disk", look=lambda: machine.disk(run_dir, wants)),
        Check(name="files", look=lambda: machine.files(run_dir), fix="the disk hangs: choose another --run-dir"),
        Check(name="ports", look=lambda: network.ports(wants)),
        Check(name="redis", look=lambda: network.broker(wants, environment), deadline_s=30.0),
        Check(name="sandbox", look=lambda: software.sandbox(wants, environment), deadline_s=70.0),
        Check(name="limits", look=lambda: machine.limits(wants)),
    ]
