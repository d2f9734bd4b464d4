"""The command that starts a sandbox: what it sees of the machine, and what it may do."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

from headrace.services.reward.sandbox.inside.confine import Limits
from headrace.wire.errors import ConfigError
from headrace.wire.host.bubblewrap import find_bubblewrap

INSIDE = Path(__file__).parent / "inside"
HOST_UID = 64000
"""The first of the unprivileged uids that sandboxes get on the host, where the service runs as root."""
_INSIDE_UID = "1000"
_CODE = "/headrace/headrace/services/reward/sandbox/inside"
_PACKAGES = "/packages"
_BOOT = "import sys; sys.path.append('/headrace'); from headrace.services.reward.sandbox.inside.server import main; "
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_HELP_S = 10.0
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # A program prints one and the same thing each time.
    "LD_BIND_NOW": "1",  # The linker's work is done before the first fork, not after each.
}
"""Environment of the fork server, which clears it before the first test."""
WAYS_OUT = (
    "Code rewards run in bubblewrap and nowhere else. Install it (`apt install bubblewrap`, `dnf install bubblewrap`). "
    "It needs user namespaces: user.max_user_namespaces > 0; on Debian kernel.unprivileged_userns_clone = 1; on "
    "Ubuntu 24.04 kernel.apparmor_restrict_unprivileged_userns = 0, or an AppArmor profile for bwrap; in a container "
    "the seccomp profile deploy/compose/seccomp-sandbox.json and, where there is AppArmor, the profile "
    "headrace-sandbox or unconfined (Compose: deploy/compose/code-rewards.yml; Kubernetes: the component "
    "reward-sandbox or sandbox-gvisor). Or set options.url to a SandboxFusion service. See docs/sandbox.md"
)


def find() -> str:
    """The path of bubblewrap; raises ConfigError saying what to install."""
    if not (path := find_bubblewrap()):
        raise ConfigError(f"there is no sandbox: bwrap is not installed. {WAYS_OUT}")
    return path


@functools.cache
def _knows(path: str, option: str) -> bool:
    shown = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=_HELP_S, check=False)
    return option in shown.stdout


def command(limits: Limits, packages: Path | None, *, slot: int, control: int, sources: dict[str, int]) -> list[str]:
    """The whole command. `control` is the descriptor of the fork server's socket, `sources` those of its files."""
    bwrap = find()
    prefix, interpreter = os.path.realpath(sys.base_prefix), os.path.realpath(sys.executable)
    stage = [prefix] + ([] if packages is None else [str(packages.resolve())])
    argv = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    argv += ["--unshare-cgroup-try", "--uid", _INSIDE_UID, "--gid", _INSIDE_UID, "--hostname", "sandbox"]
    # A second wall before seccomp's. Containers have a read-only /proc/sys, where bubblewrap cannot build it.
    if _knows(bwrap, "--disable-userns") and not os.statvfs("/proc/sys").f_flag & os.ST_RDONLY:
        argv.append("--disable-userns")
    # CAP_SYS_ADMIN, in its own user namespace, is the fork server's; tests give it up.
    argv += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--clearenv"]
    for name, value in _ENVIRONMENT.items():
        argv += ["--setenv", name, value]
    argv += _system()
    if prefix != "/usr":
        argv += ["--ro-bind", "{stage-0}", prefix]
    if packages is not None:
        argv += ["--ro-bind", "{stage-1}", _PACKAGES]
    for device in _DEVICES:
        argv += ["--dev-bind", device, device]
    for name, fd in sources.items():
        argv += ["--perms", "0444", "--ro-bind-data", str(fd), f"{_CODE}/{name}"]
    argv += ["--dir", "/tmp", "--remount-ro", "/", "--chdir", "/", "--die-with-parent", "--new-session", "--"]
    numbers = ", ".join(repr(str(number)) for number in astuple(limits))
    boot = f"{_BOOT}main({control}, {_PACKAGES if packages is not None else ''!r}, {numbers})"
    argv += [interpreter, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", boot]
    plan = {"uid": HOST_UID + slot, "stage": stage, "argv": argv}
    return [sys.executable, "-I", "-S", str(INSIDE.parent / "launch.py"), json.dumps(plan)]


def _system() -> list[str]:
    """/usr read-only, and what of / is a way into it; the loader's cache; nothing else of the machine."""
    found = ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for name in ("/bin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            found += ["--symlink", os.readlink(name), name]
        else:
            found += ["--ro-bind-try", name, name]
    return found
