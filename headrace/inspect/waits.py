"""Lists the waits of a run: for each party what it waits for, since when and until when. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.supervisor.view import MonitorState
from headrace.wire.api.status import EnvironmentStatus, EpisodeWait, ReplicaStatus, RunStatus, StreamStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One service or replica, and what it does or waits for. Times are unix seconds."""

    who: str
    process: str = ""
    """State reported by its supervisor; empty if there is none."""
    state: str = ""
    version: str = ""
    doing: str = ""
    waits_for: str = ""
    source: str = ""
    """The party that provides it: a name, or `rollout` or `reward` for all replicas."""
    since: float | None = None
    """None: it waits for nothing, or the time is unknown."""
    until: float | None = None
    """When it gives up waiting; None: it has no deadline."""

    def in_words(self, now: float) -> str:
        """Formats the wait, such as `waits for weights, 3.2 s of 120 s`, or what it does."""
        if not self.waits_for:
            return self.doing
        said = f"waits for {self.waits_for}" + (f" from {self.source}" if self.source else "")
        if self.since is not None:
            said += f", {duration(max(0.0, now - self.since))}"
            said += f" of {duration(self.until - self.since)}" if self.until else ""
        elif self.until is not None:
            said += f", at most {duration(max(0.0, self.until - now))} more"
        return f"{said}; {self.doing}" if self.doing else said


