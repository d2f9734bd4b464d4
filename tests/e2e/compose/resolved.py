"""What a service of docker-compose.yml is in the end, as Compose resolves it and as the rules of YAML do."""

import json
import os
import string
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
Service = dict[str, Any]
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
