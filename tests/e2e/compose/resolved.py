"""What a service of docker-compose.yml is in the end, as Compose resolves it and as the rules of YAML do."""

import json
import os
import re
import shlex
import string
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
Service = dict[str, Any]
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_WORDS = {"${MODEL:+--model.path '${MODEL}'}": ""}
"""A variable in Compose's own syntax, which `string.Template` does not know, with the variables of .env."""


def variables() -> dict[str, str]:
    """Those of .env."""
    lines = [line for line in (ROOT / ".env").read_text().splitlines() if line and not line.startswith("#")]
    return {**dict(line.split("=", 1) for line in lines), "COMPOSE_PROJECT_NAME": "headrace"}


def parse(file: Path = ROOT / "docker-compose.yml") -> dict[str, Service]:
    """Its services by PyYAML, whose merges follow YAML's rule; KeyError for a variable that .env has not."""
    text = file.read_text()
    for word, value in _WORDS.items():
        text = text.replace(word, value)
    parsed: dict[str, Any] = yaml.safe_load(string.Template(text).substitute(variables()))
    services: dict[str, Service] = parsed["services"]
    return services


def compose(profiles: str | None, *overrides: str, **changed: str) -> dict[str, Service]:
    """The services by `docker compose config`; `profiles` None: those of .env. `changed` stands above .env."""
    environment = {key: value for key, value in os.environ.items() if key not in variables()}
    environment |= changed if profiles is None else {**changed, "COMPOSE_PROFILES": profiles}
    files = [word for file in ("docker-compose.yml", *overrides) for word in ("--file", file)]
    done = subprocess.run(
        ["docker", "compose", *files, "config", "--format", "json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    services: dict[str, Service] = json.loads(done.stdout)["services"]
    return services


def facts(one: Service) -> dict[str, Any]:
    """What a container of the service is made of and how it runs; in one form, whoever has resolved it."""
    build = one.get("build", {})
    resources = one["deploy"]["resources"]
    devices = resources.get("reservations", {}).get("devices", ())
    return {
        "image": one["image"],
        "build": (build.get("dockerfile"), build.get("target"), frozenset(build.get("args", ()))),
        "gpus": [(device["driver"], *_gpus(device), *device["capabilities"]) for device in devices],
        "entrypoint": _words(one.get("entrypoint")),
        "command": _words(one.get("command")),
        "user": one["user"],
        "groups": list(one.get("group_add", ())),
        "tmpfs": list(one["tmpfs"]),
        "shm": _bytes(one.get("shm_size", 0)),
        "ulimits": one.get("ulimits", {}),
        "restart": one["restart"],
        "grace": _seconds(one.get("stop_grace_period", "0s")),
        "start": _seconds(one["healthcheck"].get("start_period", "0s")),
        "memory": _bytes(resources["limits"]["memory"]),
        "mounts": sorted(map(_target, one.get("volumes", ()))),
        "environment": frozenset(one.get("environment") or ()),
        "after": {name: wait["condition"] for name, wait in one.get("depends_on", {}).items()},
    }


def _gpus(device: dict[str, Any]) -> list[str]:
    """Their ids, or how many; Compose writes -1 for `all`."""
    count = str(device.get("count", ""))
    return list(device.get("device_ids", ())) or ["all" if count == "-1" else count]


def _words(value: Any) -> list[str]:
    return shlex.split(value) if isinstance(value, str) else list(value or ())


def _target(volume: Any) -> str:
    """Where it is mounted."""
    return str(volume["target"] if isinstance(volume, dict) else volume.split(":")[1])


def _seconds(value: str) -> int:
    """Reads `20m` and `20m0s`."""
    return sum(int(count) * _SECONDS[unit] for count, unit in re.findall(r"(\d+)([hms])", value))


def _bytes(value: Any) -> int:
    """Reads `16g` and 17179869184."""
    text = str(value)
    return int(text[:-1]) * _BYTES[text[-1]] if text[-1] in _BYTES else int(text)
