"""A server, its replica and a Sentinel that watches them: real processes of the project's own server."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import redis

from headrace.wire.process.lifecycle import die_with_parent
from tests.ports import free_port
from tests.valkey import Valkey, server_binary
from tests.waiting import until

NAME = "the-broker"


class Watched:
    """`first` takes writes until the Sentinel gives its place to `second`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.first = Valkey(folder / "first", "--repl-diskless-sync-delay", "0")
        replica_of = f"127.0.0.1 {self.first.port}"
        self.second = Valkey(folder / "second", "--repl-diskless-sync-delay", "0", "--replicaof", replica_of)
        self.url = f"redis+sentinel://127.0.0.1:{self.port}/{NAME}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.first.start()
        self.second.start()
        until(lambda: self._info(self.second)["master_link_status"] == "up", "the replica")
        config = self.folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor {NAME} 127.0.0.1 {self.first.port} 1\n"
            f"sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000\n"
        )
        with (self.folder / "sentinel.log").open("ab") as log:
            self.process = subprocess.Popen(
                [server_binary(), str(config), "--sentinel"], stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        until(self._knows_the_replica, "the Sentinel to know the replica")

    def _knows_the_replica(self) -> bool:
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", self.port)):
                return False
        with redis.Redis(port=self.port, protocol=2) as sentinel:
            return bool(sentinel.execute_command("SENTINEL", "REPLICAS", NAME))

    def writable(self) -> int:
        """Port of the server that the Sentinel names."""
        with redis.Redis(port=self.port, protocol=2) as sentinel:
            return int(sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def copied(self) -> bool:
        """Whether the replica has all that the first server has."""
        there = self._info(self.first)
        return bool(there["connected_slaves"] and there["slave0"]["offset"] == there["master_repl_offset"])

    def fail_over(self) -> None:
        """The Sentinel gives the place to the other server, while both live."""
        with redis.Redis(port=self.port, protocol=2) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", NAME)

    def _info(self, server: Valkey) -> dict[str, Any]:
        with redis.Redis(port=server.port, protocol=2) as client:
            found: dict[str, Any] = client.info("replication")
        return found

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
        self.first.stop()
        self.second.stop()
