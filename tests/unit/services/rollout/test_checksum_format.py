"""Which checksums the trainer is asked for, by where an engine's weights lie."""

from pathlib import Path
from typing import Any

import pytest

from services.rollout.engines.protocol import Routes
from services.rollout.engines.sglang.start import _checksum_format
from tests.sglang import sglang_settings


@pytest.mark.parametrize(
    ("table", "ranks", "name"),
    [
        ({"device": "cpu"}, 1, "sglang-sha256"),
        ({"device": "cuda"}, 1, "sglang-device"),
        ({"device": "cpu"}, 2, "sglang-ranks"),
        ({"device": "cuda"}, 8, "sglang-ranks"),
    ],
)
def test_a_device_has_its_checksum_and_several_ranks_are_compared(
    tmp_path: Path, table: dict[str, Any], ranks: int, name: str
) -> None:
    settings = sglang_settings(tmp_path, tmp_path, table)
    assert _checksum_format(settings, Routes(backends=("gloo",), ranks=ranks)) == name


def test_the_file_of_an_adapter_has_digests(tmp_path: Path) -> None:
    settings = sglang_settings(tmp_path, tmp_path, {"device": "cuda"})
    lora = settings.model.lora.model_copy(update={"rank": 8})
    settings = settings.model_copy(update={"model": settings.model.model_copy(update={"lora": lora})})
    assert _checksum_format(settings, Routes(backends=("gloo",))) == ""
