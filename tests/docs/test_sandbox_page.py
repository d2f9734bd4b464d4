"""The page on the sandbox has the AppArmor profile of the repository, and advises nothing that is refused."""

import re

from tests.docs.pages import ROOT, blocks

NAME = "headrace-sandbox"
PAGE = ROOT / "docs" / "sandbox.md"
FILE = ROOT / "deploy" / "compose" / "apparmor-sandbox"


def test_the_profile_of_the_page_is_that_of_the_file() -> None:
    (shown,) = [one.text for one in blocks("text") if one.page == PAGE and "profile" in one.text]
    lines = [line for line in FILE.read_text().splitlines(keepends=True) if not line.startswith("#")]
    assert shown == "".join(lines) and f"profile {NAME} flags=(unconfined) {{\n  userns,\n" in shown
    assert f"/etc/apparmor.d/{NAME}" in PAGE.read_text() and f"/etc/apparmor.d/{NAME}" in FILE.read_text()


def test_no_page_advises_what_the_namespace_refuses() -> None:
    namespace = (ROOT / "deploy/kubernetes/base/namespace.yaml").read_text()
    assert re.search(r"pod-security.kubernetes.io/enforce: restricted", namespace)
    for page in (PAGE, ROOT / "docs" / "kubernetes.md"):
        assert "type: Unconfined" not in page.read_text(), page.name
