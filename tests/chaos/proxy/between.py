"""A run whose services reach the broker, the orchestrator and a judge through a proxy each.

Only the product's own configuration leads there: `--broker`, `--orchestrator` and the URL of `reward_endpoint`. Nothing
supervises the processes but the run itself, which restarts them as Compose does it (`restart: unless-stopped`).
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from headrace.wire.process.entry import REFUSED
from tests.chaos.proxy.faults import Fault, Refuse
from tests.chaos.proxy.judge import Judge, score
from tests.chaos.proxy.proxy import FaultProxy
from tests.e2e.apart import Apart
from tests.e2e.harness import TinyRun
from tests.ports import free_port
from tests.valkey import Valkey

STEPS = 40
BROKER, ORCHESTRATOR, JUDGE = "broker", "orchestrator", "judge"
DEADLINE_S = 180.0
_AGAIN_S = 0.5


class Between(Apart):
    """The run, its broker and its judge, and the proxies before them."""

    def __init__(
        self,
        folder: Path,
        *,
        steps: int = STEPS,
        judged: Callable[[Sequence[int]], float] = score,
        scorers: Sequence[Mapping[str, object]] = (),
        retries: int = 20,
        variables: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """`judged`: what the judge adds to a rollout's reward, of the sample's tokens; `scorers`: further ones;
        `retries`: of a request to the judge.

        `variables`: of a service's environment, or the broker's.
        """
        super().__init__(TinyRun(folder / "tiny", steps=steps, replicas=1), folder)
        self._variables, self._scorers, self._retries = variables, scorers, retries
        self._steps = steps
        self.valkey = Valkey(folder / "valkey", variables=variables.get(BROKER, {}))
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
        asked = {"url": f"http://{judge}", "attempt_s": 2, "deadline_s": 50, "retries": self._retries}
        scorers = [
            {"name": "length", "options": {"target": 3}},
            {"name": "reward_endpoint", "options": asked},
            # Of weight 0 it changes no bit; where it abstains, so does the whole.
            {"name": "teacher", "weight": 0.0, "options": asked | {"compare": False}},
            *self._scorers,
        ]
        self.prepare_for(
            f"redis://127.0.0.1:{self.proxies[BROKER].port}/0",
            f"--reward.scorers={json.dumps(scorers)}",
            f"--reward.allow_hosts={json.dumps([judge])}",
            orchestrator=f"127.0.0.1:{self.proxies[ORCHESTRATOR].port}",
            port=self._port,
        )
        for service in self.services:
            self.spawn(service, self._variables.get(service, {}))

    def strike(self, border: str, fault: Fault, seconds: float) -> None:
        """Waits for a further step, and sets a fault for some time."""
        self.wait_for_steps(1)
        hits = self._hit(border, fault, seconds)
        assert hits, f"{fault} met nothing at the border to the {border}"

    def _hit(self, border: str, fault: Fault, seconds: float) -> int:
        self.proxies[border].set(fault)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep()
            time.sleep(0.1)
        hits = self.proxies[border].hits
        self.proxies[border].set(None)
        return hits

    def kill_teachers(self) -> None:
        """Takes the endpoint away for a second, then kills the reward service, each while the endpoint is asked."""
        self._wait_for_request()
        self._hit(JUDGE, Refuse(), 1.0)
        self._wait_for_request()
        self.processes["reward"].kill()
        self.processes["reward"].wait(60)

    def _wait_for_request(self) -> None:
        before = self.judge.asked
        self._wait_until(lambda: self.judge.asked > before, "a request to the endpoint")

    def wait_for_steps(self, more: int) -> None:
        """Until so many further steps are trained."""
        goal = self.run.steps() + more
        self._wait_until(lambda: self.run.steps() >= goal, f"step {goal}")

    def _wait_until(self, done: Callable[[], bool], what: str) -> None:
        """Services that end meanwhile are started again."""
        end = time.monotonic() + DEADLINE_S
        while not done():
            assert self.processes["trainer"].poll() != 0, f"ended before {what}"
            assert time.monotonic() < end, f"waited {DEADLINE_S:g} s for {what}{self.logs()}"
            self.keep()
            time.sleep(0.05)

    def finish(self) -> str:
        """Waits for the trainer's end, ends the others; returns the weights of what `headrace check` found whole."""
        self.judge.hurry()
        end = time.monotonic() + DEADLINE_S
        while self.processes["trainer"].poll() != 0:
            assert time.monotonic() < end, self.logs()
            self.keep()
            time.sleep(0.1)
        others = [process for service, process in self.processes.items() if service != "trainer"]
        for process in others:
            process.terminate()
        assert [process.wait(60) for process in others] == [0] * len(others), self.logs()
        found = self.run.check()
        groups = found["groups"]
        lost = groups["issued"] - groups["trained"] - sum(groups["dropped"].values()) - groups["open"]
        assert (lost, groups["trained"]) == (0, self._steps * 4), found
        weights: str = found["weights_sha256"]
        return weights

    def keep(self) -> None:
        """Starts services again that have ended; none may have refused its settings."""
        for service, process in self.processes.items():
            if process.poll() is not None and (service, process.returncode) != ("trainer", 0):
                assert process.returncode != REFUSED, self.log(service).read_text()[-2500:]
                time.sleep(_AGAIN_S)
                self.spawn(service, self._variables.get(service, {}))

    def close(self) -> None:
        super().close()
        for proxy in self.proxies.values():
            proxy.stop()
        self.valkey.stop()
        self.judge.stop()
