"""A test that plays several services has one token for all roles: each of its calls goes through the doors."""

import json
from pathlib import Path

from headrace.wire.access import process
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, digest_of
from headrace.wire.rundir.layout import RunPaths


def take_all_roles(run_dir: Path) -> None:
    """Gives a run directory tokens, if it has none, and this process the one of all roles; `process.forget` ends it."""
    folder = RunPaths(run_dir).tokens
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for role in Role:
            (folder / role).write_text("of-all-roles")
        (folder / ACCEPTED).write_text(json.dumps({role: [digest_of("of-all-roles")] for role in Role}))
    process.use(Role.OPERATOR, folder, makes=False)
