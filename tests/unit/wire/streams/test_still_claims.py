"""Claims whose idle time stands still, on a server whose clock was set back."""

from headrace.wire.streams.redis.still_claims import Claim, StillClaims

LEASE_S = 3.0


def claim(name: str = "1-1", *, owner: str = "a", deliveries: int = 1, idle_ms: int = 0) -> Claim:
    return Claim(name, owner, deliveries, idle_ms)


def test_a_claim_that_stands_at_zero_for_a_lease_has_no_live_owner() -> None:
    still = StillClaims(LEASE_S)
    found = [still.look([claim("1-1"), claim("2-1", idle_ms=5)], now) for now in (0.0, 1.0, 2.9, 3.0)]
    assert found == [[], [], [], ["1-1"]]


def test_a_claim_that_moved_or_changed_its_owner_restarts_the_wait() -> None:
    for other in (claim(idle_ms=900), claim(owner="b"), claim(deliveries=2)):
        still = StillClaims(LEASE_S)
        assert still.look([claim()], 0.0) == still.look([other], 2.0) == still.look([claim()], 4.0) == []
        assert still.look([claim()], 7.0) == ["1-1"]
