"""What the documentation tells others' programs to do: services, objects, files, targets and extras that exist."""

import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, blocks

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICE_VERBS = {"cp", "exec", "logs", "run"}
VALUES = {"--profile", "-f", "--entrypoint", "--scale"}
"""Options of docker compose that take a word."""


def lines(program: str) -> Iterator[tuple[str, list[str]]]:
    """Page and words of every command line that begins with a program."""
    for block in blocks("bash", "console"):
        for line in re.sub(r"\\\n", " ", block.text).splitlines():
            for part in re.split(r"\s(?:&&|\|\|?|;)\s", line.removeprefix("$ ").strip()):
                if part.startswith(f"{program} "):
                    yield block.name, shlex.split(part, comments=True)[len(program.split()) :]


def test_compose_is_told_of_profiles_files_and_services_that_exist() -> None:
    profiles = {name for service in COMPOSE["services"].values() for name in service.get("profiles", ())} | {"*"}
    seen = 0
    for page, given in lines("docker compose"):
        words = [word for pair in given for word in pair.split("=", 1)] if given else []
        options = [(word, words[index + 1]) for index, word in enumerate(words[:-1]) if word in VALUES]
        for option, value in options:
            if option == "--profile":
                assert value in profiles, f"{page}: no profile {value!r}"
            elif option == "-f":
                assert (ROOT / value).is_file(), f"{page}: no file {value}"
            elif option == "--scale":
                assert value in COMPOSE["services"], f"{page}: no service {value!r}"
        taken = {value for _, value in options}
        plain = [word for word in words if not word.startswith("-") and word not in taken]
        if plain and plain[0] in SERVICE_VERBS:
            assert plain[1].partition(":")[0] in COMPOSE["services"], f"{page}: no service {plain[1]!r}"
        seen += 1
    assert seen >= 8


def test_kubectl_is_told_of_objects_that_exist() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl 1.24 or newer on PATH")
    named = {
        (kind, name)
        for _, words in lines("kubectl")
        for kind, name in re.findall(r"\b(job|deployment|statefulset|service)[/ ]([a-z0-9-]+)", " ".join(words))
    }
    assert len(named) >= 4 and named <= objects()


@cache
def objects() -> set[tuple[str, str]]:
    """Objects of the overlays that the pages walk through, and the Jobs that a JobSet makes."""
    rendered = [
        one
        for overlay in ("cpu", "cluster")
        for one in yaml.safe_load_all(
            subprocess.run(
                ["kubectl", "kustomize", ROOT / "deploy/kubernetes/overlays" / overlay],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    ]
    jobs = {
        ("job", f"{one['metadata']['name']}-{replicated['name']}-{index}")
        for one in rendered
        if one["kind"] == "JobSet"
        for replicated in one["spec"]["replicatedJobs"]
        for index in range(replicated.get("replicas", 1))
    }
    return {(one["kind"].lower(), one["metadata"]["name"]) for one in rendered} | jobs


def test_make_is_told_of_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = {words[0] for _, words in lines("make")}
    assert {"demo", "test"} <= told <= targets


def test_pip_is_told_of_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    told = {name for found in re.findall(r"headrace\[([a-z,]+)\]", pages) for name in found.split(",")}
    assert told and told <= extras.keys()


def test_scripts_and_modules_that_are_named_exist() -> None:
    for page, words in lines("python -m"):
        path = ROOT / words[0].replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"{page}: {words[0]}"
    text = "\n".join(block.text for block in blocks("bash", "console"))
    for script in re.findall(r"^((?:deploy|examples)/\S+\.sh)", text, re.MULTILINE):
        assert (ROOT / script).is_file(), script
