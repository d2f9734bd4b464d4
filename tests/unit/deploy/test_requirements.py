"""The requirements of an image are those of pyproject.toml."""

import tomllib

from tests.unit.deploy.scripts import DEPLOY, load

PROJECT = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
FILES = load("docker/requirements.py").files_of(PROJECT)


def test_each_extra_has_a_file_and_extras_of_extras_are_in_it() -> None:
    assert set(FILES) == {"core.txt", *(f"{name}.txt" for name in PROJECT["optional-dependencies"])}
    assert set(FILES["core.txt"].splitlines()) == set(PROJECT["dependencies"])
    assert set(FILES["trainer.txt"].splitlines()) > set(FILES["torch.txt"].splitlines())


def test_no_requirements_file_lists_headrace_itself() -> None:
    assert not any(line.startswith("headrace") for text in FILES.values() for line in text.splitlines())


def test_orchestrator_and_reward_ask_for_no_torch() -> None:
    for name in ("core", "orchestrator", "reward", "tracing"):
        assert "torch" not in FILES[f"{name}.txt"] and "transformers" not in FILES[f"{name}.txt"]
