"""A run of the manifests in a namespace of its own, on nodes that a test chooses."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.rendered import KUBERNETES, Manifest, make_secrets
from tests.waiting import until

WAIT_S = 120
"""Ends a hang."""
COMPONENT = "app.kubernetes.io/component"


class Scenario:
    """One namespace: its overlays, and what has become of them."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, prefix: str = "") -> None:
        """`prefix`: of the names of its objects."""
        self.plane = plane
        self.namespace = namespace
        self.prefix = prefix
        self._folder = folder.resolve()
        self.secrets = self._folder / "secrets"

    def kubectl(self, *words: str, seconds: float = WAIT_S) -> str:
        """`kubectl` in the namespace; its stdout."""
        return self.plane.kubectl("-n", self.namespace, *words, seconds=seconds)

    def overlay(self, name: str, **more: Any) -> Path:
        """A folder with an overlay above the shipped one of that name; `more` is added to its kustomization."""
        if not self.secrets.is_dir():
            make_secrets(self.secrets)
        folder = self._folder / f"{name}-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        # Kustomize takes no absolute paths.
        components = [f"../{self.secrets.name}", *more.pop("components", ())]
        below = os.path.relpath(KUBERNETES / "overlays" / name, folder)
        (folder / "kustomization.yaml").write_text(
            yaml.safe_dump({"namespace": self.namespace, "resources": [below], "components": components, **more})
        )
        return folder

    def apply(self, name: str, **more: Any) -> None:
        """`kubectl apply -k` of such an overlay."""
        self.kubectl("apply", "-k", str(self.overlay(name, **more)))

    def pods(self, component: str = "") -> list[Manifest]:
        """All that are there, also those that are ending."""
        chosen = ("-l", f"{COMPONENT}={component}") if component else ()
        found: list[Manifest] = json.loads(self.kubectl("get", "pods", *chosen, "-o", "json"))["items"]
        return found

    def ready(self, component: str = "") -> list[Manifest]:
        """Those that run, are ready, and are not ending."""
        return [one for one in self.pods(component) if is_ready(one)]

    def wait_for_pods(self, count: int, component: str = "") -> list[Manifest]:
        """Those of a component, once so many and no others are there and ready."""

        def settled() -> list[Manifest]:
            found = self.pods(component)
            return found if len(found) == count and all(is_ready(one) for one in found) else []

        return until(
            settled, f"{count} ready pods of {component or 'all'}", seconds=WAIT_S, detail=self.shown, every_s=1.0
        )

    def shown(self) -> str:
        """For the message of a wait that has ended: pods, events, and the last lines of containers that failed."""
        logs = [self._last_lines(pod["metadata"]["name"], name) for pod in self.pods() for name in _failed(pod)]
        return "\n".join([self.kubectl("get", "pods", "-o", "wide"), self.kubectl("get", "events")[-3000:], *logs])

    def _last_lines(self, pod: str, container: str) -> str:
        done = self.plane.attempt("-n", self.namespace, "logs", pod, "-c", container, "--tail=30")
        return f"{pod}/{container}:\n{done.stdout}{done.stderr}"


def _failed(pod: Manifest) -> Iterator[str]:
    """The containers whose last end was an error."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in pod["status"].get(key, ()):
            ends = [state.get("terminated", {}) for state in (one.get("state", {}), one.get("lastState", {}))]
            if any(end.get("exitCode", 0) for end in ends):
                yield one["name"]


def is_ready(pod: Manifest) -> bool:
    """Whether it runs, passes its probes and stays."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
