"""Who may connect to whom, read out of the rendered NetworkPolicies."""

from collections.abc import Iterator
from typing import Any

from tests.integration.kubernetes.rendered import Manifest, pods, render

COMPONENT = "app.kubernetes.io/component"
RUN = "app.kubernetes.io/instance"
INDEX = "batch.kubernetes.io/job-completion-index"
TRAINER, TRAINER_NODE = "trainer", "trainer-node"
"""The trainer's first pod, and the other ones of a JobSet."""
EPHEMERAL = (32768, 60999)
PROMETHEUS = "prometheus"
DNS = "kube-dns"
Edge = tuple[str, str, int | str]
"""(source service, target service, its port, or "ephemeral")."""


def policy_edges(overlay: str = "cpu") -> set[Edge]:
    """The connections that the overlay's policies allow: its own services' among each other, and Prometheus' to them.

    Names are looked up elsewhere and are no edge; nor are a service's own pods among each other.
    """
    ingress, egress = one_sided(overlay)
    # Prometheus' own policies are its namespace's affair.
    return {edge for edge in ingress if edge[0] != edge[1] and (edge[0] == PROMETHEUS or edge in egress)}


def one_sided(overlay: str) -> tuple[set[Edge], set[Edge]]:
    """What targets let in, and what sources let out. AssertionError: a rule that is not known here."""
    manifests = render(overlay)
    services = {template["metadata"]["labels"][COMPONENT] for _, template in pods(manifests)}
    if any(one["kind"] == "JobSet" for one in manifests):
        services.add(TRAINER_NODE)
    ingress: set[Edge] = set()
    egress: set[Edge] = set()
    for policy in (one for one in manifests if one["kind"] == "NetworkPolicy"):
        spec = policy["spec"]
        for here in _selected(spec["podSelector"], services):
            for rule in spec.get("ingress", ()):
                ingress |= {(there, here, port) for there in _peers(rule["from"], services) for port in _ports(rule)}
            for rule in spec.get("egress", ()):
                egress |= {(here, there, port) for there in _peers(rule["to"], services) for port in _ports(rule)}
    return ingress, {edge for edge in egress if edge[1] != DNS}


def denied_by_default(overlay: str) -> bool:
    """Whether a policy that selects every pod allows nothing, in both directions."""
    return any(
        one["kind"] == "NetworkPolicy"
        and {**one["spec"], "podSelector": {}} == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        and one["spec"]["podSelector"].get("matchLabels", {}).keys() <= {RUN}
        for one in render(overlay)
    )


def _selected(selector: dict[str, Any], services: set[str]) -> set[str]:
    if not selector:
        return set(services)
    wanted = {key: value for key, value in selector.get("matchLabels", {}).items() if key != RUN}
    found = {wanted.pop(COMPONENT)} if COMPONENT in wanted else set(services)
    for expression in selector.get("matchExpressions", ()):
        assert (expression["key"], expression["operator"]) == (COMPONENT, "In")
        found &= set(expression["values"])
    if wanted:
        assert (wanted, found) == ({INDEX: "0"}, {TRAINER}), f"{selector} is not known here"
    elif TRAINER in found:
        found.add(TRAINER_NODE)
    found &= services
    assert found, f"{selector} selects no service"
    return found


def _peers(peers: list[dict[str, Any]], services: set[str]) -> Iterator[str]:
    for peer in peers:
        if "namespaceSelector" in peer:
            labels = {**peer["namespaceSelector"]["matchLabels"], **peer["podSelector"]["matchLabels"]}
            known = {"monitoring": PROMETHEUS, "kube-system": DNS}
            yield known[labels["kubernetes.io/metadata.name"]]
        else:
            yield from _selected(peer["podSelector"], services)


def _ports(rule: Manifest) -> Iterator[int | str]:
    for port in rule["ports"]:
        if "endPort" in port:
            assert (port["port"], port["endPort"]) == EPHEMERAL
            yield "ephemeral"
        else:
            yield port["port"]
