"""The ACL file of a run on real servers: each role can do what its service does, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio as aioredis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from headrace.operate.broker_users import ACL_FILE, write_users
from headrace.wire.access.roles import Role
from headrace.wire.contracts import DropReason, Message, encode
from headrace.wire.errors import ConfigError
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import GRANTS, RedisBroker, server_facts
from headrace.wire.streams.redis.client import key_of
from headrace.wire.streams.worker import Worker
from tests import builders
from tests.valkey import Valkey, redis_server, server_binary

RUN = "tiny"
ADMIN = "user admin on >of-the-test ~* &* +@all"
CONSUMED = {
    Role.ROLLOUT: StreamName.PROMPTS,
    Role.REWARD: StreamName.ROLLOUTS,
    Role.TRAINER: StreamName.SCORED,
    Role.ENVIRONMENT: StreamName.EPISODES,
    Role.ORCHESTRATOR: StreamName.EVALUATED,
}
ENDS = (StreamName.SCORED, StreamName.EVALUATED, StreamName.DEAD)
PUTS = {
    Role.ROLLOUT: (StreamName.ROLLOUTS, *ENDS),
    Role.REWARD: ENDS,
    Role.TRAINER: (StreamName.DEAD,),
    Role.ENVIRONMENT: (StreamName.ROLLOUTS, *ENDS),
    Role.ORCHESTRATOR: ENDS,
}
"""What each service consumes, and the streams that it settles onto or buries in."""


class Users:
    """A server with the ACL file of the run, and an administrator of the test's own."""

    def __init__(self, server: Valkey, folder: Path) -> None:
        self.server, self.folder = server, folder

    @property
    def admin(self) -> str:
        return self.server.url.replace("//", "//admin:of-the-test@").replace("/0", "/1")

    def url(self, role: Role) -> str:
        return (self.folder / f"{role}.url").read_text().strip()

    @asynccontextmanager
    async def client(self, role: Role | None = None) -> AsyncIterator[aioredis.Redis]:
        """A plain client of a role; None: the administrator's."""
        made = aioredis.from_url(self.url(role) if role else self.admin, driver_info=None, protocol=2)
        try:
            yield made
        finally:
            await made.aclose()

    async def seen(self, act: Callable[[], Coroutine[None, None, None]]) -> set[tuple[str, str]]:
        """(command, key) of all that the server received while `act` ran."""
        found: set[tuple[str, str]] = set()
        ends: list[asyncio.Future[object]] = []
        async with self.client() as admin, self.client() as other, admin.monitor() as monitor:
            running = asyncio.ensure_future(act())
            running.add_done_callback(lambda _: ends.append(asyncio.ensure_future(other.echo("the-end"))))
            while (line := await asyncio.wait_for(monitor.next_command(), 60))["command"] != "ECHO the-end":
                found.add(described(line["command"]))
            await running
        return {(name, key) for name, key in found if name != "auth"}  # Of whoever has no user yet.


def described(command: str) -> tuple[str, str]:
    """Name, with the subcommand of a container, and key of a command as MONITOR shows it."""
    words = command.split(" ")
    name = words[0].lower()
    if name in ("xgroup", "xinfo"):
        return f"{name}|{words[1].lower()}", words[2]
    key = next((word for word in words if word.startswith("headrace:")), "")
    return name, key


@pytest.fixture(params=["bundled", "redis-server"])
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Users]:
    """The project's own server, and Redis where it is installed."""
    binary = server_binary() if request.param == "bundled" else redis_server()
    folder = tmp_path / "users"
    folder.mkdir()
    server = Valkey(tmp_path / "server", "--aclfile", str(folder / ACL_FILE), binary=binary)
    # Not the first database: the URL selects it, which is a command too.
    write_users(folder, server.url.replace("/0", "/1"), RUN)
    with (folder / ACL_FILE).open("a") as file:
        file.write(ADMIN + "\n")
    server.start()
    yield Users(server, folder)
    server.stop()


