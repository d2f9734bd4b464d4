"""What a border between two processes may do to the bytes that cross it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing listens: connections are refused, and those that are open are reset."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Connections are accepted and reset at once, as those that are open."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Each connection, open ones too, is reset within a frame: as soon as so many more bytes have crossed it."""

    least: int
    most: int
    """The number is drawn between both, of both directions together."""


@dataclass(frozen=True, slots=True)
class Delay:
    """What crosses does so later, in order, each direction by itself."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Throttle:
    """Each direction of each connection has this bandwidth."""

    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class BlackHole:
    """Connections are accepted, what is sent is swallowed, and no answer comes.

    When it is lifted, connections that have lost bytes are reset.
    """


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing crosses; when it is lifted, everything does, in order: requests whose caller has given up too.

    So does a partition end, after which TCP sends again what it has kept.
    """


@dataclass(frozen=True, slots=True)
class Duplicate:
    """One of `every` requests of a Redis client is executed twice, a transaction as a whole; for a broker alone.

    The second execution is on a connection of its own, and nothing reads its answer: a client that resends after a lost
    answer does the same. HTTP/2 has no duplicates on one connection (a repeated frame is a connection error), and
    a request that is sent again after its answer was lost is what `Cut` and `Hold` make of calls over gRPC and HTTP.
    """

    every: int


Fault = Refuse | Reset | Cut | Delay | Throttle | BlackHole | Hold | Duplicate
