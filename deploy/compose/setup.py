"""Runs before all other services: checks what this machine hands to containers, and makes what has to be secret, once.

    setup.py BROKER GRAFANA TOKENS [SERVICE=GID ...] [tls]

BROKER gets the broker's password, GRAFANA that of its admin: files of mode 0400, owned by this user; the group
of the runs reads the broker's URL. TOKENS has a folder for each service, and `user` for people: each gets its token and
the digests of all. The token of a SERVICE with a user of its own is given to its group. A password or token that is
there is kept; what follows from it is written anew. Status 2, and a line for each folder that is of no use.

`tls` (deploy/compose/tls.yml) adds a development authority, in the folder `vault` beside BROKER. BROKER gets its
certificate and TOKENS those of all roles; the URL and the broker's config name them.
"""

import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import divide_tokens
from headrace.wire.errors import ConfigError

_TLS_OPTION = "tls"
DAYS = 365
"""Certificates are valid for so long; a start renews those with a third of it left or less."""
USER = "user"
"""The folder of TOKENS for people and their tools: the roles that are no service."""
_VALKEY = """\
requirepass {password}
save ""
appendonly no
maxmemory-policy noeviction
"""
_TLS = """\
port 0
tls-port 6379
tls-ca-cert-file /run/broker/ca.crt
tls-cert-file /run/broker/tls.crt
tls-key-file /run/broker/tls.key
tls-auth-clients no
"""
"""Further lines of the broker's config over TLS."""
_HOST = "valkey"


def unreadable(folder: Path) -> Iterator[Path]:
    """What this user cannot read in it, itself first; links are passed over."""
    if not os.access(folder, os.R_OK | os.X_OK):
        yield folder
        return
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_dir():
            yield from unreadable(entry)
        elif not os.access(entry, os.R_OK):
            yield entry


def owner(path: Path) -> str:
    """Such as `mode 0700 of 0:0`."""
    found = path.stat()
    return f"mode {stat.S_IMODE(found.st_mode):04o} of {found.st_uid}:{found.st_gid}"


def read_problem(folder: Path, host: str) -> str:
    """A line about what cannot be read; `host` is the folder's name on the machine. Empty if all of it can be."""
    found = list(unreadable(folder))
    if not found:
        return ""
    first = Path(host) / found[0].relative_to(folder)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{first} ({owner(found[0])}){more} cannot be read by uid {os.getuid()} of the containers, "
        f"as after a checkout under umask 077: chmod -R go+rX {host}"
    )


def write_problem(folder: Path, host: str, chown: str = "chown") -> str:
    """A line about a folder that is there and cannot be written to; empty if it can be."""
    try:
        if not folder.exists():
            return ""
        probe = folder / f".setup-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        uid = os.getuid()
        own = f"{chown} {uid}:{os.getgid()} {host}"
        way_out = own if isinstance(error, PermissionError) else "name another folder or volume"
        who = f"uid {uid} of the containers ({error.strerror})"
        return f"{host} ({owner(folder)}) cannot be written to by {who}: {way_out}"
    return ""


def enter_problem(folder: Path, host: str) -> str:
    """A line about a folder that the group of the runs cannot read; empty if it can, or if there is none."""
    if not folder.is_dir():
        return ""
    found = folder.stat()
    by_group = found.st_gid == os.getgid() and found.st_mode & 0o050 == 0o050
    if by_group or found.st_mode & 0o005 == 0o005:
        return ""
    group = os.getgid()
    way_out = f"chgrp {group} {host} && chmod g+rx {host}"
    return f"{host} ({owner(folder)}) cannot be read by group {group}, which reward and environment are in: {way_out}"


def problems(root: Path, names: Mapping[str, str]) -> list[str]:
    """All lines; `root` is /, `names` has the variables of .env: what the mounts are called on the machine."""
    read = {"deploy/prometheus": "deploy/prometheus", "deploy/grafana": "deploy/grafana"}
    lines = [read_problem(root / folder, host) for folder, host in read.items()]
    # Not all that lies in the user's own folders is read: see `warnings`.
    for folder, variable in (("config", "CONFIG"), ("models", "MODELS")):
        if not os.access(root / folder, os.X_OK):
            lines.append(f"{variable}: {read_problem(root / folder, names[variable])}")
    runs = root / "runs"
    found = write_problem(runs, names["RUNS"])
    for part in () if found else (names["RUN"], "cache"):
        found = found or write_problem(runs / part, f"{names['RUNS']}/{part}", "chown -R")
    found = found or enter_problem(runs, names["RUNS"])
    lines.append(found and f"RUNS: {found}")
    return [line for line in lines if line]


def warnings(root: Path, names: Mapping[str, str]) -> list[str]:
    """Lines about what may be of no harm."""
    return [*closed_config(root, names), *open_runs(root, names)]


