"""What a step of the asynchronous loop takes over the longer of generation and training: a model, by `run.stale`.

    python -m benchmarks.overlap --json
    python -m benchmarks.overlap --real 60

A discrete-event model, independent of the machine. Answers of lognormal length are sampled on the rows of replicas, a
step and a publication take a fixed time, and new weights serve running answers at once. The rules are the product's
own functions: credit, admission, and the ledger that chooses batches. `bound` is what no scheduler that knew all
lengths beforehand could beat under that credit, in the policy's own order.

`--real` adds `real_step_over_ideal` for `wait` and `late` at four rollouts a row: whole runs of `headrace train`, all
six at once, in which sampling and training take the model's time and nothing else is emulated. A few minutes.
"""

import argparse
import heapq
import itertools
import json
import math
import random
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np

from benchmarks.fleet import begin, lines_of, write_folder
from headrace.services.orchestrator.issuing.credit import credit_limit, room
from headrace.services.rollout.replica.capacity import RowPool, group_limit
from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.durability.ledger import Ledger, ReadyGroup
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.reasons import StalePolicy

REPLICAS, ROWS, SIZE, MEAN, CAP, TOKENS_S, PUBLISH_S = 4, 16, 8, 200, 3200, 200.0, 0.05
"""Rows of a replica, rollouts of a group, tokens of an answer and of a row in a second, seconds of a publication."""
POLICIES: tuple[StalePolicy, ...] = get_args(StalePolicy)
_SKIPPED = 30
"""Steps before the loop is in its stride."""
_TOLD: Any = SimpleNamespace(is_trainable=True)


@dataclass(eq=False)
class Group:
    """A group under way. `starts`: when each of its rollouts got its row."""

    index: int
    min_version: int
    lengths: list[int]
    starts: dict[int, float] = field(default_factory=dict)
    left: int = SIZE
    oldest: int = 0
    replica: "Replica | None" = None
    given_up: bool = False


class Replica:
    """Rows, rollouts that wait for one, and groups that are not generated yet."""

    def __init__(self) -> None:
        self.pool, self.free, self.taken = RowPool(ROWS, SIZE), ROWS, 0
        self.waiting: deque[tuple[Group, int]] = deque()


