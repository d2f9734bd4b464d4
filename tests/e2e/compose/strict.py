"""A checkout as `git clone` makes it under umask 077: the owner alone may read it."""

import shutil
import subprocess
from pathlib import Path

from tests.e2e.compose.project import ROOT


def strict_checkout(folder: Path) -> Path:
    """The files that git knows, as they are here now, with modes 0700 and 0600; it may not exist yet."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
            continue
        if not source.is_file():
            continue
        shutil.copyfile(source, target)
        target.chmod(source.stat().st_mode & 0o700)
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())):
        path.chmod(0o700)
    return folder
