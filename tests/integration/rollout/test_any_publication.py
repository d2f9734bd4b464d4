"""Any history of publications to a real replica: it serves the last version that was committed, or none."""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.wire.errors import ContractError
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import Snapshot
from headrace.wire.weights.disk import save_weights
from tests.integration.rollout.world import CANARY, World, replica, take
from tests.rollout_models import make_model, reference_logprobs

VERSIONS = 3
SCORED_S = 20.0
PHASES = (
    *("receive", "receive", "receive", "verify", "verify", "commit", "commit", "abort"),
    *("receive other weights", "receive late", "verify spoiled", "commit late", "abort late", "die"),
)
"""What comes to a replica in a publication, and what is rarer less often."""


class Published:
    """A version: its weights in a folder, their plan, and what an engine with them says of the canary."""

    def __init__(self, folder: Path, number: int) -> None:
        self.model = make_model(seed=number, max_position_embeddings=4096)
        self.snapshot: Snapshot = take(self.model)
        self.folder = folder / f"v{number}"
        save_weights(self.folder, self.model.named_parameters(), {})
        self.logprobs, _ = reference_logprobs(self.model, CANARY[:1], np.array(CANARY[1:], np.int32))


class ReplicaMachine(RuleBasedStateMachine):
    """An orchestrator prepares, transfers, verifies, commits and aborts in any order, and the replica dies between.

    The model: `served` is the version that the replica must serve; `state` what it must say of itself; `session` the
    publication that is open, with the version of it, of the weights that came, and of those that are in the engine.
    """

    versions: ClassVar[list[Published]] = []
    made: ClassVar[Path]

    @initialize()
    def begin(self) -> None:
        if not self.versions:
            type(self).made = Path(tempfile.mkdtemp())
            self.versions.extend(Published(self.made, number) for number in range(VERSIONS))
        self.loop = asyncio.new_event_loop()
        self.publications = 0
        self.start()

    def start(self) -> None:
        """A life begins: a replica that has no weights of this run."""
        self.folder = Path(tempfile.mkdtemp())
        self.stack = AsyncExitStack()
        self.world: World = self.do(self.stack.enter_async_context(replica(self.folder)))
        self.served: int | None = None
        self.state = "PENDING_WEIGHTS"
        self.name, self.version = "", 0
        self.came: int | None = None
        self.fresh = self.verified = self.installed = False

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def ask(self, method: str, request: Any) -> Any:
        """The answer; None for a refusal."""
        try:
            return self.do(self.world.ask(method, request))
        except ContractError:
            return None

    def close(self) -> None:
        """The session ends without a commit."""
        if self.name:
            if self.installed:
                self.served = None
            self.state = "PENDING_WEIGHTS" if self.served is None else "SERVING"
        self.name = ""

    def prepare(self, version: int) -> None:
        self.close()
        self.publications += 1
        name = f"p{self.publications}"
        answer = self.do(self.world.prepare(name, version, self.versions[version].snapshot))
        assert answer.accepted == (self.served is None or version >= self.served), answer.reason
        if answer.accepted:
            self.name, self.version, self.state = name, version, "UPDATING"
            self.came, self.fresh, self.verified, self.installed = None, False, False, False

    def receive(self, weights: int, *, late: bool = False) -> None:
        """Weights of a version; `late`: of a publication that is over."""
        name = "p0" if late else self.name or f"p{self.publications}"
        published = self.versions[weights]
        request = rollout_pb2.ReceiveWeightsRequest(publication_id=name, disk_path=str(published.folder), deadline_s=10)
        answer = self.ask("ReceiveWeights", request)
        assert (answer is not None) == (name == self.name)
        if answer is not None:
            self.came, self.fresh = weights, True
            assert list(answer.digests) == [bucket.digest for bucket in published.snapshot.plan.buckets]

    def verify(self, spoil: float) -> None:
        """A canary of the version; `spoil`: of an engine that computes something else."""
        if not self.name:
            return
        self.world.model = self.versions[self.version].model
        good = self.came == self.version
        if good and not self.fresh:
            # What came is in the engine: the same call again changes nothing, and weights may come again.
            with pytest.raises(ContractError, match="no received weights"):
                self.do(self.world.verify(self.name, spoil=spoil))
            return
        answer = self.do(self.world.verify(self.name, spoil=spoil))
        self.fresh = False
        assert answer.equal == (good and not spoil), answer.reason
        if answer.equal:
            self.verified = self.installed = True
        else:
            self.name, self.served, self.state = "", None, "QUARANTINED"

    def commit(self, *, late: bool = False) -> None:
        """Twice, as where the answer was lost; `late`: of a publication that is over."""
        name = "p0" if late else self.name or "p0"
        for _ in range(2):
            answer = self.ask("CommitWeights", rollout_pb2.CommitWeightsRequest(publication_id=name))
            assert (answer is not None) == (name == self.name and self.verified)
        if name == self.name and self.verified:
            self.served, self.state, self.name = self.version, "SERVING", ""

    def abort(self, *, late: bool = False) -> None:
        """`late`: of a publication that is over, which changes nothing."""
        name = "p0" if late else self.name or "p0"
        self.do(self.world.abort(name))
        if name == self.name:
            self.close()

    @rule(phases=st.lists(st.sampled_from(PHASES), max_size=6), other=st.integers(0, VERSIONS - 1))
    def go_on(self, phases: list[str], other: int) -> None:
        """Phases of the open publication, if there is one, in any order."""
        for phase in phases:
            match phase:
                case "receive":
                    self.receive(self.version)
                case "receive other weights":
                    self.receive(other)
                case "receive late":
                    self.receive(other, late=True)
                case "verify" | "verify spoiled":
                    self.verify(0.01 if phase == "verify spoiled" else 0.0)
                case "commit" | "commit late":
                    self.commit(late=phase == "commit late")
                case "abort" | "abort late":
                    self.abort(late=phase == "abort late")
                case "die":
                    self.end()
                    self.start()
            self.it_serves_what_was_committed()

    @rule(version=st.integers(0, VERSIONS - 1))
    def publish(self, version: int) -> None:
        """A whole publication, as most are."""
        self.prepare(version)
        if self.name:
            self.go_on(["receive", "verify", "commit"], 0)
            assert self.served == version

    @rule(version=st.integers(0, VERSIONS - 1), phases=st.lists(st.sampled_from(PHASES), max_size=8))
    def publish_in_part(self, version: int, phases: list[str]) -> None:
        """A publication whose phases come in any order, if at all."""
        self.prepare(version)
        self.go_on(phases, (version + 1) % VERSIONS)

    @invariant()
    def it_serves_what_was_committed(self) -> None:
        if not hasattr(self, "world"):
            return
        found = self.do(self.world.ask("GetReplica", rollout_pb2.GetReplicaRequest()))
        assert pb.ReplicaState.Name(found.state).removeprefix("REPLICA_STATE_") == self.state
        # Incarnations begin at 1: 0 is that of no version.
        assert found.version.incarnation == (self.served is not None)
        assert found.version.version == (self.served or 0)
        inside = self.version if self.name and self.installed else self.served
        if inside is not None:
            scores = self.do(self.world.engine.score(np.array(CANARY, np.int32), SCORED_S))
            np.testing.assert_allclose(scores, self.versions[inside].logprobs, atol=1e-4)

    def end(self) -> None:
        self.do(self.stack.aclose())
        shutil.rmtree(self.folder)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.end()
            self.loop.close()


ReplicaMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=10, deadline=None)
test_any_history_leaves_the_last_committed_version_or_none = ReplicaMachine.TestCase


def test_a_second_verification_does_not_hide_weights_that_the_first_installed() -> None:
    history = ReplicaMachine()
    history.begin()
    try:
        history.publish(version=0)
        history.prepare(1)
        history.go_on(phases=["receive", "verify", "verify", "abort"], other=0)
        assert history.state == "PENDING_WEIGHTS", "the engine has weights of version 1, which it must not serve"
    finally:
        history.teardown()
