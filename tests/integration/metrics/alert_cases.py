"""For each alert: series on which it fires after 20 minutes, and such on which it does not. One value a minute."""

from dataclasses import dataclass, field
from typing import TypeAlias

Series: TypeAlias = dict[str, str]
"""Series -> values in promtool's notation; `run="a"` is added to each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`calm`: name of a situation -> its series; `also`: further ones in which it fires."""

    fires: Series
    calm: dict[str, Series]
    also: dict[str, Series] = field(default_factory=dict)
    minutes: int = 20


_RUNNING_NAME = 'headrace_orchestrator_run_phase{phase="running"}'
_RUNNING = {
    _RUNNING_NAME: "1x40",
    "headrace_orchestrator_paused": "0x40",
    "headrace_orchestrator_policy_version": "99x40",
    "headrace_orchestrator_max_steps": "100x40",
}
_OVER = _RUNNING | {_RUNNING_NAME: "0x40"}
_PAUSED = _RUNNING | {"headrace_orchestrator_paused": "1x40"}
_LAST = "headrace_orchestrator_last_step_timestamp_seconds"
_STUCK = {
    _LAST: "0x40",
    'headrace_orchestrator_step_interval_seconds_bucket{le="16.0"}': "0x40",
    'headrace_orchestrator_step_interval_seconds_bucket{le="32.0"}': "10x40",
    'headrace_orchestrator_step_interval_seconds_bucket{le="+Inf"}': "10x40",
}
_EVALUATION = "headrace_orchestrator_operation_until_timestamp_seconds{replica='o', operation='evaluation'}"
_CHECKPOINT = "headrace_trainer_operation_until_timestamp_seconds{replica='t', operation='checkpoint'}"
_QUIET = {
    f"{_LAST}{{replica='o'}}": "0+60x10 600x30",
    "headrace_orchestrator_step_interval_seconds_bucket{replica='o', le='32.0'}": "0x40",
    "headrace_orchestrator_step_interval_seconds_bucket{replica='o', le='64.0'}": "0+1x10 10x30",
    "headrace_orchestrator_step_interval_seconds_bucket{replica='o', le='+Inf'}": "0+1x10 10x30",
    _EVALUATION: "0x40",
    _CHECKPOINT: "0x40",
}
"""A step a minute until minute 10, then none: at minute 20 the operations alone can be the reason."""
_VERSION = "headrace_rollout_policy_version{replica='r'}"
_SERVING = "headrace_rollout_state{replica='r', state='serving'}"
_QUARANTINED = "headrace_rollout_updates_total{replica='r', outcome='quarantined'}"
_XID = "DCGM_FI_DEV_XID_ERRORS{gpu='0', instance='x'}"
_BROKER_EXPIRES = "headrace_orchestrator_broker_certificate_expires_timestamp_seconds"
_GIB = 1 << 30
_TRAINER_FREE = "headrace_trainer_run_dir_free_bytes{replica='t'}"
_ROOM = "headrace_trainer_checkpoint_room_bytes{replica='t'}"
_ORCHESTRATOR_FREE = "headrace_orchestrator_run_dir_free_bytes{replica='o'}"
_UP = "up{service='rollout', instance='x'}"


def _episodes(**ended: str) -> Series:
    return {
        f"headrace_environment_episodes_total{{replica='e', finish_reason='{reason}'}}": values
        for reason, values in ended.items()
    }


def _segments(template: str) -> Series:
    return {
        "headrace_environment_segments_total{replica='e', reason='first'}": "0+10x40",
        "headrace_environment_segments_total{replica='e', reason='template'}": template,
        "headrace_environment_turns_total{replica='e'}": "0+15x40",
    }


def _gauge(name: str, bad: str, good: str) -> Case:
    return Case(fires={name: f"{bad}x40"}, calm={"well": {name: f"{good}x40"}})


def _rise(name: str) -> Case:
    calm = {"none": {name: "0x40"}, "long ago": {name: "0x1 3x39"}}
    return Case(fires={name: "0x10 3x30"}, calm=calm)


