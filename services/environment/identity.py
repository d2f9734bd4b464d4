"""What makes two environments the same: the code in their folder, and the settings that an episode depends on."""

import hashlib
import json

from headrace.services.environment.settings import EnvironmentTable

_SCALE = frozenset({"path", "replicas", "slots", "hold_s", "outage_s", "start_s"})
"""Settings that change no episode."""


def environment_digest(table: EnvironmentTable) -> str:
    """16 hex digits over config and the `*.py` files of `environment.path`. Raises OSError."""
    found = hashlib.sha256()
    names = set(EnvironmentTable.model_fields) - _SCALE
    found.update(json.dumps(table.model_dump(mode="json", include=names), sort_keys=True).encode())
    if table.path is not None:
        for file in sorted(table.path.rglob("*.py")):
            found.update(f"\n{file.relative_to(table.path)}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:16]
