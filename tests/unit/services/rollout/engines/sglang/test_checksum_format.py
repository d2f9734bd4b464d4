"""Which checksums the trainer is asked for, by where an engine's weights lie."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.services.rollout.engines.protocol import Routes
from headrace.services.rollout.engines.sglang.start import _checksum_format
from tests.integration.rollout.test_sglang_client import LIMITS
from tests.sglang import sglang_settings


@pytest.mark.parametrize(
    ("table", "ranks", "plain_experts", "name"),
    [
        ({"device": "cpu"}, 1, True, "sglang-sha256"),
        ({"device": "cpu"}, 2, True, "sglang-ranks"),
        ({"device": "cuda"}, 1, False, "sglang-device"),
        ({"device": "cuda"}, 1, True, "sglang-device+experts"),
        ({"device": "cuda"}, 8, False, "sglang-device/8"),
        ({"device": "cuda"}, 8, True, "sglang-device+experts/8"),
    ],
)
def test_a_device_its_ranks_and_its_kernels_have_a_checksum(
    tmp_path: Path, table: dict[str, Any], ranks: int, plain_experts: bool, name: str
) -> None:
    settings = sglang_settings(tmp_path, tmp_path, table)
    limits = replace(LIMITS, plain_experts=plain_experts)
    assert _checksum_format(settings, Routes(backends=("gloo",), ranks=ranks), limits) == name


def test_the_file_of_an_adapter_has_digests(tmp_path: Path) -> None:
    settings = sglang_settings(tmp_path, tmp_path, {"device": "cuda"})
    lora = settings.model.lora.model_copy(update={"rank": 8})
    settings = settings.model_copy(update={"model": settings.model.model_copy(update={"lora": lora})})
    assert _checksum_format(settings, Routes(backends=("gloo",)), LIMITS) == ""
