"""Runs before all other services: checks what this machine hands to containers, and makes what has to be secret, once.

    setup.py BROKER GRAFANA

BROKER gets the broker's password, GRAFANA that of its admin: files of mode 0400, owned by whoever runs this. A password
that is there is kept; what follows from it is written anew. Status 2, and a line for each folder that is of no use.
"""

import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

_VALKEY = """\
requirepass {password}
save ""
appendonly no
maxmemory-policy noeviction
"""


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
    lines.append(found and f"RUNS: {found}")
    return [line for line in lines if line]


def warnings(root: Path, names: Mapping[str, str]) -> list[str]:
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


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}")
    aside.unlink(missing_ok=True)
    aside.touch(mode=0o600)
    aside.write_text(text, encoding="ascii")
    aside.chmod(0o400)
    aside.replace(path)


def keep_password(path: Path) -> str:
    """The password in the file, which is made if it is not there."""
    if not path.exists():
        write(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text(encoding="ascii").strip()


def make_secrets(broker: Path, grafana: Path) -> None:
    """All files."""
    password = keep_password(broker / "password")
    if not password or any(letter.isspace() or letter in "\"'\\#" for letter in password):
        sys.exit(f"{broker / 'password'}: the password must be ASCII without spaces, quotes, backslashes and #")
    write(broker / "valkey.conf", _VALKEY.format(password=password))
    write(broker / "url", f"redis://:{quote(password, safe='')}@valkey:6379/0\n")
    keep_password(grafana / "admin_password")


def main(root: Path, broker: Path, grafana: Path, names: Mapping[str, str]) -> None:
    """Checks first, so that nothing is made where nothing can start."""
    for line in warnings(root, names):
        sys.stderr.write(f"{line}\n")
    found = problems(root, names)
    if found:
        sys.stderr.write("".join(f"{line}\n" for line in found))
        sys.exit(2)
    make_secrets(broker, grafana)


if __name__ == "__main__":
    main(Path("/"), Path(sys.argv[1]), Path(sys.argv[2]), os.environ)
