from math import isnan

from prometheus_client import REGISTRY

from headrace.services.trainer import metrics
from headrace.wire.telemetry.reward_components import MOST_NAMES


def shown(name: str) -> float | None:
    return REGISTRY.get_sample_value("headrace_trainer_reward_component", {"component": name})


def test_the_components_of_a_process_are_bounded_and_a_missing_one_is_not_its_last_value():
    metrics.show_step({"rewards/first/mean": 0.5, "rewards/first/std": 1.0, "rewards/first/web/mean": 1.0})
    assert shown("first") == 0.5
    metrics.show_step({f"rewards/n{number}/mean": 1.0 for number in range(100)})
    assert isnan(shown("first") or 0.0)
    (series,) = metrics.REWARD_COMPONENT.collect()
    assert len(series.samples) == MOST_NAMES
