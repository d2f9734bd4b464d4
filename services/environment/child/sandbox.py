"""What a child sees of its machine: Python, the user's folders and a /tmp of its own; no secret of its service.

In bubblewrap a child has an empty root, into which folders are mounted read-only: what is not named here is not there.
Without it (`network = true` on a machine that has no bubblewrap, or `sandbox = "none"`) nothing is hidden: variables
are not passed on, and yet a process of the same user can read those of its service.
"""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace.services.environment.child.config import ChildConfig
from headrace.wire.errors import ConfigError
from headrace.wire.host.bubblewrap import find_bubblewrap
from headrace.wire.process.environment import inherited
from headrace.wire.telemetry.logs import get_logger

log = get_logger("environment.child")
_ASK_S = 30.0
_MAIN = "headrace.services.environment.child.main"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OF_THE_SYSTEM = (
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/ca-certificates"),
    # Certificates alone: beside them lie private keys, which a child of root could read.
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust"),
)
_VARIABLES = frozenset(
    {
        *("PATH", "LANG", "LANGUAGE", "TZ", "PYTHONPATH", "PYTHONUNBUFFERED", "LD_LIBRARY_PATH"),
        *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
"""What every child is given of its service's environment; beside them `LC_*`, and `environment.variables`."""
_MISSING = re.compile(r"bwrap: Can't (?:find source path|mkdir parents for) (.+?): ([^.]+)")
NEEDS = (
    "Environments run in bubblewrap, which needs user namespaces: user.max_user_namespaces > 0; on Debian "
    "kernel.unprivileged_userns_clone = 1; on Ubuntu 24.04 kernel.apparmor_restrict_unprivileged_userns = 0, or an "
    "AppArmor profile for bwrap; in a container the seccomp profile deploy/compose/seccomp-sandbox.json and, where "
    "there is AppArmor, the profile headrace-sandbox or unconfined (docker-compose.yml has them, see SANDBOX_APPARMOR; "
    "Kubernetes: the component environment-sandbox or sandbox-gvisor). docs/sandbox.md has both profiles"
)
WAYS_OUT = (
    f'{NEEDS}. Or set environment.sandbox = "none" and environment.network = true where nothing has to be hidden from '
    "them"
)


def child_variables(given: Mapping[str, str], config: ChildConfig, home: str) -> dict[str, str]:
    """The child's whole environment, out of the service's; `home`: its own folder. Raises ConfigError."""
    absent = [name for name in config.variables if name not in given]
    if absent:
        raise ConfigError(f"environment.variables: {absent[0]} is not set where the environment service runs")
    named = _VARIABLES | set(config.variables)
    found = {name: value for name, value in given.items() if name in named or name.startswith("LC_")}
    if any(name.lower().endswith("_proxy") for name in found):
        # The endpoint of the policy is on loopback.
        direct = ",".join(
            filter(None, [found.get("NO_PROXY") or found.get("no_proxy"), "127.0.0.1", "localhost", "::1"])
        )
        found |= {"NO_PROXY": direct, "no_proxy": direct}
    return found | {"HOME": home, "TMPDIR": home}


@dataclass(frozen=True, slots=True)
class ChildSandbox:
    """How a child is started here."""

    config: ChildConfig
    bwrap: str
    """Path of bubblewrap; empty = the child sees what its service sees."""

    @property
    def home(self) -> str:
        """The folder that only this child has; empty = one must be made for it."""
        return "/tmp" if self.bwrap else ""

    def refusal(self, said: str) -> str:
        """Why it cannot be made, of what bubblewrap `said`, with the way out."""
        missing = _MISSING.search(said)
        if missing:
            return (
                f"bubblewrap cannot mount {missing[1]}: {missing[2]}. Environments read environment.path, "
                "environment.folders and the folders of Python's modules: each must be there, and must not be a link "
                "out of another one of them"
            )
        return f"environments cannot be isolated: {said}. {NEEDS if self.config.only_sandboxed else WAYS_OUT}"

    def refused(self, said: str) -> bool:
        """Whether a child that ended before it was ready was never started."""
        return bool(self.bwrap) and said.lstrip().startswith("bwrap: ")

    def command(self, fd: int) -> list[str]:
        """The child's command line; `fd` is its end of the socket."""
        own = _own_command(self.config, fd)
        if not self.bwrap:
            return own
        # Process namespace: processes of the user's code end with it, even in other sessions.
        apart = ["--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        apart += ["--die-with-parent", "--cap-drop", "ALL", *([] if self.config.network else ["--unshare-net"])]
        return [self.bwrap, *apart, *_root(self.bwrap, self.config), "--chdir", "/tmp", "--", *own]


def find_sandbox(config: ChildConfig) -> ChildSandbox:
    """What a child of this config is started in. Raises ConfigError if it needs a sandbox that is missing."""
    found = find_bubblewrap() if config.sandbox else ""
    if not found and config.only_sandboxed:
        raise ConfigError(
            "environment.command is run in bubblewrap alone, and there is no `bwrap`: install it (apt-get install "
            f"bubblewrap). {NEEDS}"
        )
    if not found and not config.network:
        raise ConfigError(
            "environments are kept from the network by bubblewrap, and there is no `bwrap`: install it "
            "(apt-get install bubblewrap), or set environment.network = true"
        )
    if not found:
        _warn_once()
    else:
        absent = [folder for folder in config.folders if not folder.is_dir()]
        if absent:
            raise ConfigError(f"environment.folders: there is no folder {absent[0]} where the environment service runs")
        # Asked once, and here, where nothing else waits for the answer.
        _help(found)
        _mounts_proc(found)
    return ChildSandbox(config, found)


@functools.cache
def _warn_once() -> None:
    log.warning("files_are_not_hidden", reason="environments and tools run without bubblewrap: they read what we read")


def _own_command(config: ChildConfig, fd: int) -> list[str]:
    if config.main:
        return [*config.main, "--fd", str(fd)]
    own = [sys.executable, "-P", "-m", _MAIN, "--fd", str(fd)]
    own += ["--max-result-chars", str(config.max_result_chars), "--memory-mib", str(config.memory_mib)]
    own += ["--cpu-s", str(config.cpu_s), "--environment", config.environment]
    own += [word for tool in config.tools for word in ("--tool", tool)]
    own += [word for reward in config.rewards for word in ("--reward", reward)]
    return own + (["--path", str(config.path)] if config.path is not None else [])


def _root(bwrap: str, config: ChildConfig) -> list[str]:
    """Mounts of an empty root. Later ones cover earlier ones: own folders come after /tmp, the run directory last."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        words += ["--symlink", os.readlink(name), name] if os.path.islink(name) else ["--ro-bind-try", name, name]
    for name in _OF_THE_SYSTEM:
        words += ["--ro-bind-try", name, name]
    for name in _DEVICES:
        words += ["--dev-bind", name, name]
    words += ["--proc", "/proc"] if _mounts_proc(bwrap) else ["--dir", "/proc"]
    # One file system for both, so that one bound holds for both.
    words += [*_size(bwrap, config.memory_mib), "--tmpfs", "/tmp", "--symlink", "/tmp", "/dev/shm"]
    folders = sorted({*_python_folders(), *config.folders}, key=lambda folder: len(folder.parts))
    for folder in folders:
        words += ["--ro-bind", str(folder), str(folder)]
    if config.run_dir is not None and any(config.run_dir.is_relative_to(folder) for folder in folders):
        words += ["--tmpfs", str(config.run_dir)]
    if config.path is not None:
        words += ["--ro-bind", str(config.path), str(config.path)]
    for source, seen in config.mounts:
        words += ["--ro-bind", str(source), seen]
    for target, link in config.links:
        words += ["--symlink", target, link]
    if config.run_dir is not None and any(config.run_dir.is_relative_to(folder) for folder in folders):
        words += ["--remount-ro", str(config.run_dir)]
    return [*words, "--remount-ro", "/"]


def _python_folders() -> Iterator[Path]:
    """Where this Python and all that it can import lie, as far as it is not below /usr."""
    prefixes = [sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)]
    libraries = inherited().get("LD_LIBRARY_PATH", "").split(os.pathsep)
    root = Path(headrace.__file__).resolve().parents[1]
    if root.name not in ("site-packages", "dist-packages"):
        # A checkout, which holds more than its packages: runs, `.env`, an environment of Python.
        yield from (root / name for name in ("headrace", "services", "wire"))
    for text in (*prefixes, *sys.path, *libraries):
        folder = Path(os.path.abspath(text))  # Without "..", which bubblewrap does not take in a target.
        if text and folder.exists() and not folder.is_relative_to("/usr") and folder.resolve() != root:
            yield folder


def _size(bwrap: str, memory_mib: int) -> list[str]:
    """What bounds a file system in memory, whose files no limit on a process counts."""
    return ["--size", str(memory_mib << 20)] if memory_mib and "--size" in _help(bwrap) else []


@functools.cache
def _help(bwrap: str) -> str:
    return subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=_ASK_S, check=False).stdout


@functools.cache
def _mounts_proc(bwrap: str) -> bool:
    """Whether a /proc of its own can be mounted: not where a container's runtime covers parts of /proc."""
    words = [bwrap, "--unshare-user-try", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--", "true"]
    return subprocess.run(words, capture_output=True, timeout=_ASK_S, check=False).returncode == 0
