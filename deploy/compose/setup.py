"""Makes what a deployment needs to be secret, once: BROKER gets the broker's password, GRAFANA that of its admin.

    setup.py BROKER GRAFANA

Files of mode 0400, owned by whoever runs this. A password that is there is kept; what follows from it is written anew.
"""

import secrets
import sys
from pathlib import Path
from urllib.parse import quote

_VALKEY = """\
requirepass {password}
save ""
appendonly no
maxmemory-policy noeviction
"""


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


def main(broker: Path, grafana: Path) -> None:
    """All files."""
    password = keep_password(broker / "password")
    if not password or any(letter.isspace() or letter in "\"'\\#" for letter in password):
        sys.exit(f"{broker / 'password'}: the password must be ASCII without spaces, quotes, backslashes and #")
    write(broker / "valkey.conf", _VALKEY.format(password=password))
    write(broker / "url", f"redis://:{quote(password, safe='')}@valkey:6379/0\n")
    keep_password(grafana / "admin_password")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
