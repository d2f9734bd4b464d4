"""`make sbom` lists every package that is installed, or locked for the pages, with its version."""

import json
import re
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.node import need_node

ROOT = Path(__file__).resolve().parents[3]
_MAKE_S = 500

pytestmark = [pytest.mark.long, pytest.mark.timeout(_MAKE_S + 60)]


def listed(path: Path) -> set[tuple[str, str]]:
    bill = json.loads(path.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    return {(_plain(one["name"]), one["version"].partition("+")[0]) for one in bill["components"]}


def _own(installed: set[tuple[str, str]]) -> tuple[str, str]:
    """Headrace itself, which is the bill's subject in some environments and a component in others."""
    (own,) = [one for one in installed if one[0] == "headrace"]
    return own


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_bills_name_every_package_and_its_version(tmp_path: Path) -> None:
    need_node()
    words = ["make", "sbom", f"SBOM={tmp_path}", f"AUDIT={tmp_path / 'audit'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=_MAKE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    installed = {(_plain(one.name), one.version.partition("+")[0]) for one in distributions()}
    assert len(installed) > 100 and installed == listed(tmp_path / "python.json") | {_own(installed)}
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())["packages"]
    wanted = {
        (path.rpartition("node_modules/")[2], one["version"])
        for path, one in lock.items()
        if path and not one.get("optional")
    }
    bill = json.loads((tmp_path / "ui.json").read_text())["components"]
    found = {("/".join(filter(None, (one.get("group"), one["name"]))), one["version"]) for one in bill}
    assert len(wanted) > 50 and wanted <= found
