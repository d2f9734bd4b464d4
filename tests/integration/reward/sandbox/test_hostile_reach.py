"""What a hostile program must not reach: the host's files, processes, sockets and secrets."""

import pytest

from tests.integration.reward.sandbox.conftest import Bench, Host
from tests.integration.reward.sandbox.test_hostile import ACTS, assert_unharmed, program


@pytest.mark.parametrize("name", ACTS)
async def test_a_hostile_program_cannot_reach_anything_outside_the_sandbox(bench: Bench, host: Host, name: str) -> None:
    (outcome,) = await bench.run(program(name, host), "1\n")
    assert b"ESCAPED" not in outcome.output, outcome.output[:500]
    assert "ESCAPED" not in outcome.notes
    assert host.secret not in outcome.notes + outcome.output.decode(errors="replace")
    assert_unharmed(host, bench)