async def fill(users: Users, role: Role) -> None:
    """The groups of the other services, and entries for the role's."""
    admin = RedisBroker(users.admin, RUN)
    for stream in CONSUMED.values():
        if stream is not CONSUMED.get(role):
            await admin.consumer(stream, "another", lease_s=30).reclaim_own()
    for number in range(4 if role in CONSUMED else 0):
        await admin.add(CONSUMED[role], b"%d" % number)
    await admin.close()


async def work(users: Users, role: Role) -> None:
    """What the service of a role does with the broker."""
    broker = RedisBroker(users.url(role), RUN, retry_deadline_s=5)
    await broker.check(10)
    if role is Role.OPERATOR:
        await server_facts(users.url(role), timeout_s=10)
        for stream in (StreamName.EPISODES, StreamName.PROMPTS):
            await broker.last_sequence(stream)
    else:
        await consume(broker, role)
    if role is Role.ORCHESTRATOR:
        await issue_and_look(broker)
    await broker.close()


async def consume(broker: RedisBroker, role: Role) -> None:
    consumer = broker.consumer(CONSUMED[role], "one", lease_s=30)
    assert await consumer.reclaim_own() == []  # Makes the group.
    one, two, three, four = await consumer.read(count=4, block_s=5)
    await consumer.renew([one, two])
    await consumer.settle(one, [Put(stream=put, data=b"x", note="why") for put in PUTS[role]])
    await consumer.ack([two])
    if role is not Role.TRAINER:
        await consumer.release([three])
        assert await consumer.fail(four) == 1


async def issue_and_look(broker: RedisBroker) -> None:
    """What the orchestrator does beside consuming."""
    await broker.memory()
    await broker.generation()
    for stream in (StreamName.EPISODES, StreamName.PROMPTS):
        await broker.add(stream, b"x", sequence=await broker.last_sequence(stream) + 1)
    for stream in StreamName:
        await broker.stats(stream)
        if stream is not StreamName.DEAD:
            await broker.live(stream)
            await broker.trim(stream)
    await broker.newest(StreamName.DEAD, before="", count=2)


def granted(role: Role) -> set[tuple[str, str]]:
    """(command, key) of the table."""
    found = {("ping", ""), ("select", "")}
    for grant in GRANTS[role]:
        keys = [key_of(RUN, key) for key in grant.keys] or [""]
        found |= {(command, key) for command in grant.commands for key in keys}
    return found


@pytest.mark.parametrize("role", GRANTS)
async def test_a_role_is_granted_exactly_what_its_service_does(users: Users, role: Role) -> None:
    await fill(users, role)
    assert await users.seen(lambda: work(users, role)) == granted(role)
    async with users.client() as admin:
        assert await admin.execute_command("ACL", "LOG") == []


SAMPLES = {
    "xack": ("g", "1-1"), "xautoclaim": ("g", "c", "0", "0"), "xclaim": ("g", "c", "0", "1-1"),
    "xgroup|create": ("new", "0", "MKSTREAM"), "xpending": ("g",), "hdel": ("f",), "hincrby": ("f", "1"),
    "xadd": ("*", "m", "x"), "xinfo|stream": (), "xinfo|groups": (), "xlen": (), "xrange": ("-", "+"),
    "xrevrange": ("+", "-"), "xtrim": ("MINID", "0"), "get": (), "set": ("x",),
    # Those that no service uses.
    "del": (), "xdel": ("1-1",), "xgroup|destroy": ("g",), "xsetid": ("1-1",), "expire": ("1",), "rename": ("k",),
}  # fmt: skip
"""Command -> what stands behind its key."""
KEYLESS = (
    "EVAL x 0", "EVALSHA x 0", "FUNCTION LIST", "CONFIG GET maxmemory", "CONFIG SET maxmemory 1", "FLUSHALL", "FLUSHDB",
    "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "ACL LIST", "ACL SETUSER x", "CLIENT LIST", "CLIENT KILL TYPE normal",
    "SHUTDOWN NOSAVE", "SAVE", "BGREWRITEAOF", "REPLICAOF NO ONE", "MODULE LIST", "MONITOR", "PUBLISH c x",
    "SUBSCRIBE c",    "SWAPDB 0 1", "COMMAND COUNT", "LATENCY RESET", "SLOWLOG GET",
)  # fmt: skip