def duration(seconds: float) -> str:
    """Formats a duration, such as `3.2 s`, `120 s`, `31 min`, `2.5 h`, `3.1 days`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 300:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def in_time(seconds: float) -> str:
    """Formats the time that is left, in minutes from 90 s on."""
    return f"{seconds / 60:.0f} min" if 90 <= seconds < 300 else duration(seconds)


def parties(status: RunStatus | None, processes: Mapping[str, str]) -> list[Party]:
    """One party for each process and each replica; `processes` is empty for a run without a supervisor here."""
    replicas = {one.id: one for one in status.replicas} if status else {}
    workers = {one.id: one for one in status.environments} if status else {}
    names = list(processes) or ["orchestrator", "trainer", *replicas, "reward", *workers]
    found = []
    for name in names:
        if name in workers:
            found.append(_environment(Party(who=name, process=processes.get(name, "")), workers.pop(name)))
            continue
        replica = replicas.pop(name, None) or replicas.pop(name.removeprefix("rollout-"), None)
        found.append(_party(name, processes.get(name, ""), status, replica))
    found += [_replica(Party(who=name), one) for name, one in replicas.items()]
    found += [_environment(Party(who=name), one) for name, one in workers.items()]
    for one in status.unreachable if status else ():
        place = next((place for place, party in enumerate(found) if party.who == one.who), None)
        what = f"the {one.peer} at {one.address} ({one.error})"
        if place is None:
            found.append(_waiting(Party(who=one.who), what, one.since, None))
        else:
            found[place] = replace(_waiting(found[place], what, one.since, None), source="")
    return found


def refusals_in_words(status: RunStatus) -> list[str]:
    """Lists replicas to which the trainer no longer opens a collective group, with the reason."""
    return [f"{one.id} gets weights over the disk: {one.refused}" for one in status.replicas if one.refused]


def _party(name: str, process: str, status: RunStatus | None, replica: ReplicaStatus | None) -> Party:
    party = Party(who=name, process=process)
    if process == MonitorState.ENDED or status is None:
        return party
    if name == "trainer":
        return _trainer(party, status)
    if name == "orchestrator":
        return _orchestrator(party, status)
    if name.startswith("reward"):
        return _reward(party, status.streams.get("rollouts"))
    return _replica(party, replica) if replica else party


def _waiting(party: Party, what: str, since: float | None, until: float | None) -> Party:
    return replace(party, waits_for=what, since=since, until=until) if what else party


def _evaluating(party: Party, status: RunStatus) -> Party:
    return _waiting(party, status.evaluating, status.evaluating_since, status.evaluating_until)


def _trainer(party: Party, status: RunStatus) -> Party:
    one = status.trainer
    source = ("reward" if _backlog(status) else "rollout") if one.waiting_for.startswith("a batch") else ""
    doing = f"step {status.step + 1}" if one.state == "alive" and not one.waiting_for else ""
    party = replace(party, state=one.state, version=str(status.version), doing=doing, source=source)
    return _waiting(party, one.waiting_for, one.waiting_since, one.waiting_until)


def _orchestrator(party: Party, status: RunStatus) -> Party:
    party = replace(party, state=status.state, doing=_credit(status))
    publication = status.publication
    if publication:
        until = publication.since + publication.deadline_s if publication.deadline_s else None
        phase = f"{publication.phase} of {publication.version}"
        what = f"{publication.waiting_for} ({phase})" if publication.waiting_for else phase
        return _waiting(party, what, publication.since, until)
    if status.waiting_for:
        return _waiting(party, status.waiting_for, status.waiting_since, status.waiting_until)
    return _evaluating(party, status)


def _credit(status: RunStatus) -> str:
    dropped = status.groups.dropped
    text = f"credit {status.credit.issued}/{status.credit.limit}, groups trained {status.groups.trained}"
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        text += f", dropped {sum(dropped.values())} ({reasons})"
    return text


def _reward(party: Party, stream: StreamStatus | None) -> Party:
    if stream is None:
        return party
    if not stream.pending and not stream.undelivered:
        return replace(party, waits_for="rollouts", source="rollout")
    return replace(party, doing=f"{stream.pending} groups at work, {stream.undelivered} wait")


def episode_waits(status: RunStatus, now: float) -> list[str]:
    """Lists the episodes that wait longest: which, on which worker, for what, how long."""
    waits = sorted(((wait, one.id) for one in status.environments for wait in one.waits), key=lambda two: two[0].since)
    said = [
        f"{wait.id} on {worker} waits for {_from(wait)}, {duration(max(0.0, now - wait.since))}"
        for wait, worker in waits[:_EPISODES]
    ]
    more = sum(one.playing + one.waiting for one in status.environments) - len(said)
    return [*said, f"and {more} more episodes"] if more > 0 else said


def _from(wait: EpisodeWait) -> str:
    return f"{wait.waits_for} from the engine" if wait.kind == "engine" else wait.waits_for


def _environment(party: Party, one: EnvironmentStatus) -> Party:
    doing = f"{one.playing} of {one.slots} slots play" + (f", {one.waiting} wait" if one.waiting else "")
    party = replace(party, state="alive", doing=doing)
    if not one.waits:
        return replace(party, waits_for="tasks", source="orchestrator")
    longest = one.waits[0]
    source = {"engine": "rollout", "weights": "trainer"}.get(longest.kind, "")
    return replace(party, waits_for=f"{longest.waits_for} ({longest.id})", source=source, since=longest.since)


def _backlog(status: RunStatus) -> bool:
    """Whether there are generated groups that no reward replica has begun to score."""
    stream = status.streams.get("rollouts")
    return stream is not None and stream.undelivered > 0


_EPISODES = 5
"""Episodes that are listed by name."""
_UNPROVEN = {
    "compared": "weights compared with other replicas, not proven",
    "canary": "weights held against the canary alone, not proven",
}


def _replica(party: Party, one: ReplicaStatus) -> Party:
    party = replace(party, state=one.state, version=one.version)
    if one.publication:
        return _waiting(party, one.publication, one.publication_since, one.publication_until)
    doing = "" if one.waiting_for else f"{one.in_flight_rollouts} in flight, {one.tokens_per_second:.0f} tokens/s"
    source = {"": "", "prompts": "orchestrator"}.get(one.waiting_for, "trainer")
    party = replace(party, doing=", ".join(filter(None, [doing, *_weights(one)])), source=source)
    return _waiting(party, one.waiting_for, one.waiting_since, None)


def _weights(one: ReplicaStatus) -> list[str]:
    """Reports degraded weights transfer: the fallback route of the next ones, and how the last were proven."""
    said = []
    if one.route and one.route_reason:
        way = "from disk" if one.route == "disk" else f"over {one.route}"
        said.append(f"weights {way} ({one.route_reason})")
    if one.proof in _UNPROVEN:
        said += [_UNPROVEN[one.proof], one.proof_note]
    return said
