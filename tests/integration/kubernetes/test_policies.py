"""The NetworkPolicies allow what the system does, and nothing else."""

import pytest

from tests.integration.kubernetes.policies import (
    PROMETHEUS,
    TRAINER,
    TRAINER_NODE,
    denied_by_default,
    one_sided,
    policy_edges,
)
from tests.integration.kubernetes.rendered import ALL

EDGES = {
    *((service, "valkey", 6379) for service in ("orchestrator", "rollout", "reward", "trainer")),
    *(("orchestrator", service, 7000) for service in ("rollout", "trainer")),
    *((service, "orchestrator", 7000) for service in ("rollout", "trainer")),
    ("rollout", "trainer", "ephemeral"),
    ("trainer", "rollout", "ephemeral"),
    *((PROMETHEUS, service, 8080) for service in ("orchestrator", "rollout", "reward", "trainer")),
}


EPISODES = {
    ("environment", "valkey", 6379),
    ("environment", "orchestrator", 7000),
    ("environment", "rollout", 7000),
    (PROMETHEUS, "environment", 8080),
}
"""What comes with the environment service; a test compares them with those of a run that plays."""
NODES = {
    (TRAINER_NODE, TRAINER, 29500),
    (TRAINER_NODE, TRAINER, "ephemeral"),
    (TRAINER, TRAINER_NODE, "ephemeral"),
    (PROMETHEUS, TRAINER_NODE, 8080),
}
"""What comes with a trainer of several pods: all others than the first talk to each other and are scraped, no more."""


def test_network_policies_allow_exactly_the_designed_edges():
    assert policy_edges("cpu") == EDGES


def test_the_component_environment_adds_the_edges_of_episodes_and_no_others():
    assert policy_edges("base+environment") == EDGES | EPISODES
    ingress, egress = one_sided("base+environment")
    assert {edge for edge in ingress if edge[0] != PROMETHEUS} == egress


def test_every_egress_rule_has_a_matching_ingress_rule():
    ingress, egress = one_sided("cpu")
    assert {edge for edge in ingress if edge[0] != PROMETHEUS} == egress


@pytest.mark.parametrize("name", ALL)
def test_network_traffic_is_denied_by_default(name):
    assert denied_by_default(name)