class Loop:
    """One run; `times[k]` is the end of step k + 1."""

    def __init__(
        self, *, staleness: int, policy: StalePolicy, sigma: float, groups: int, steps: int, seed: int
    ) -> None:
        self.staleness, self.policy, self.sigma, self.groups, self.steps = staleness, policy, sigma, groups, steps
        self.step_s = groups * SIZE / (REPLICAS * ROWS) * MEAN / TOKENS_S
        self.draw, self.now, self.served, self.version, self.issue_version = random.Random(seed), 0.0, 0, 0, 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.ledger = Ledger(batch_groups=groups, max_staleness=staleness, stale=policy)
        self.open: dict[int, Group] = {}
        self.prompts: deque[Group] = deque()
        self.replicas = [Replica() for _ in range(REPLICAS)]
        self.issued: list[list[int]] = []
        self.published, self.times = [0.0], list[float]()
        self.trained: list[int] = []
        self.lags, self.wasted, self.spent = np.zeros(1000), 0, 0
        self.busy = False

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Calls `act` after so many seconds."""
        heapq.heappush(self.events, (self.now + seconds, next(self.order), act))

    def run(self) -> "Loop":
        """Runs all steps."""
        self.issue()
        while len(self.times) < self.steps:
            self.now, _, act = heapq.heappop(self.events)
            act()
        return self

    def issue(self) -> None:
        """The orchestrator: prompts within credit."""
        limit = credit_limit(
            version=self.issue_version,
            max_steps=10**9,
            max_staleness=self.staleness,
            groups_per_batch=self.groups,
        )
        for _ in range(room(limit, len(self.open))):
            group = Group(len(self.issued), self.issue_version, self.lengths(len(self.issued)))
            self.issued.append(group.lengths)
            self.open[group.index] = group
            self.prompts.append(group)
        self.admit()

    def lengths(self, index: int, mean: float = MEAN) -> list[int]:
        """Tokens of the answers to the prompt of a group."""
        mu = math.log(mean) - self.sigma**2 / 2
        return [min(CAP, max(2, round(self.draw.lognormvariate(mu, self.sigma)))) for _ in range(SIZE)]

    def admit(self) -> None:
        """Replicas take prompts whose weights serve: whichever has room, in the order of the stream."""
        limit = group_limit(1 / REPLICAS, batch_groups=self.groups, max_staleness=self.staleness, deterministic=False)
        while self.prompts and self.prompts[0].min_version <= self.served:
            able = [one for one in self.replicas if min(limit - one.taken, one.pool.groups_ahead(len(one.waiting))) > 0]
            if not able:
                return
            replica, group = self.draw.choice(able), self.prompts.popleft()
            group.replica, replica.taken = replica, replica.taken + 1
            replica.waiting.extend((group, number) for number in range(SIZE))
            self.fill(replica)

    def fill(self, replica: Replica) -> None:
        """Free rows go to the rollouts that wait longest."""
        while replica.free and replica.waiting:
            group, number = replica.waiting.popleft()
            if group.given_up:
                continue
            replica.free -= 1
            if not group.starts:
                group.oldest = self.served
            group.starts[number] = self.now
            self.at(group.lengths[number] / TOKENS_S, lambda group=group: self.finish(group))  # type: ignore[misc]

    def finish(self, group: Group) -> None:
        """A rollout ends; with the last one its group is ready."""
        replica = group.replica
        if group.given_up or replica is None:
            return
        replica.free += 1
        group.left -= 1
        if not group.left:
            replica.taken -= 1
            source = frozenset({(PolicyVersion(incarnation=1, version=group.oldest), "")})
            self.ledger.take(
                ReadyGroup(
                    group_index=group.index,
                    group_id="",
                    min_version=group.oldest,
                    sources=source,
                    scored=_TOLD,
                    data=b"",
                )
            )
        self.fill(replica)
        self.admit()
        self.train()

    def train(self) -> None:
        """The trainer: the next batch if there is one and no step runs."""
        if self.busy:
            return
        choice = self.ledger.choose(incarnation=1, version=self.version, weights_digest="")
        for ready, reason in choice.dropped:
            self.drop(self.open[ready.group_index], str(reason), sum(self.open[ready.group_index].lengths))
        if choice.batch is not None:
            self.busy = True
            for ready in choice.batch:
                self.account(self.open.pop(ready.group_index))
                self.ledger.end(GroupFate(group_index=ready.group_index, group_id="", step=self.version + 1, reason=""))
            self.issue_version = self.version + 1
            self.at(self.step_s, self.end_step)
        self.issue()

    def drop(self, group: Group, reason: str, tokens: int) -> None:
        """A group ends untrained."""
        self.wasted, self.spent = self.wasted + tokens, self.spent + tokens
        self.ledger.end(GroupFate(group_index=group.index, group_id="", step=0, reason=reason))
        del self.open[group.index]

    def account(self, group: Group) -> None:
        """Counts the tokens of a group that is trained, by their lag."""
        for number, start in group.starts.items():
            end = start + group.lengths[number] / TOKENS_S
            borders = np.clip([*self.published[group.oldest :], math.inf], start, end)
            sampled = np.diff(borders)[::-1] * TOKENS_S
            lags = np.arange(len(sampled)) + self.version - self.served
            over = sampled[lags > self.staleness].sum() if self.policy == "mask" and self.staleness else 0.0
            self.spent, self.wasted = self.spent + group.lengths[number], self.wasted + round(over)
            self.trained.append(group.lengths[number] - round(over))
            if len(self.times) > _SKIPPED:
                kept = sampled > 0 if not over else (sampled > 0) & (lags <= self.staleness)
                self.lags[lags[kept]] += sampled[kept]

    def end_step(self) -> None:
        """New weights, which serve after their publication."""
        self.version, self.busy = self.version + 1, False
        self.times.append(self.now)
        self.at(PUBLISH_S, self.publish)
        self.train()

    def publish(self) -> None:
        """They serve; `drop` gives up what can no longer be trained."""
        self.served += 1
        self.published.append(self.now)
        if self.policy == "drop" and self.staleness:
            for group in [one for one in self.open.values() if one.left and one.starts]:
                if self.served - group.oldest > self.staleness:
                    self.give_up(group)
        self.admit()
        self.train()

    def give_up(self, group: Group) -> None:
        """Aborts a group under way."""
        ends = {number: start + group.lengths[number] / TOKENS_S for number, start in group.starts.items()}
        replica, group.given_up = group.replica, True
        assert replica is not None
        replica.free, replica.taken = replica.free + sum(end > self.now for end in ends.values()), replica.taken - 1
        tokens = sum((min(end, self.now) - group.starts[number]) * TOKENS_S for number, end in ends.items())
        self.drop(group, "stale", round(tokens))
        self.fill(replica)


def bound(loop: Loop) -> float:
    """Seconds a step of a clairvoyant scheduler, at least: one that gives every group its rows at once.

    In the order of issue a step waits for the longest answer of its batch, issued `staleness + 1` steps before. In any
    order, by Little's law: each group holds its credit for a step, a publication and its longest answer.
    """
    longest = [max(lengths) / TOKENS_S for lengths in loop.issued]
    if loop.policy != "wait":
        return (loop.step_s + PUBLISH_S + statistics.fmean(longest)) / (loop.staleness + 1)
    ends = [0.0] * (loop.staleness + 1)
    for step in range(len(longest) // loop.groups):
        waits = max(longest[step * loop.groups : (step + 1) * loop.groups])
        ends.append(max(ends[-1], ends[-1 - loop.staleness] + PUBLISH_S + waits) + loop.step_s)
    return ends[-1] / (len(ends) - loop.staleness - 1)


def measured(loop: Loop) -> dict[str, float]:
    """The numbers of a run."""
    ideal = max(loop.step_s, statistics.fmean(map(statistics.fmean, loop.issued)) * loop.step_s / MEAN)
    lags = np.arange(len(loop.lags))
    settled = loop.issued[: min(loop.open, default=len(loop.issued))]
    return {
        "step_over_ideal": (loop.times[-1] - loop.times[_SKIPPED - 1]) / (loop.steps - _SKIPPED) / ideal,
        "bound": max(bound(loop), ideal) / ideal,
        "lag_mean": float((lags * loop.lags).sum() / loop.lags.sum()),
        "lag_max": int(lags[loop.lags > 0].max()),
        "wasted_share": loop.wasted / loop.spent,
        "trained_over_sampled": statistics.fmean(loop.trained) / statistics.fmean(itertools.chain(*settled)),
    }


def add_real(found: Sequence[dict[str, Any]], *, sigma: float, steps: int) -> None:
    """Runs what `found` describes, and adds to each what its steps took, without the first and the last of the run."""
    groups = 4 * REPLICAS * ROWS // SIZE
    model = Loop(staleness=1, policy="wait", sigma=sigma, groups=groups, steps=steps, seed=0)
    with tempfile.TemporaryDirectory(prefix="headrace-overlap-") as name:
        write_folder(folder := Path(name), [model.lengths(index) for index in range(groups * steps)])
        runs = []
        for number, one in enumerate(found):
            keys = {"run__max_steps": steps, "run__max_staleness": one["staleness"], "run__stale": one["stale"]}
            keys |= {"batch__groups": groups, "batch__group_size": SIZE, "rollout__replicas": REPLICAS}
            emulated = {"tokens_s": TOKENS_S, "step_s": model.step_s, "rollout__max_rows": ROWS}
            runs.append(begin(folder, f"run-{number}", **keys, **emulated))
        for run in runs:
            run.wait()
        for number, one in enumerate(found):
            lines = lines_of(folder / f"run-{number}")
            if len(lines) < steps:
                raise SystemExit((folder / f"run-{number}.log").read_text()[-3000:])
            first, last = steps // 6, steps - one["staleness"] - 1
            step_s = (lines[last - 1]["t"] - lines[first - 1]["t"]) / (last - first)
            one["real_step_over_ideal"] = round(step_s / model.step_s, 3)
            one["real_lag_mean"] = round(statistics.fmean(line["token_lag_mean"] for line in lines[first:last]), 3)


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--real", type=int, default=0, metavar="STEPS", help="run so many steps for real, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for a_row, staleness, policy in itertools.product((4, 1), (1, 2, 4), POLICIES):
        how: dict[str, Any] = {"staleness": staleness, "policy": policy, "groups": a_row * REPLICAS * ROWS // SIZE}
        seeds: Sequence[dict[str, float]] = [
            measured(Loop(**how, sigma=options.sigma, steps=options.steps, seed=seed).run())
            for seed in range(options.seeds)
        ]
        numbers = {
            key: round((max if key == "lag_max" else statistics.fmean)(one[key] for one in seeds), 3)
            for key in seeds[0]
        }
        found.append({"rollouts_a_row": a_row, "staleness": staleness, "stale": policy, **numbers})
    if options.real:
        asked = [one for one in found if one["rollouts_a_row"] == 4 and one["stale"] in ("wait", "late")]
        add_real(asked, sigma=options.sigma, steps=options.real)
    if not options.json:
        for one in found:
            print(" ".join(f"{key} {value}" for key, value in one.items()))
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
