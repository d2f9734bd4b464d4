"""Lists the waits of a run: for each party what it waits for, since when and until when. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.supervisor.process_monitor import MonitorState


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


def parties(status: Mapping[str, Any], processes: Mapping[str, str]) -> list[Party]:
    """One party for each process and each replica; `processes` is empty for a run without a supervisor here."""
    replicas = {str(one.get("id")): one for one in _list(status.get("replicas"))}
    names = list(processes) or ["orchestrator", "trainer", *replicas, "reward"]
    found = []
    for name in names:
        replica = replicas.pop(name, None) or replicas.pop(name.removeprefix("rollout-"), None)
        found.append(_party(name, processes.get(name, ""), status, replica))
    return found + [_replica(name, "", one) for name, one in replicas.items()]


def publication_in_words(publication: Mapping[str, Any]) -> str:
    """Formats the phase of a publication, what it waits for, since when, and its deadline."""
    said = f"publishing {publication.get('version', '')}: {publication.get('phase', '')}"
    if publication.get("waiting_for"):
        said += f" waits for {publication['waiting_for']}"
    if publication.get("seconds") is not None:
        said += f", {publication['seconds']:.1f} s"
        said += f" of {publication['deadline_s']:g} s" if publication.get("deadline_s") else ""
    return said


def evaluation_in_words(status: Mapping[str, Any], now: float) -> str:
    """Formats what the current evaluation waits for; empty without one."""
    wait = _wait(status.get("evaluating"), status.get("evaluating_since"), status.get("evaluating_until"))
    return Party(who="", **wait).in_words(now) if wait["waits_for"] else ""


def refusals_in_words(status: Mapping[str, Any]) -> list[str]:
    """Lists replicas to which the trainer no longer opens a collective group, with the reason."""
    replicas = map(_dict, _list(status.get("replicas")))
    return [f"{one.get('id')} gets weights over the disk: {one['refused']}" for one in replicas if one.get("refused")]


def _party(name: str, process: str, status: Mapping[str, Any], replica: Mapping[str, Any] | None) -> Party:
    if process == MonitorState.ENDED or not status:
        return Party(who=name, process=process)
    if name == "trainer":
        return _trainer(name, process, status)
    if name == "orchestrator":
        return _orchestrator(name, process, status)
    if name.startswith("reward"):
        return _reward(name, process, _dict(_dict(status.get("streams")).get("rollouts")))
    return _replica(name, process, replica) if replica else Party(who=name, process=process)


def _trainer(name: str, process: str, status: Mapping[str, Any]) -> Party:
    one = _dict(status.get("trainer"))
    what = str(one.get("waiting_for") or "")
    wait = _wait(what, one.get("waiting_since"), one.get("waiting_until"))
    if what.startswith("a batch"):
        wait["source"] = "reward" if _backlog(status) else "rollout"
    doing = "" if wait["waits_for"] or one.get("state") != "alive" else f"step {int(status.get('step') or 0) + 1}"
    version = str(status.get("version", ""))
    return Party(who=name, process=process, state=str(one.get("state", "")), version=version, doing=doing, **wait)


def _orchestrator(name: str, process: str, status: Mapping[str, Any]) -> Party:
    publication = _dict(status.get("publication"))
    if publication.get("waiting_for"):
        since = publication.get("since")
        until = since + publication["deadline_s"] if since and publication.get("deadline_s") else None
        what = f"{publication['waiting_for']} ({publication.get('phase')} of {publication.get('version')})"
        wait = _wait(what, since, until)
    elif status.get("waiting_for"):
        wait = _wait(status["waiting_for"], status.get("waiting_since"), status.get("waiting_until"))
    else:
        wait = _wait(status.get("evaluating"), status.get("evaluating_since"), status.get("evaluating_until"))
    state = str(status.get("state", ""))
    return Party(who=name, process=process, state=state, doing=_credit(status), **wait)


def _credit(status: Mapping[str, Any]) -> str:
    credit, groups = _dict(status.get("credit")), _dict(status.get("groups"))
    dropped = _dict(groups.get("dropped"))
    text = f"credit {credit.get('issued', 0)}/{credit.get('limit', 0)}, groups trained {groups.get('trained', 0)}"
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        text += f", dropped {sum(dropped.values())} ({reasons})"
    return text


def _reward(name: str, process: str, stream: Mapping[str, Any]) -> Party:
    if not stream:
        return Party(who=name, process=process)
    pending, undelivered = stream.get("pending", 0), stream.get("undelivered", 0)
    if not pending and not undelivered:
        return Party(who=name, process=process, waits_for="rollouts", source="rollout")
    return Party(who=name, process=process, doing=f"{pending} groups at work, {undelivered} wait")


def _backlog(status: Mapping[str, Any]) -> bool:
    """Whether there are generated groups that no reward replica has begun to score."""
    return bool(_dict(_dict(status.get("streams")).get("rollouts")).get("undelivered"))


_UNPROVEN = {
    "compared": "weights compared with other replicas, not proven",
    "canary": "weights held against the canary alone, not proven",
}


def _replica(name: str, process: str, one: Mapping[str, Any]) -> Party:
    common: dict[str, Any] = {
        "who": name,
        "process": process,
        "state": str(one.get("state", "")),
        "version": str(one.get("version", "")),
    }
    if one.get("publication"):
        since, until = one.get("publication_since"), one.get("publication_until")
        return Party(**common, **_wait(one["publication"], since, until))
    wait = _wait(one.get("waiting_for"), one.get("waiting_since"), one.get("waiting_until"))
    if wait["waits_for"]:
        wait["source"] = "orchestrator" if wait["waits_for"] == "prompts" else "trainer"
    speed = one.get("tokens_per_second")
    speed_text = f"{speed:.0f}" if isinstance(speed, int | float) else "-"
    doing = "" if wait["waits_for"] else f"{one.get('in_flight_rollouts', 0)} in flight, {speed_text} tokens/s"
    doing = ", ".join(filter(None, [doing, *_weights(one)]))
    return Party(**common, doing=doing, **wait)


def _weights(one: Mapping[str, Any]) -> list[str]:
    """Reports degraded weights transfer: the fallback route of the next ones, and how the last were proven."""
    said = []
    if one.get("route") and one.get("route_reason"):
        way = "from disk" if one["route"] == "disk" else f"over {one['route']}"
        said.append(f"weights {way} ({one['route_reason']})")
    if one.get("proof") in _UNPROVEN:
        said += [_UNPROVEN[one["proof"]], str(one.get("proof_note") or "")]
    return said


def _wait(what: Any, since: Any, until: Any) -> dict[str, Any]:
    if not what:
        return {"waits_for": "", "since": None, "until": None}
    return {"waits_for": str(what), "since": _time(since), "until": _time(until)}


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
