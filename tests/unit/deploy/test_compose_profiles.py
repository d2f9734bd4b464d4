"""docker-compose.yml by the rules of YAML alone: in a list of merges the earlier mapping wins."""

import pytest

from tests.e2e.compose.resolved import facts, parse
from tests.e2e.compose.wanted import PROFILES, Facts

SERVICES = parse()
ROWS = [(name, one) for profile in PROFILES.values() for name, one in profile.items()]


@pytest.mark.parametrize(("name", "wanted"), dict(ROWS).items(), ids=dict(ROWS))
def test_a_service_is_what_the_table_says_on_any_machine(name: str, wanted: Facts) -> None:
    assert facts(SERVICES[name]) == wanted


def test_the_table_has_every_service() -> None:
    assert dict(ROWS).keys() == SERVICES.keys()
