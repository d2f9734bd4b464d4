"""What GitHub and pre-commit read names commands that exist."""

import itertools
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def commands(job: dict[str, Any]) -> list[str]:
    """The job's commands, once for each value of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    runs = [step["run"] for step in job["steps"] if "run" in step]
    filled = []
    for values in itertools.product(*matrix.values()):
        for run in runs:
            for name, value in zip(matrix, values, strict=True):
                run = run.replace(f"${{{{ matrix.{name} }}}}", value)
            filled.append(run)
    return filled


def test_workflows_call_targets_of_the_makefile() -> None:
    called = set()
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for job in workflow["jobs"].values():
            assert "timeout-minutes" in job, path.name
            called |= {word for run in commands(job) for word in re.findall(r"^make ([a-z-]+)", run, re.MULTILINE)}
    assert {"check", "test", "compose", "sglang", "long", "alone"} <= called
    assert called <= TARGETS


def test_hooks_call_targets_of_the_makefile() -> None:
    hooks = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert hooks
    assert {hook["entry"].removeprefix("make ") for hook in hooks} <= TARGETS
    assert all(hook["language"] == "system" for hook in hooks)


def test_links_of_the_pages_at_the_top_lead_somewhere() -> None:
    for page in ("SECURITY.md", "CONTRIBUTING.md", "README.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text()):
            assert target.startswith("http") or (ROOT / target).exists(), f"{page}: {target}"
