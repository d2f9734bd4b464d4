"""A real node for a control plane: containerd and kubelet, with the project's images and enforced policies."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.wire.process.lifecycle import die_with_parent
from tests.integration.kubernetes.control_plane import ControlPlane

_JOIN_S = 1200
_JOIN_TRIES = 6
_NO_NAMES = "so no names"


def need_root() -> None:
    """Skips aloud: a node mounts, and makes network interfaces."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")


@contextmanager
def joined(plane: ControlPlane, *images: str) -> Iterator[None]:
    """A node with images of the local docker engine; it is gone afterwards, whatever has happened.

    The control plane's own end takes down the pods, kubelet and containerd.
    """
    try:
        _join(plane, *images)
        with _policies(plane):
            yield
    finally:
        plane.stop()
        _kill_what_is_left(plane.folder)


def _join(plane: ControlPlane, *images: str) -> None:
    """Runs the recipe until it has found what is there.

    It asks for its address and its images with `ip | grep -q` and `ctr | grep -q` under pipefail: the left side dies of
    SIGPIPE when it still writes as grep has matched, and the recipe takes what is there for missing. It then adds an
    address a second time (and fails), or leaves the node without names. It is idempotent otherwise.
    """
    command = ["bash", plane.recipe / "node.sh", plane.folder, *images]
    for left in reversed(range(_JOIN_TRIES)):
        done = subprocess.run(
            command, env=plane.environment, capture_output=True, text=True, timeout=_JOIN_S, check=False
        )
        if done.returncode == 0 and _NO_NAMES not in done.stderr:
            return
        said = f"node.sh, exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        assert left, said
        sys.stderr.write(said)


_JUMP = "-A FORWARD -j NETPOL"


def denied_packets() -> int:
    """How many the policies have dropped so far."""
    shown = subprocess.run(
        ["iptables", "-w", "-L", "NETPOL-DENIED", "-v", "-x", "-n"], capture_output=True, text=True, check=True
    )
    (rule,) = re.findall(r"^\s*(\d+)\s+\d+\s+DROP", shown.stdout, re.M)
    return int(rule)


def enforces(addresses: Collection[str]) -> bool:
    """Whether packets of these pods pass their chains, in both directions, before any other rule can accept them."""
    rules = _iptables("-S")
    jumps = re.findall(r"^-A NETPOL -(s|d) ([\d.]+)/32 -j (NETPOL-\d+-[EI])$", rules, re.M)
    chained = {(side, address) for side, address, chain in jumps if f"-A {chain} " in rules}
    first, *_ = re.findall(r"^-A FORWARD .*$", rules, re.M)
    if first != _JUMP:
        # The enforcer looks only whether its jump is there: kube-proxy and dockerd insert theirs before it.
        _iptables("-D", *_JUMP.split()[1:])
        _iptables("-I", "FORWARD", "1", "-j", "NETPOL")
        return False
    return chained >= {(side, address) for side in "sd" for address in addresses}


def rules_of_forward() -> str:
    """What a packet between pods meets, in order."""
    return _iptables("-S", "FORWARD") + _iptables("-S", "NETPOL")


def _iptables(*words: str) -> str:
    return subprocess.run(["iptables", "-w", *words], capture_output=True, text=True, check=True).stdout


def enforcer_log(plane: ControlPlane) -> str:
    """What the enforcer has printed: a rule that the kernel refuses is there."""
    return _log(plane).read_text(errors="replace")[-4000:]


def network(plane: ControlPlane) -> str:
    """What decides whether packets between pods arrive, for the message of a wait that has ended."""
    proxy = (plane.folder / "logs" / "kube-proxy.log").read_text(errors="replace")[-2000:]
    names = (plane.folder / "node" / "names" / "names.json").read_text(errors="replace")[-2000:]
    return "\n".join(
        [rules_of_forward(), _iptables("-S"), _iptables("-t", "nat", "-S"), enforcer_log(plane), proxy, names]
    )


def _log(plane: ControlPlane) -> Path:
    return plane.folder / "logs" / "policies.log"


_AGAIN = 'while :; do timeout --foreground 30 "$@" || true; sleep 0.2; done'
"""The enforcer writes its rules when they differ from those that it has written, whether the kernel took these or not,
and ends at an answer that was cut: one that starts anew writes them all."""


@contextmanager
def _policies(plane: ControlPlane) -> Iterator[None]:
    command = [sys.executable, str(plane.recipe / "policies.py"), str(plane.kubeconfig)]
    with _log(plane).open("ab") as log:
        process = subprocess.Popen(
            ["bash", "-c", _AGAIN, "policies", *command],
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=die_with_parent,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        subprocess.run([*command, "--remove"], capture_output=True, timeout=120, check=False)


def _kill_what_is_left(folder: Path) -> None:
    """Containers' shims outlive containerd if their pods did not end in time."""
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in one.read_bytes():
                os.kill(int(one.parent.name), signal.SIGKILL)
        except OSError:
            continue
