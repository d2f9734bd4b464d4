"""The product's rules of credit, admission and batches keep trainer and rows busy although lengths differ."""

import pytest

from benchmarks.overlap import Loop, measured
from headrace.wire.contracts.reasons import StalePolicy


@pytest.mark.parametrize(("policy", "most"), [("wait", 1.6), ("late", 1.1)])
def test_a_step_takes_little_more_than_generation_or_training_alone(policy: StalePolicy, most: float) -> None:
    found = measured(Loop(staleness=2, policy=policy, sigma=1.0, groups=32, steps=80, seed=0).run())
    assert found["bound"] <= found["step_over_ideal"] < most
    assert found["wasted_share"] == 0 and abs(found["trained_over_sampled"] - 1) < 0.01
    assert (found["lag_max"] <= 2) == (policy == "wait")
