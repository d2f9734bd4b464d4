"""Strict validation: Kubernetes' own kinds by kubernetes-validate, others by the schemas of their CRDs."""

import functools
import os
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.integration.kubernetes.rendered import Manifest, documents

VERSIONS = ("1.31", kubernetes_validate.latest_version())
"""The oldest that docs/kubernetes.md names, and the newest that is known here."""
_FOLDER = "HEADRACE_SCHEMAS"
_FILES = {
    "JobSet": "jobset.x-k8s.io_jobsets.yaml",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "ScaledObject": "keda.sh_scaledobjects.yaml",
    "PodMonitor": "monitoring.coreos.com_podmonitors.yaml",
    "ServiceMonitor": "monitoring.coreos.com_servicemonitors.yaml",
    "PrometheusRule": "monitoring.coreos.com_prometheusrules.yaml",
}
_FILES_IF_THERE = {
    "Certificate": "cert-manager.io_certificates.yaml",
    "Issuer": "cert-manager.io_issuers.yaml",
}
"""A folder without these is taken too; `tests/integration/kubernetes/test_tokens.py` looks at what they say."""

# It reads megabytes for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def is_own(manifest: Manifest) -> bool:
    """Whether the kind is Kubernetes' own."""
    return manifest["kind"] not in _FILES | _FILES_IF_THERE


def has_schema(manifest: Manifest) -> bool:
    """Whether the kind is Kubernetes' own, or its CRD is in the folder."""
    name = _FILES_IF_THERE.get(manifest["kind"])
    return name is None or (need_schemas() / name).is_file()


def check_own(manifest: Manifest) -> None:
    """Raises a ValidationError; an unknown field is one."""
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


def schemas_folder() -> Path | None:
    """The folder of CRDs, if there is one."""
    folder = os.environ.get(_FOLDER)
    return Path(folder) if folder else None


def need_schemas() -> Path:
    """The folder of CRDs; skips aloud without."""
    folder = schemas_folder()
    if not folder:
        pytest.skip(f"no {_FOLDER}: set it to a folder with the CRDs {', '.join(_FILES.values())}")
    return folder


def check_custom(manifest: Manifest) -> None:
    """Raises a ValidationError; an unknown field is one."""
    version = manifest["apiVersion"].partition("/")[2]
    schema = _schema(manifest["kind"], version)
    jsonschema.Draft202012Validator(schema).validate(manifest)


@functools.cache
def _schema(kind: str, version: str) -> dict[str, Any]:
    (crd,) = documents((need_schemas() / (_FILES | _FILES_IF_THERE)[kind]).read_text())
    found = next(one for one in crd["spec"]["versions"] if one["name"] == version)
    schema = found["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"type": "object"}
    return _strict(schema)


def _strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server would prune them."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict(value) for key, value in schema.items() if key not in ("default", "enum", "example")}
    if "enum" in schema:
        found["enum"] = schema["enum"]
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and "properties" in schema and not open_ended:
        found["additionalProperties"] = False
    return found
