"""What every service tells, and in which form."""

import importlib
from pathlib import Path

import pytest

from headrace.wire.telemetry import metrics
from headrace.wire.telemetry.metrics import describe, exposition, read_engine_metrics

ENGINE = """# HELP engine:requests_total All.
# TYPE engine:requests_total counter
engine:requests_total{model="m"} 3
engine:requests_total{model="n",run="its own"} 4
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 99
"""


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_process", {})
    monkeypatch.setattr(metrics, "_foreign", set())


def lines(text: bytes, name: str) -> list[str]:
    return [line for line in text.decode().splitlines() if line.startswith(name)]


def test_every_sample_names_its_run_and_its_replica() -> None:
    describe("rollout", "demo", "3")
    text = exposition().decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples and all('replica="rollout-3"' in line and 'run="demo"' in line for line in samples)
    assert any(line.startswith("headrace_build_info{") and line.endswith(" 1.0") for line in samples)


def test_a_process_exposes_no_metric_of_another_service() -> None:
    services = {path.parent.name for path in (Path(metrics.__file__).parents[2] / "services").glob("*/metrics.py")}
    assert len(services) == 5
    for service in services:  # As the fork server does it, for all that it may start.
        importlib.import_module(f"headrace.services.{service}.metrics")
    for service in services:
        describe(service, "demo", "0")
        names = {line.split("{")[0] for line in exposition().decode().splitlines() if not line.startswith("#")}
        prefixes = {other for other in services if any(name.startswith(f"headrace_{other}_") for name in names)}
        assert prefixes == {service} and "headrace_build_info" in names


def test_an_engines_own_metrics_get_the_labels_and_keep_theirs() -> None:
    describe("rollout", "demo", "0")
    found = lines(exposition(read_engine_metrics(ENGINE)), "engine:requests_total")
    assert found == [
        'engine:requests_total{model="m",replica="rollout-0",run="demo"} 3.0',
        'engine:requests_total{model="n",replica="rollout-0",run="its own"} 4.0',
    ]
