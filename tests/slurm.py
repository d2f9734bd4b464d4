"""A Slurm of two nodes on this machine: the real slurmctld and slurmd, without root."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.supervisor.ports import pick_ports
from headrace.wire.process.lifecycle import die_with_parent
from tests.waiting import until

_DAEMONS = ("munged", "slurmctld", "slurmd")
_CONF = """
ClusterName=headrace
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={socket},cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
KillWait=60
SlurmdParameters=config_overrides
NodeName=127.0.0.1 NodeHostname={host} NodeAddr={address} Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=127.0.0.2 NodeHostname={host} NodeAddr={address} Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""Nodes are named by addresses: so task 0's is one that the other task reaches."""


class Slurm:
    """The commands of a cluster."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command: object) -> str:
        """The output of a command of Slurm's, stripped."""
        argv = [str(word) for word in command]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout.strip()

    def field(self, job: str, name: str) -> str:
        """A field of a job, as `scontrol` shows it."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return dict(one.split("=", 1) for one in shown.split() if "=" in one)[name]


def daemon(name: str) -> str:
    """Path of a daemon, or the test skips; where HEADRACE_REQUIRE_SLURM=1 it fails."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        assert os.environ.get("HEADRACE_REQUIRE_SLURM") != "1", f"HEADRACE_REQUIRE_SLURM=1, but there is no {name}"
        pytest.skip(f"no {name}: install slurm-wlm and munge")
    return path


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Slurm]:
    """A cluster whose files are in `folder`; its jobs are killed at the end."""
    munged, slurmctld, slurmd = map(daemon, _DAEMONS)
    folder.mkdir(mode=0o700)
    (folder / "state").mkdir()
    host = socket.gethostname()
    facts = {"folder": folder, "host": host, "address": socket.gethostbyname(host), "user": getpass.getuser()}
    (folder / "munge.key-file").write_bytes(os.urandom(1024))
    (folder / "munge.key-file").chmod(0o600)
    files = [f"--{name}={folder}/munge.{name}" for name in ("key-file", "pid-file", "log-file", "seed-file")]
    slurm = Slurm(folder)
    with contextlib.ExitStack() as stack:
        # A path of a socket is short.
        munge = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "munge"
        (folder / "slurm.conf").write_text(_CONF.format(socket=munge, ports=pick_ports(3), **facts))
        for argv in (
            [munged, "--foreground", "--force", *files, f"--socket={munge}"],
            [slurmctld, "-D"],
            [slurmd, "-D", "-N", "127.0.0.1"],
            [slurmd, "-D", "-N", "127.0.0.2"],
        ):
            log = stack.enter_context((folder / f"{Path(argv[0]).name}.log").open("ab"))
            process = subprocess.Popen(argv, env=slurm.environment, stdout=log, stderr=log, preexec_fn=die_with_parent)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            if argv[0] == munged:
                until(munge.exists, "munged to listen", 60)
        until(lambda: _idle(slurm) == 2, "two idle nodes", 60)
        stack.callback(_end_jobs, slurm)
        yield slurm


def _idle(slurm: Slurm) -> int:
    try:
        return slurm.run("sinfo", "--noheader", "--Node", "--format=%T").split().count("idle")
    except AssertionError:
        return 0


def _end_jobs(slurm: Slurm) -> None:
    slurm.run("scancel", "--full", "--signal=KILL", "--user", getpass.getuser())
    slurm.run("scancel", "--user", getpass.getuser())
    until(lambda: not slurm.run("squeue", "--noheader"), "jobs to end", 60)
