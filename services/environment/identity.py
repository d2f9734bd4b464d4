"""What makes two environments the same: the code in their folder, and the settings that an episode depends on."""

import hashlib
import json
from pathlib import Path
from typing import TypeVar

from headrace.services.environment.settings import EnvironmentSettings, EnvironmentTable
from headrace.wire.rundir.own_code import environment_code, files_in

SettingsT = TypeVar("SettingsT", bound=EnvironmentSettings)
_SCALE = frozenset({"path", "replicas", "slots", "hold_s", "outage_s", "start_s", "folders", "variables", "sandbox"})
"""Settings that change no episode."""
_LATER = ("rewards", "command", "reward_command", "reward_file", "renderer", "options", "harness")


def environment_digest(table: EnvironmentTable) -> str:
    """16 hex digits over config and the `*.py` files of `environment.path`; all files of a program. Raises OSError."""
    found = hashlib.sha256()
    # A key that came later counts only where it is set: runs that began before it go on.
    fields = EnvironmentTable.model_fields
    names = (
        set(fields)
        - _SCALE
        - {name for name in _LATER if getattr(table, name) == fields[name].get_default(call_default_factory=True)}
    )
    found.update(json.dumps(table.model_dump(mode="json", include=names), sort_keys=True).encode())
    if table.path is not None:
        for file in sorted(one for one in files_in(table.path) if table.command or one.suffix == ".py"):
            found.update(f"\n{file.relative_to(table.path)}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def with_copied_code(settings: SettingsT, code: Path | None = None) -> SettingsT:
    """The settings with the run's copy of `environment.path` in its place; `code`: a copy that is not yet the run's."""
    table = settings.environment
    if table.path is None:
        return settings
    copy = code or environment_code(settings.run_dir).folder
    return settings.model_copy(update={"environment": table.model_copy(update={"path": copy})})