def _steps(behind: str) -> Series:
    return {
        "headrace_trainer_policy_version{replica='t'}": "500x40",
        "headrace_trainer_checkpoint_policy_version{replica='t'}": f"{500 - int(behind)}x40",
        "headrace_trainer_checkpoint_interval_steps{replica='t'}": "100x40",
    }


def _versions(serves: str, serving: str) -> Series:
    return {
        "headrace_trainer_policy_version{replica='t'}": "10x40",
        "headrace_orchestrator_max_staleness_versions{replica='o'}": "1x40",
        _VERSION: f"{serves}x40",
        _SERVING: f"{serving}x40",
    }


def _broker(used: str, limit: str) -> Series:
    return {
        "headrace_orchestrator_broker_used_bytes{replica='o'}": f"{used}x40",
        "headrace_orchestrator_broker_limit_bytes{replica='o'}": f"{limit}x40",
    }


def _disk(*, free: int, room: int, orchestrator: int) -> Series:
    """In GiB."""
    values = {_TRAINER_FREE: free, _ROOM: room, _ORCHESTRATOR_FREE: orchestrator}
    return {name: f"{value * _GIB}x40" for name, value in values.items()}


def _replicas(alive: str, lost: str) -> Series:
    return {
        'headrace_orchestrator_replicas{state="serving"}': alive,
        "headrace_orchestrator_replicas_lost_total": lost,
    }


def _prompts(waiting: str) -> Series:
    return {'headrace_orchestrator_stream_pending_entries{stream="prompts"}': waiting}


