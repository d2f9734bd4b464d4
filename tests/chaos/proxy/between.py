"""A run whose services reach the broker, the orchestrator and a judge through a proxy each.

Only the product's own configuration leads there: `--broker`, `--orchestrator` and the URL of `reward_endpoint`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.chaos.proxy.judge import Judge, score
from tests.chaos.proxy.proxied import ProxiedRun
from tests.chaos.proxy.proxy import FaultProxy
from tests.e2e.harness import TinyRun
from tests.ports import free_port
from tests.shared import made_once
from tests.valkey import Valkey

STEPS = 40
BROKER, ORCHESTRATOR, JUDGE = "broker", "orchestrator", "judge"
_WEIGHTS = "weights"


class Between(ProxiedRun):
    """The run, its broker and its judge, and the proxies before them."""

    def __init__(
        self,
        folder: Path,
        *,
        steps: int = STEPS,
        judged: Callable[[Sequence[int]], float] = score,
        variables: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """`judged`: what the judge adds to a rollout's reward, of the sample's tokens.

        `variables`: of a service's environment, or the broker's.
        """
        super().__init__(TinyRun(folder / "tiny", steps=steps, replicas=1), folder, steps=steps, variables=variables)
        self.valkey = Valkey(folder / "valkey", variables=variables.get(BROKER, {}))
        self.judge = Judge(judged)
        self._port = free_port()
        self.proxies = {
            BROKER: FaultProxy(self.valkey.port, redis=True),
            ORCHESTRATOR: FaultProxy(self._port),
            JUDGE: FaultProxy(self.judge.port),
        }

    def start(self, *arguments: str, judge_s: float = 50) -> None:
        """Starts everything; `arguments` are more settings of the run, `judge_s` the judge's deadline for a group."""
        self.valkey.start()
        for proxy in self.proxies.values():
            proxy.start()
        judge = f"127.0.0.1:{self.proxies[JUDGE].port}"
        asked = {"url": f"http://{judge}", "attempt_s": 2, "deadline_s": judge_s, "retries": 20}
        scorers = [
            {"name": "length", "options": {"target": 3}},
            {"name": "reward_endpoint", "options": asked},
        ]
        self.prepare_for(
            f"redis://127.0.0.1:{self.proxies[BROKER].port}/0",
            f"--reward.scorers={json.dumps(scorers)}",
            f"--reward.allow_hosts={json.dumps([judge])}",
            *arguments,
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


def undisturbed_weights(factory: pytest.TempPathFactory) -> str:
    """Those of the same run behind proxies that do nothing, made once for all workers of a session."""
    return (made_once(factory, "between", _make) / _WEIGHTS).read_text()


def _make(folder: Path) -> None:
    folder.mkdir()
    run = Between(folder)
    try:
        run.start()
        run.judge.hurry()
        weights = run.finish()
        assert not run.restarts, run.logs()
    finally:
        run.close()
    (folder / _WEIGHTS).write_text(weights)
