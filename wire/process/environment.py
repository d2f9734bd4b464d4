"""Settings from environment variables: a container's name and address are known only where it runs.

    HEADRACE_INSTANCE               its number or name; `hostname` = the name of the host
    HEADRACE_ANNOUNCE               the address that others reach it by; `auto` = the address of the host's name
    HEADRACE_ORCHESTRATOR_ADDRESS   host:port
    HEADRACE_RUN_DIR                where the run directory is seen from here
    HEADRACE_TOKENS                 folder with the token of its role, and the digests of those it accepts (a secret)
    HEADRACE_TLS                    folder with the certificate of its role, its key and the authority (a secret)
    HEADRACE_OPERATOR_TOKEN_FILE    of the orchestrator: a file with a further token of operators for HTTP (a secret)
    HEADRACE_EVENTS                 of reward and environment: the folder of its event log, as it is mounted here
    HEADRACE_BROKER__URL            redis://..., or HEADRACE_BROKER__URL_FILE: a file that holds it (a secret)
    HEADRACE_NODE                   of a trainer on several machines: which of them this is, from 0
    HEADRACE_RENDEZVOUS             host:port at which machine 0 of that trainer meets the others

They override the settings file; a service ignores a variable for which it has no setting. Instead of the last two a
launcher's own variables do (`launcher`). `headrace` removes all of them from the environment of the services that it
starts itself: their settings files are complete. HEADRACE_ANNOUNCE makes `headrace train` listen for other machines.
"""

import os
import re
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headrace.wire.errors import ConfigError
from headrace.wire.process import launcher

TOKENS = "HEADRACE_TOKENS"
ANNOUNCE = "HEADRACE_ANNOUNCE"
_KEYS = {
    "HEADRACE_INSTANCE": ("instance",),
    ANNOUNCE: ("announce",),
    "HEADRACE_ORCHESTRATOR_ADDRESS": ("orchestrator_address",),
    "HEADRACE_RUN_DIR": ("run_dir",),
    TOKENS: ("tokens",),
    "HEADRACE_TLS": ("tls",),
    "HEADRACE_OPERATOR_TOKEN_FILE": ("orchestrator", "operator_token_file"),
    "HEADRACE_EVENTS": ("events",),
    "HEADRACE_BROKER__URL": ("broker", "url"),
}
_OF_SOME = frozenset({"orchestrator", "events"})
"""Keys and tables that not all services have."""
BROKER_FILE = "HEADRACE_BROKER__URL_FILE"
NAMES = frozenset({*_KEYS, BROKER_FILE, "HEADRACE_RENDEZVOUS", *launcher.NAMES})
"""All of them."""
_left_out: dict[str, str] = {}
"""What `keep_out` has removed."""
_OF_OTHERS = re.compile(
    r"MASTER_(ADDR|PORT)|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|(PET|TORCHELASTIC|ACCELERATE|FSDP)_\w+|NCCL_COMM_ID"
    r"|GRPC_(?!ENABLE_FORK_SUPPORT$|VERBOSITY$|TRACE$|DEFAULT_SSL_ROOTS_FILE_PATH$)\w+"
)
"""gRPC's own default roots are for servers elsewhere, such as a collector: the run's channels have theirs."""
CUMEM = "NCCL_CUMEM_ENABLE"
SGLANG_CUMEM = "0"
"""What an SGLang server has without the variable (0.5.23, `entrypoints/engine.py`); NCCL itself takes 1."""
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def inherited() -> dict[str, str]:
    """The environment that this process was started with, but for what `keep_out` has removed."""
    return dict(os.environ)


def launched_with() -> dict[str, str]:
    """The environment that this process was started with, a launcher's variables included."""
    return _left_out | os.environ


def announced(environment: Mapping[str, str]) -> str:
    """The address that others reach this machine by (HEADRACE_ANNOUNCE); empty if it is not set. Raises ConfigError."""
    found = environment.get(ANNOUNCE, "")
    return _own_address() if found == "auto" else found


