"""The site builds without a warning, and asks nobody else for anything."""

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

_FOREIGN = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(https?:)?//""")


def test_the_site_builds_strictly_and_works_offline(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not _FOREIGN.search(page.read_text(encoding="utf-8")), f"{page.name} loads from elsewhere"
