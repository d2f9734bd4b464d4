"""The certificates of a run whose services `headrace train` starts."""

from collections.abc import Mapping
from pathlib import Path

from headrace.config.services import SETTINGS
from headrace.wire.access.certificates import read_certificates
from headrace.wire.access.roles import Role


def certificates_of(environment: Mapping[str, str]) -> Path | None:
    """The folder of HEADRACE_TLS with the certificates of all services; None if it is not set.

    Raises ConfigError for a service whose certificate is missing, or that no peer would take.
    """
    if not environment.get("HEADRACE_TLS"):
        return None
    folder = Path(environment["HEADRACE_TLS"]).resolve()
    for service in SETTINGS:
        read_certificates(folder, Role(service))
    return folder
