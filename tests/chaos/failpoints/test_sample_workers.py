"""Replicas and the reward service die at a drawn sample of failpoints."""

from pathlib import Path

import pytest

from tests.chaos.failpoints.sample import strike_sample

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_kills_at_failpoints_lose_and_double_nothing_and_change_no_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    strike_sample(tmp_path_factory, tmp_path, ["rollout", "reward"])
