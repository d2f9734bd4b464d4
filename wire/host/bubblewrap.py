"""Looks bubblewrap up, for all that runs programs in it, and for what tells beforehand that it is missing."""

import os
import shutil

_SYSTEM = "/usr/bin:/usr/local/bin:/bin"
"""Looked through after PATH, which a service may not have been given."""


def find_bubblewrap() -> str:
    """The path of `bwrap`; empty where there is none."""
    found = shutil.which("bwrap") or shutil.which("bwrap", path=_SYSTEM)
    return os.path.realpath(found) if found else ""
