"""What docker-compose.yml gives `headrace prepare`."""

import shlex
from pathlib import Path

import pytest

from headrace.config.resolve import resolve, settle
from headrace.demo.demo import RUN_TOML
from headrace.run.preparation.input_checks import check_dtype
from tests.e2e.compose.resolved import parse

SERVICES = parse()


@pytest.mark.parametrize("name", [name for name in SERVICES if name.startswith("prepare")])
def test_the_arguments_of_prepare_resolve_to_a_valid_config(name: str, tmp_path: Path) -> None:
    arguments = shlex.split(SERVICES[name]["command"])
    assert arguments[0] == "--demo"
    file = tmp_path / "run.toml"
    file.write_text(RUN_TOML)
    found = settle(resolve(file, arguments=arguments[1:]), tmp_path / "new", goes_on=False)
    check_dtype(found)