CASES: dict[str, Case] = {
    "HeadraceNoStep": Case(
        fires=_RUNNING | _STUCK,
        calm={
            "steps go on": _RUNNING | _STUCK | {_LAST: "0+60x40"},
            "paused": _PAUSED | _STUCK,
            "paused, and resumed a minute ago": _RUNNING
            | _STUCK
            | {"headrace_orchestrator_paused": "1x17 0x20", _LAST: "0x17 1080x20"},
            "the last evaluation": _RUNNING | _STUCK | {"headrace_orchestrator_policy_version": "100x40"},
            "over": _OVER | _STUCK,
            "the first step may take half an hour": _RUNNING | {_LAST: "0x40"},
            "an evaluation has begun at minute 11": _RUNNING | _QUIET | {_EVALUATION: "0x10 1260x30"},
            "a checkpoint has begun at minute 11": _RUNNING | _QUIET | {_CHECKPOINT: "0x10 2460x30"},
            "an evaluation ended a minute ago": _RUNNING | _QUIET | {_EVALUATION: "0x10 1260x8 1140x22"},
            "a checkpoint failed a minute ago": _RUNNING | _QUIET | {_CHECKPOINT: "0x10 2460x8 1140x22"},
        },
        also={
            "nothing is under way": _RUNNING | _QUIET,
            "an evaluation is past its deadline": _RUNNING | _QUIET | {_EVALUATION: "0x10 900x30"},
            "a checkpoint is past its deadline": _RUNNING | _QUIET | {_CHECKPOINT: "0x10 900x30"},
            "a checkpoint ended long ago": _RUNNING | _QUIET | {_CHECKPOINT: "0x10 2460x2 780x27"},
            "the trainer died in a checkpoint": _RUNNING | _QUIET | {_CHECKPOINT: "0x10 2460x2 stale"},
            "the trainer's next life is stuck": _RUNNING | _QUIET | {_CHECKPOINT: "0x10 2460x2 0x27"},
        },
    ),
    "HeadraceRunFailed": _gauge('headrace_orchestrator_run_phase{phase="failed"}', "1", "0"),
    "HeadraceOrchestratorGone": Case(
        fires={_RUNNING_NAME: "1x10 stale"},
        calm={
            "it runs": {_RUNNING_NAME: "1x40"},
            "over": {_RUNNING_NAME: "1x10 0x4 stale"},
            "taken down long ago": {_RUNNING_NAME: "1x2 stale"},
        },
        minutes=35,
    ),
    "HeadraceTrainerRestarts": Case(
        fires={"headrace_orchestrator_incarnation": "1x5 2+1x35"},
        calm={
            "one life": {"headrace_orchestrator_incarnation": "1x40"},
            "two restarts": {"headrace_orchestrator_incarnation": "1x5 2x5 3x30"},
        },
    ),
    "HeadraceStepsSkipped": _rise("headrace_trainer_steps_skipped_total"),
    "HeadraceStaleTokens": _gauge("headrace_trainer_stale_tokens_share", "0.2", "0.01"),
    "HeadraceEpisodesLost": Case(
        fires=_episodes(stop="0+10x40", time="0+1x40"),
        also={"errors": _episodes(stop="0+10x40", environment_error="0+1x40")},
        calm={
            "few": _episodes(stop="0+50x40", time="0+1x40"),
            "limits are scored": _episodes(stop="0+10x40", turn_limit="0+10x40", length="0+10x40", time="0x40"),
        },
    ),
    "HeadraceSegmentsBroken": Case(
        fires=_segments("0+2x40"),
        calm={"few": _segments("0+1x20 20x20"), "the first of each episode": _segments("0x40")},
    ),
    "HeadraceLogprobGap": Case(
        fires={"headrace_trainer_logprob_gap_mean_nats": "0.2x40"},
        also={
            "no token was compared": {
                "headrace_trainer_logprob_gap_mean_nats": " ".join(["NaN"] * 40),
                "headrace_trainer_canary_gap_nats": "0.4x40",
            }
        },
        calm={
            "well": {
                "headrace_trainer_logprob_gap_mean_nats": "0.01x40",
                "headrace_trainer_canary_gap_nats": "0.1x40",
            }
        },
    ),
    "HeadraceCheckpointOld": Case(fires=_steps("400"), calm={"recent": _steps("150")}),
    "HeadraceOldestPending": Case(
        fires={'headrace_orchestrator_stream_oldest_pending_seconds{stream="prompts"}': "400x40"},
        calm={
            "young": {'headrace_orchestrator_stream_oldest_pending_seconds{stream="prompts"}': "20x40"},
            "handed back a moment ago": {
                'headrace_orchestrator_stream_oldest_pending_seconds{stream="prompts"}': "0x18 86400x1 0x20"
            },
        },
    ),
    "HeadraceDeadLetters": _rise('headrace_dead_letters_total{stream="rollouts", reason="poison"}'),
    "HeadraceBrokerFull": Case(
        fires=_broker("900", "1000"),
        calm={"half": _broker("500", "1000"), "it tells no limit": _broker("900", "0")},
    ),
    "HeadraceCertificateExpires": Case(
        fires={"headrace_certificate_expires_timestamp_seconds{replica='r'}": "200000x40"},
        calm={
            "a month": {"headrace_certificate_expires_timestamp_seconds{replica='r'}": "2592000x40"},
            "no certificates": {"headrace_certificate_expires_timestamp_seconds{replica='r'}": "0x40"},
            "renewed": {"headrace_certificate_expires_timestamp_seconds{replica='r'}": "200000x8 2592000x32"},
        },
        also={"it has expired": {"headrace_certificate_expires_timestamp_seconds{replica='r'}": "60x40"}},
    ),
    "HeadraceBrokerCertificateExpires": Case(
        fires={f"{_BROKER_EXPIRES}{{replica='o'}}": "200000x40"},
        calm={
            "a month": {f"{_BROKER_EXPIRES}{{replica='o'}}": "2592000x40"},
            "no TLS": {f"{_BROKER_EXPIRES}{{replica='o'}}": "0x40"},
            "renewed": {f"{_BROKER_EXPIRES}{{replica='o'}}": "200000x8 2592000x32"},
        },
        also={"it has expired": {f"{_BROKER_EXPIRES}{{replica='o'}}": "60x40"}},
    ),
    "HeadraceDiskFull": Case(
        fires=_disk(free=149, room=150, orchestrator=900),
        also={
            "little is left, and no checkpoint is there yet": _disk(free=1, room=0, orchestrator=900),
            "little is left where the orchestrator writes": _disk(free=900, room=150, orchestrator=1),
            "the trainer is away, its disk is the orchestrator's": {_ORCHESTRATOR_FREE: f"{_GIB}x40"},
        },
        calm={
            "enough": _disk(free=151, room=150, orchestrator=900),
            "nobody has looked yet": _disk(free=900, room=150, orchestrator=900)
            | dict.fromkeys((_TRAINER_FREE, _ORCHESTRATOR_FREE), " ".join(["NaN"] * 40)),
            "a checkpoint takes its room for a while": {
                _TRAINER_FREE: f"{160 * _GIB}x12 {70 * _GIB}x5 {160 * _GIB}x20",
                _ROOM: f"{150 * _GIB}x12 {60 * _GIB}x5 {150 * _GIB}x20",
            },
        },
        minutes=17,
    ),
    "HeadraceNoReplica": Case(
        fires=_RUNNING | _replicas("0x40", "0x40") | _prompts("8x40"),
        calm={
            "two": _RUNNING | _replicas("2x40", "0x40") | _prompts("8x40"),
            "over": _OVER | _replicas("0x40", "0x40") | _prompts("8x40"),
            "paused": _RUNNING | _replicas("0x40", "0x40") | _prompts("0x40"),
        },
    ),
    "HeadraceReplicaMissing": Case(
        fires=_replicas("2x12 1x27", "0x12 1x27"),
        calm={
            "scaled away": _replicas("2x12 1x27", "0x40"),
            "replaced": _replicas("2x12 1x1 2x25", "0x12 1x27"),
            "long ago": _replicas("2x2 1x37", "0x2 1x37"),
        },
    ),
    "HeadraceTargetDown": Case(
        fires=_RUNNING | {_UP: "0x40"},
        calm={"up": _RUNNING | {_UP: "1x40"}, "the run is over": _OVER | {_UP: "0x40"}},
    ),
    "HeadraceGpuError": Case(
        fires={_XID: "0x10 79x30"},
        also={"rows that could not be remapped": {_XID: "0x40", "DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu='1'}": "1x40"}},
        calm={
            "none": {_XID: "0x40"},
            "long ago": {_XID: "0x1 79x39"},
            "a process was killed": {_XID: "0x10 45x30"},
            "a process was stopped": {_XID: "0x10 43x30"},
            "the exporter was started again": {_XID: "79x10 0x30"},
        },
    ),
    "HeadraceVersionSpread": Case(
        fires=_versions("5", "1"),
        calm={"the one before": _versions("9", "1"), "it serves nothing": _versions("0", "0")},
    ),
    "HeadraceQuarantine": _rise(_QUARANTINED),
    "HeadracePublicationMissed": Case(
        fires={'headrace_orchestrator_publication_outcomes_total{outcome="prepare"}': "0+1x40"},
        calm={
            "all commit": {'headrace_orchestrator_publication_outcomes_total{outcome="committed"}': "0+1x40"},
            "one miss": {'headrace_orchestrator_publication_outcomes_total{outcome="prepare"}': "0x10 1x30"},
        },
    ),
    "HeadraceEventLoopLag": _gauge('headrace_event_loop_lag_seconds{replica="o"}', "5", "0.1"),
    "HeadraceScorerDown": _gauge('headrace_reward_circuit_open{scorer="judge"}', "1", "0"),
    "HeadraceAbstentions": Case(
        fires={"headrace_reward_abstained_total": "0+10x40", "headrace_reward_rollouts_total": "0+90x40"},
        calm={
            "few": {"headrace_reward_abstained_total": "0+1x40", "headrace_reward_rollouts_total": "0+99x40"},
            "nothing to score": {"headrace_reward_abstained_total": "0x40", "headrace_reward_rollouts_total": "0x40"},
        },
    ),
    "HeadraceJudgeFooled": _rise('headrace_reward_canary_alarms_total{judge="j"}'),
}