def set_default(name: str, value: str) -> None:
    """Sets a variable for libraries of this process and its children, unless the user has set it."""
    os.environ.setdefault(name, value)


def nccl_cumem() -> str:
    """NCCL_CUMEM_ENABLE of this process and of those that it starts from now on; to be called before NCCL is used.

    On one machine a GPU's memory handle is of the kind that its process's value names, and is read as what the other
    process's value names (NCCL 2.30.7, `transport/p2p.cc`): unequal values break the link. All have SGLang's, unless
    the environment sets it.
    """
    set_default(CUMEM, SGLANG_CUMEM)
    return os.environ[CUMEM]


def set_variable(name: str, value: str) -> None:
    """Sets a variable for libraries of this process and its children, overriding the user's."""
    os.environ[name] = value


def keep_out() -> list[str]:
    """Removes what a cluster or a launcher of other programs sets, and returns the names.

    Each of these variables would move a connection of the run to another place: addresses and ranks of launchers
    (`launched_with` still has them, for the trainer's place), gRPC's switches, and interfaces for collectives
    that this machine does not have.
    """
    there = {name for _, name in socket.if_nameindex()}
    absent = [name for name in _INTERFACES if name in os.environ and not _can_bind(name, os.environ[name], there)]
    found = sorted({*absent, *filter(_OF_OTHERS.fullmatch, os.environ)})
    _left_out.update({name: os.environ.pop(name) for name in found})
    return found


def _can_bind(name: str, value: str, there: set[str]) -> bool:
    """Whether interfaces of this machine satisfy a list of them: gloo needs each, NCCL one that begins so."""
    if name == "GLOO_SOCKET_IFNAME":
        return there >= set(value.split(","))
    wanted = [one.partition(":")[0] for one in value.removeprefix("=").split(",")]
    return value.startswith("^") or any(one and has.startswith(one) for one in wanted for has in there)


def overlay(
    settings: Mapping[str, Any], environment: Mapping[str, str], tables: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the settings, overridden by the environment. Raises ConfigError naming the variable.

    `tables`: keys and tables that the service has beside those which all have.
    """
    passed_over, has_node = _OF_SOME - set(tables), "node" in tables
    asked = [name for name, keys in _KEYS.items() if keys[0] not in passed_over]
    values = {name: environment[name] for name in asked if environment.get(name)}
    if environment.get(BROKER_FILE):
        values["HEADRACE_BROKER__URL"] = _secret(Path(environment[BROKER_FILE]))
    if values.get("HEADRACE_INSTANCE") == "hostname":
        values["HEADRACE_INSTANCE"] = socket.gethostname()
    if ANNOUNCE in values:
        values[ANNOUNCE] = announced(environment)
    name = values.get("HEADRACE_INSTANCE", "0")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"HEADRACE_INSTANCE = {name!r}: letters, digits, '.', '_' and '-' only")
    result = dict(settings)
    for variable, value in values.items():
        *tables, key = _KEYS[variable]
        inner = result
        for table in tables:
            inner[table] = dict(inner.get(table, {}))
            inner = inner[table]
        inner[key] = value
    if has_node and (place := launcher.node_placement(environment)):
        trainer = dict(result.get("trainer", {}))
        place.check(trainer.get("nodes", 1))
        if place.rendezvous:
            trainer["rendezvous"] = place.rendezvous
        result |= {"node": place.node, "trainer": trainer}
    return result


def read_broker_url(environment: Mapping[str, str]) -> str:
    """URL of the broker from the environment; empty if not set. Raises ConfigError for a file that cannot be read."""
    if environment.get(BROKER_FILE):
        return _secret(Path(environment[BROKER_FILE]))
    return environment.get("HEADRACE_BROKER__URL", "")


def _secret(path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{BROKER_FILE}: {path}: {error.strerror}; write the broker's URL into it") from error
    if not value:
        raise ConfigError(f"{BROKER_FILE}: {path} is empty; write the broker's URL into it")
    return value


def _own_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise ConfigError(
            f"HEADRACE_ANNOUNCE = 'auto': the host's name {name!r} has no address ({error}); give the address itself"
        ) from error