def open_runs(root: Path, names: Mapping[str, str]) -> list[str]:
    """A line about RUNS, and one about the run, that more than their owner can write to."""
    parts = {root / "runs": names["RUNS"], root / "runs" / names["RUN"]: f"{names['RUNS']}/{names['RUN']}"}
    loose = {path: host for path, host in parts.items() if path.is_dir() and path.stat().st_mode & 0o022}
    return [
        f"RUNS: {host} ({owner(path)}) can be written to by others than its owner, reward and environment among them: "
        f"chmod go-w {host}"
        for path, host in loose.items()
    ]


def closed_config(root: Path, names: Mapping[str, str]) -> list[str]:
    """Lines about what lies in CONFIG and cannot be read: it may be the run's own, or nothing to it."""
    config = root / "config"
    if not os.access(config, os.R_OK | os.X_OK):
        return []
    entries = [entry for entry in sorted(config.iterdir()) if not entry.is_symlink()]
    closed = [entry for entry in entries if not os.access(entry, os.R_OK | (os.X_OK if entry.is_dir() else 0))]
    hosts = {entry: Path(names["CONFIG"]) / entry.name for entry in closed}
    return [
        f"CONFIG: {host} ({owner(entry)}) cannot be read by uid {os.getuid()} of the containers: "
        f"if the run needs it, chmod -R go+rX {host}"
        for entry, host in hosts.items()
    ]


def write(path: Path, text: str, mode: int = 0o400) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}")
    aside.unlink(missing_ok=True)
    aside.touch(mode=0o600)
    aside.write_text(text, encoding="ascii")
    aside.chmod(mode)
    aside.replace(path)


def keep_password(path: Path) -> str:
    """The password in the file, which is made if it is not there."""
    if not path.exists():
        write(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text(encoding="ascii").strip()


def make_secrets(broker: Path, grafana: Path, *, tls: bool = False) -> None:
    """Passwords, the broker's config and its URL."""
    password = keep_password(broker / "password")
    if not password or any(letter.isspace() or letter in "\"'\\#" for letter in password):
        sys.exit(f"{broker / 'password'}: the password must be ASCII without spaces, quotes, backslashes and #")
    write(broker / "valkey.conf", _VALKEY.format(password=password) + (_TLS if tls else ""))
    scheme, query = ("rediss", "?ssl_ca_certs=/run/broker/ca.crt") if tls else ("redis", "")
    write(broker / "url", f"{scheme}://:{quote(password, safe='')}@{_HOST}:6379/0{query}\n", 0o440)
    keep_password(grafana / "admin_password")


def make_tokens(tokens: Path, groups: Mapping[str, int]) -> None:
    """The token of each role, in the folder of its service or in that of people; `groups`: service -> who reads it."""
    folders = {role: tokens / role for role in Role}
    divide_tokens({role: folder if folder.is_dir() else tokens / USER for role, folder in folders.items()})
    for service, group in groups.items():
        token = tokens / service / service
        os.chown(token, -1, group)
        token.chmod(0o440)


def make_tls(state: Path, broker: Path, tokens: Path, groups: Mapping[str, int]) -> None:
    """Certificates of all roles and the broker, of an authority in `state / vault`."""
    # It takes a moment to load, and only this needs it.
    from headrace.operate.role_certificates import write_role_certificates

    folders = {role: tokens / role if (tokens / role).is_dir() else tokens / USER for role in Role}
    write_role_certificates(
        state / "vault" / "certs",
        folders,
        broker,
        host=_HOST,
        days=DAYS,
        groups={Role(service): group for service, group in groups.items()},
    )


def options_of(words: Sequence[str]) -> tuple[dict[str, int], bool]:
    """Reads `reward=10002` and `tls`: the groups of services, and whether there is TLS."""
    given = dict(word.partition("=")[::2] for word in words if word != _TLS_OPTION)
    return {service: int(group) for service, group in given.items()}, _TLS_OPTION in words


def main(
    root: Path,
    broker: Path,
    grafana: Path,
    tokens: Path,
    groups: Mapping[str, int],
    names: Mapping[str, str],
    *,
    tls: bool = False,
) -> None:
    """Checks first, so that nothing is made where nothing can start."""
    for line in warnings(root, names):
        sys.stderr.write(f"{line}\n")
    found = problems(root, names)
    if found:
        sys.stderr.write("".join(f"{line}\n" for line in found))
        sys.exit(2)
    make_secrets(broker, grafana, tls=tls)
    try:
        make_tokens(tokens, groups)
    except (ConfigError, OSError) as error:
        sys.exit(f"tokens: {error}")
    try:
        if tls:
            make_tls(broker.parent, broker, tokens, groups)
    except (ConfigError, OSError) as error:
        sys.exit(f"TLS: {error}")


if __name__ == "__main__":
    _, BROKER, GRAFANA, TOKENS, *OPTIONS = sys.argv
    GROUPS, TLS = options_of(OPTIONS)
    main(Path("/"), Path(BROKER), Path(GRAFANA), Path(TOKENS), GROUPS, os.environ, tls=TLS)
