"""What a child is given of its service's environment."""

from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.sandbox import child_variables


def test_a_childs_proxy_is_bypassed_for_the_policy_endpoint() -> None:
    given = {"https_proxy": "http://p:1", "no_proxy": "a.b", "KEY": "k"}
    assert "no_proxy" not in child_variables(given, ChildConfig(), "/tmp")
    found = child_variables(given, ChildConfig(variables=("https_proxy", "no_proxy")), "/tmp")
    assert found["https_proxy"] == "http://p:1"
    assert found["no_proxy"] == found["NO_PROXY"] == "a.b,127.0.0.1,localhost,::1"