async def is_refused(client: aioredis.Redis, *words: str) -> bool:
    try:
        await client.execute_command(*words)
    except NoPermissionError:
        return True
    except ResponseError:
        return False  # It was carried out as far as it could.
    return False


@pytest.mark.parametrize("role", GRANTS)
async def test_whatever_else_a_role_tries_is_refused(users: Users, role: Role) -> None:
    names = [*StreamName, *(f"failures:{stream}" for stream in StreamName), "sentinel"]
    keys = [key_of(RUN, name) for name in names] + [key_of("other", StreamName.PROMPTS), "k"]
    allowed = granted(role)
    async with users.client(role) as client:
        for key in keys:
            for command, rest in SAMPLES.items():
                refused = await is_refused(client, *command.upper().split("|"), key, *rest)
                assert refused == ((command, key) not in allowed), (command, key)
            read = ("XREADGROUP", "GROUP", "g", "c", "STREAMS", key, ">")
            assert await is_refused(client, *read) == (("xreadgroup", key) not in allowed), key
            assert await is_refused(client, "XREAD", "STREAMS", key, "0")
        for words in KEYLESS:
            assert await is_refused(client, *words.split()), words
        assert await is_refused(client, "INFO") == (("info", "") not in allowed)


async def test_without_a_users_password_nothing_is_done(users: Users) -> None:
    for url in (users.server.url, users.url(Role.TRAINER).replace("trainer:", "trainer:x")):
        client = aioredis.from_url(url, driver_info=None, protocol=2)
        with pytest.raises(AuthenticationError):
            await client.ping()
        await client.aclose()


async def test_what_is_refused_names_the_command_and_the_way_out(users: Users) -> None:
    broker = RedisBroker(users.url(Role.TRAINER), RUN, retry_deadline_s=5)
    with pytest.raises(ConfigError, match=r"may not do this: .*`headrace broker acl` writes"):
        await broker.add(StreamName.SCORED, b"forged")
    consumer = broker.consumer(StreamName.SCORED, "one", lease_s=30)
    await fill(users, Role.TRAINER)
    await consumer.reclaim_own()
    entry = (await consumer.read(count=1, block_s=5))[0]
    with pytest.raises(ConfigError, match="may not do this"):
        await consumer.settle(entry, [Put(stream=StreamName.PROMPTS, data=b"x")])
    await consumer.settle(entry, [Put(stream=StreamName.DEAD, data=b"x")])
    await broker.close()


async def test_a_service_whose_user_may_not_settle_ends_and_leaves_the_entry(users: Users) -> None:
    await fill(users, Role.TRAINER)
    admin, broker = RedisBroker(users.admin, RUN), RedisBroker(users.url(Role.ROLLOUT), RUN, retry_deadline_s=5)
    await admin.add(StreamName.PROMPTS, encode(builders.prompt_message(0)))

    async def forge(message: Message) -> list[Put]:
        return [Put(stream=StreamName.PROMPTS, data=encode(message))]

    worker = Worker(
        broker, StreamName.PROMPTS, "one", forge, service="rollout", lease_s=30,
        capacity=lambda in_flight: 1 - in_flight, failure=DropReason.ROLLOUT_FAILED,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="may not do this"):
        await asyncio.wait_for(worker.run(asyncio.Event()), 60)
    assert len(await admin.live(StreamName.PROMPTS)) == 1
    await broker.close()
    await admin.close()
