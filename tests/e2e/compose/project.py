"""A Compose project of its own name and ports: brought up, looked at, taken down whole."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from tests.http_tokens import bearer
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
T = TypeVar("T")
_FETCH = """
import json, sys, urllib.request
print(json.dumps([json.load(urllib.request.urlopen(url, timeout=20)) for url in sys.argv[1:]]))
"""
_KINDS = {
    "container": ("container", "ls", "--all"),
    "network": ("network", "ls"),
    "volume": ("volume", "ls"),
}


class Project:
    """One project of docker-compose.yml, that of `folder`; its images have a tag."""

    def __init__(
        self, name: str, profile: str, variables: Mapping[str, str], folder: Path = ROOT, tag: str = "test"
    ) -> None:
        self.name = name
        self.folder = folder
        self.tag = tag
        self.port = free_port()
        self._token = ""
        self._environment = {
            **os.environ,
            **variables,
            "COMPOSE_PROFILES": profile,
            "DASHBOARD_PORT": str(self.port),
            "IMAGE_TAG": self.tag,
        }

    def compose(self, *words: str, seconds: float = 120) -> str:
        """`docker compose ...`; its stdout."""
        done = self.attempt(*words, seconds=seconds)
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}\n{self.logs()}"
        return done.stdout

    def attempt(self, *words: str, seconds: float = 120) -> "subprocess.CompletedProcess[str]":
        """`docker compose ...`, which may fail."""
        command = ["docker", "compose", "--progress", "plain", "--project-name", self.name, *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def logs(self) -> str:
        """The last lines of every container."""
        return self.attempt("logs", "--tail", "15", "--no-color", seconds=60).stdout[-12000:]

    def containers(self, *, all_of_them: bool = False) -> list[dict[str, Any]]:
        """Running containers, as the engine describes them; `all_of_them`: also ended ones."""
        # Images have the project's label too, and give it to whoever runs them otherwise: only Compose counts.
        words = ["--filter", "label=com.docker.compose.container-number"] + (["--all"] if all_of_them else [])
        ids = docker("ps", *words, "--quiet", "--filter", f"label=com.docker.compose.project={self.name}").split()
        described: list[dict[str, Any]] = json.loads(docker("inspect", *ids)) if ids else []
        return described

    def of(self, service: str) -> list[dict[str, Any]]:
        """The running containers of one service."""
        return [one for one in self.containers() if service_of(one) == service]

    def python(self, service: str, code: str, *arguments: str) -> str:
        """Runs code in the first container of a service; its stdout."""
        return docker("exec", self.of(service)[0]["Id"], "python", "-I", "-c", code, *arguments)

    def status(self) -> dict[str, Any]:
        """What the dashboard's API says, over the published port; empty while it does not answer."""
        return self._get_json(f"http://127.0.0.1:{self.port}/api/status")

    def series(self, name: str) -> list[float]:
        """One curve of the dashboard so far."""
        found = self._get_json(f"http://127.0.0.1:{self.port}/api/series?names={name}")
        return [value for value in found.get("series", {}).get(name, {}).get("y", ()) if value is not None]

    def ask_prometheus(self, *paths: str) -> list[Any]:
        """The `data` of answers of its API: it is published nowhere, so it is asked from its own network."""
        (server,) = self.of("prometheus")
        words = ("run", "--rm", "--network", f"container:{server['Id']}", "--entrypoint", "python")
        urls = [f"http://127.0.0.1:9090/api/v1/{path}" for path in paths]
        image = f"headrace-orchestrator:{self.tag}"
        return [answer["data"] for answer in json.loads(docker(*words, image, "-I", "-c", _FETCH, *urls))]

    def query(self, *expressions: str) -> list[list[dict[str, Any]]]:
        """The samples that Prometheus has now of each expression."""
        answers = self.ask_prometheus(*(f"query?query={quote(expression)}" for expression in expressions))
        return [answer["result"] for answer in answers]

    def left(self) -> dict[str, list[str]]:
        """Whatever the engine still has of this project."""
        label = f"label=com.docker.compose.project={self.name}"
        found = {kind: docker(*words, "--quiet", "--filter", label).split() for kind, words in _KINDS.items()}
        return {kind: names for kind, names in found.items() if names}

    def _viewer(self) -> dict[str, str]:
        """The header with the viewer's token, which the orchestrator's container has."""
        found = [one for one in self.containers() if service_of(one).startswith("orchestrator-")]
        if not self._token and found:
            # Not there while it starts.
            done = subprocess.run(
                ["docker", "exec", found[0]["Id"], "cat", "/run/user-tokens/viewer"],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            self._token = done.stdout.strip()
        return bearer(self._token)

    def _get_json(self, url: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=self._viewer()), timeout=10) as answer:
                found: dict[str, Any] = json.loads(answer.read())
        except (OSError, ValueError):
            return {}
        return found


def service_of(container: dict[str, Any]) -> str:
    """The name of its service in docker-compose.yml."""
    name: str = container["Config"]["Labels"]["com.docker.compose.service"]
    return name


def docker(*words: str, seconds: float = 120) -> str:
    """`docker ...`; its stdout."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)[:300]}\n{done.stderr[-2000:]}"
    return done.stdout
