"""The API server's own word on an object: what `kubectl apply --dry-run=server` asks, over one connection."""

import functools
import ssl
from typing import Any

import httpx
import yaml

from tests.integration.kubernetes.control_plane import ControlPlane
from tests.integration.kubernetes.rendered import Manifest

_STRICT = {"fieldManager": "tests", "fieldValidation": "Strict", "force": "true"}
"""An unknown or repeated field is refused, not dropped."""


class Server:
    """A client of its REST API, as administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        told = yaml.safe_load(plane.kubeconfig.read_text())
        (cluster,), (user,) = told["clusters"], told["users"]
        authority = ssl.create_default_context(cafile=cluster["cluster"]["certificate-authority"])
        headers = {"Authorization": f"Bearer {user['user']['token']}"}
        self._client = httpx.Client(
            base_url=cluster["cluster"]["server"], headers=headers, verify=authority, timeout=60, trust_env=False
        )
        self._resources = functools.cache(self._find)

    def close(self) -> None:
        """Closes its connection."""
        self._client.close()

    def refusals(self, manifest: Manifest) -> list[str]:
        """What the server says against an object, warnings included; it is not stored."""
        where = f"{manifest['kind']}/{manifest['metadata']['name']}"
        path = self._path(manifest)
        if path is None:
            return [f"{where}: the server knows no {manifest['kind']} of {manifest['apiVersion']}"]
        answer = self._client.patch(
            path,
            params={**_STRICT, "dryRun": "All"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=yaml.dump(manifest, Dumper=yaml.CSafeDumper),
        )
        said = [f"{where}: {warning}" for warning in answer.headers.get_list("Warning")]
        if answer.status_code not in (200, 201):
            said.append(f"{where}: {answer.status_code} {answer.json().get('message', answer.text)}")
        return said

    def _path(self, manifest: Manifest) -> str | None:
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        found = self._resources(version).get(kind)
        if found is None:
            return None
        name, namespaced = found
        namespace = f"/namespaces/{metadata['namespace']}" if namespaced else ""
        return f"{_root(version)}{namespace}/{name}/{metadata['name']}"

    def _find(self, version: str) -> dict[str, tuple[str, bool]]:
        """Kind -> its name in paths, and whether it is of a namespace."""
        answer = self._client.get(_root(version))
        listed: list[dict[str, Any]] = answer.json()["resources"] if answer.status_code == 200 else []
        return {one["kind"]: (one["name"], one["namespaced"]) for one in listed if "/" not in one["name"]}


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
