"""The table from which `make gpu` takes torch and NCCL is what SGLang asks for."""

import tomllib
from email.parser import HeaderParser

import pytest

from tests.sglang import ROOT, sglang_venv

pytestmark = pytest.mark.sglang


def test_the_pin_table_matches_the_requirements_of_the_installed_sglang() -> None:
    pins = tomllib.loads((ROOT / "deploy" / "gpu" / "pins.toml").read_text())["sglang"]
    (file,) = (sglang_venv() / "lib").glob("python*/site-packages/sglang-*.dist-info/METADATA")
    found = HeaderParser().parsestr(file.read_text())
    assert found["Version"] == pins["version"]
    assert set(pins["requires"]) <= set(found.get_all("Requires-Dist") or ())
