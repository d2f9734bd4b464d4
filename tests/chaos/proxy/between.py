"""A run whose services reach the broker, the orchestrator and a judge through a proxy each.

Only the product's own configuration leads there: `--broker`, `--orchestrator` and the URL of `reward_endpoint`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.chaos.proxy.judge import Judge, score
from tests.chaos.proxy.proxied import ProxiedRun
from tests.chaos.proxy.proxy import FaultProxy
from tests.e2e.harness import TinyRun
from tests.ports import free_port
from tests.valkey import Valkey

STEPS = 40
BROKER, ORCHESTRATOR, JUDGE = "broker", "orchestrator", "judge"


class Between(ProxiedRun):
    """The run, its broker and its judge, and the proxies before them."""

    def __init__(
        self,
        folder: Path,
        *,
        steps: int = STEPS,
        judged: Callable[[Sequence[int]], float] = score,
    ) -> None:
        """`judged`: what the judge adds to a rollout's reward, of the sample's tokens."""
        super().__init__(TinyRun(folder / "tiny", steps=steps, replicas=1), folder, steps=steps)
        self.valkey = Valkey(folder / "valkey")
        self.judge = Judge(judged)
        self._port = free_port()
        self.proxies = {
            BROKER: FaultProxy(self.valkey.port, redis=True),
            ORCHESTRATOR: FaultProxy(self._port),
            JUDGE: FaultProxy(self.judge.port),
        }

    def start(self) -> None:
        self.valkey.start()
        for proxy in self.proxies.values():
            proxy.start()
        judge = f"127.0.0.1:{self.proxies[JUDGE].port}"
        asked = {"url": f"http://{judge}", "attempt_s": 2, "deadline_s": 50, "retries": 20}
        scorers = [
            {"name": "length", "options": {"target": 3}},
            {"name": "reward_endpoint", "options": asked},
        ]
        self.prepare_for(
            f"redis://127.0.0.1:{self.proxies[BROKER].port}/0",
            f"--reward.scorers={json.dumps(scorers)}",
            f"--reward.allow_hosts={json.dumps([judge])}",
            orchestrator=f"127.0.0.1:{self.proxies[ORCHESTRATOR].port}",
            port=self._port,
        )
        self.spawn_all()

    def finish(self) -> str:
        """Waits for the end; returns the weights of what `headrace check` found whole."""
        self.judge.hurry()
        weights: str = self.verdict()["weights_sha256"]
        return weights

    def close(self) -> None:
        super().close()
        self.valkey.stop()
        self.judge.stop()
