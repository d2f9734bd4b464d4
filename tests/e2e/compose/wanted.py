"""What each service of each profile must be in the end, written down by hand; see `resolved.facts`."""

import shlex
from collections.abc import Iterable
from typing import Any

Facts = dict[str, Any]

_USER = "10001:10001"
_GIB = 1 << 30
_ARGS = {"PYTHON_IMAGE", "VERSION"}
_RUN = {"HEADRACE_INSTANCE", "HEADRACE_ANNOUNCE", "HEADRACE_BROKER__URL_FILE", "HEADRACE_ORCHESTRATOR_ADDRESS"}
_RUN |= {"HEADRACE_RUN_DIR", "HEADRACE_TOKENS", "HF_HOME"}
_PREPARED = ("/config", "/models", "/run/broker", "/runs")
_MOUNTS = (*_PREPARED, "/run/tokens")
_CONFINED = ["10002", "10003"]
"""The groups of reward and environment, each of which is a user of its own."""
_DONE, _WELL = "service_completed_successfully", "service_healthy"
_TRAINER_GPU, _ROLLOUT_GPU = [("nvidia", "0", "gpu")], [("nvidia", "1", "gpu")]


def _image(name: str, target: str, tag: str, *args: str) -> Facts:
    """One that is built from deploy/docker/NAME.Dockerfile."""
    build = (f"deploy/docker/{name}.Dockerfile", target, frozenset(_ARGS | set(args)))
    return {"image": f"headrace-{name}:0.1.0{tag}", "build": build}


def _service(image: Facts, *, memory: int, start: int, mounts: Iterable[str], **rest: Any) -> Facts:
    """With what a service has where nothing else is said."""
    usual: Facts = {
        "gpus": [],
        "entrypoint": [],
        "command": [],
        "user": _USER,
        "groups": [],
        "tmpfs": ["/tmp:size=1g"],
        "shm": 0,
        "ulimits": {},
        "restart": "unless-stopped",
        "grace": 30,
        "environment": frozenset(),
        "after": {},
    }
    return {**usual, **image, "memory": memory * _GIB, "start": start, "mounts": sorted(mounts), **rest}


def _once(image: Facts, *, memory: int, mounts: Iterable[str], **rest: Any) -> Facts:
    """It ends before the others start."""
    return _service(image, memory=memory, start=0, mounts=mounts, restart="no", grace=0, **rest)


def _config(name: str) -> list[str]:
    return ["--config", f"/runs/demo/config/{name}.json"]


_ORCHESTRATOR = _image("orchestrator", "cpu", "")
_REWARD = _image("reward", "cpu", "")
_ENVIRONMENT = _image("environment", "cpu", "")
_TRAINER_CPU = _image("trainer", "cpu", "-cpu", "TORCH_INDEX", "EXTRAS")
_TRAINER_GPU_IMAGE = _image("trainer", "gpu", "-gpu", "ENGINE_IMAGE", "EXTRAS")
_ROLLOUT_CPU = _image("rollout", "cpu", "-cpu", "TORCH_INDEX")
_ROLLOUT_GPU_IMAGE = _image("rollout", "gpu", "-gpu", "ENGINE_IMAGE")
_GPU: Facts = {
    "tmpfs": ["/tmp:exec,size=16g"],
    "shm": 16 * _GIB,
    "ulimits": {"memlock": -1, "stack": 67108864},
    "environment": frozenset(_RUN | {"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}),
}
_PREPARE = ["headrace", "prepare", "--run-dir", "/runs/demo"]
_PREPARE += ["--event-group", "reward=10002", "--event-group", "environment=10003"]
_TAKES_GPUS = shlex.split("python -P gpus.py --count 1 --locks /runs/.gpus -- python -P -m headrace.services.rollout")
_SETUP = _once(
    _ORCHESTRATOR,
    memory=0,
    mounts=(
        *("/runs", "/config", "/models", "/deploy/prometheus", "/deploy/grafana"),
        *(f"/state/{name}" for name in ("broker", "hub", "grafana", "grafana-data", "prometheus-data")),
        *(f"/state/tokens/{name}" for name in ("trainer", "rollout", "reward", "environment", "orchestrator", "user")),
    ),
    groups=_CONFINED,
    entrypoint=["python", "-I", "setup.py"],
    command=["/state/broker", "/state/grafana", "/state/tokens", "reward=10002", "environment=10003"],
    environment=frozenset({"CONFIG", "MODELS", "RUNS", "RUN"}),
)
_SETUP["memory"] = 256 << 20


def _pinned(image: str) -> Facts:
    return {"image": image, "build": (None, None, frozenset())}


_VALKEY = _service(
    _pinned("valkey/valkey:8.1.4"),
    memory=4,
    start=30,
    mounts=["/run/broker"],
    grace=10,
    tmpfs=["/tmp:size=64m", "/data:size=64m"],
    command=["valkey-server", "/run/broker/valkey.conf", "--maxmemory", "3gb"],
    after={"setup": _DONE},
)
_PROMETHEUS = _service(
    _pinned("prom/prometheus:v3.5.0"),
    memory=2,
    start=60,
    mounts=["/etc/prometheus", "/data"],
    tmpfs=["/tmp:size=64m", "/prometheus:size=1m"],
    command=[
        "--config.file=/etc/prometheus/prometheus.yml",
        "--storage.tsdb.path=/data",
        "--storage.tsdb.retention.time=30d",
        "--storage.tsdb.retention.size=8GB",
    ],
    after={"setup": _DONE},
)
_GRAFANA = _service(
    _pinned("grafana/grafana:12.2.0"),
    memory=1,
    start=60,
    mounts=["/etc/grafana/provisioning", "/etc/grafana/dashboards", "/run/grafana", "/data"],
    tmpfs=["/tmp:size=256m"],
    environment=frozenset(
        {
            "GF_SECURITY_ADMIN_PASSWORD__FILE",
            "GF_PATHS_DATA",
            "GF_ANALYTICS_REPORTING_ENABLED",
            "GF_ANALYTICS_CHECK_FOR_UPDATES",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
            "GF_PLUGINS_PREINSTALL_DISABLED",
            *("NO_PROXY", "no_proxy"),
        }
    ),
    after={"setup": _DONE, "prometheus": _WELL},
)


def _common(memory: int, start: int, name: str, image: Facts, **rest: Any) -> Facts:
    """A service of headrace's own, without a GPU."""
    own = {"command": _config(name), "environment": frozenset(_RUN), "mounts": _MOUNTS, **rest}
    return _service(image, memory=memory, start=start, **own)


def _confined(user: str, *of: Any, **rest: Any) -> Facts:
    """One that runs code of others: a user of its own, who is in the group of the runs."""
    return _common(*of, user=f"{user}:{user}", groups=["10001"], **rest)


def _orchestrator(**rest: Any) -> Facts:
    environment = frozenset(_RUN | {"HEADRACE_OPERATOR_TOKEN_FILE"})
    mounts = (*_MOUNTS, "/run/user-tokens")
    return _common(4, 60, "orchestrator", _ORCHESTRATOR, environment=environment, mounts=mounts, **rest)


_REWARD_AFTER = {"valkey": _WELL, "orchestrator": _WELL, "orchestrator-cpu": _WELL}
_SHARED = {
    "setup": _SETUP,
    "valkey": _VALKEY,
    "reward": _confined("10002", 8, 60, "reward", _REWARD, after=_REWARD_AFTER),
    "prometheus": _PROMETHEUS,
}
CPU: dict[str, Facts] = {
    **_SHARED,
    "prepare-cpu": _once(
        _TRAINER_CPU,
        memory=8,
        mounts=(*_PREPARED, "/run/hub"),
        groups=_CONFINED,
        entrypoint=_PREPARE,
        command=["--demo"],
        environment=frozenset(_RUN | {"HF_TOKEN_PATH"}),
        after={"setup": _DONE, "valkey": _WELL},
    ),
    "orchestrator-cpu": _orchestrator(after={"valkey": _WELL, "prepare-cpu": _DONE}),
    "rollout-cpu": _common(8, 120, "rollout", _ROLLOUT_CPU, after={"orchestrator-cpu": _WELL}),
    "trainer-cpu": _common(
        8, 300, "trainer", _TRAINER_CPU, grace=120, restart="on-failure:10", after={"orchestrator-cpu": _WELL}
    ),
}
_EXPORTER = _service(
    _pinned("nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"),
    memory=1,
    start=60,
    mounts=[],
    grace=10,
    gpus=[("nvidia", "all", "gpu")],
    tmpfs=["/tmp:size=64m"],
    command=["--collect-interval", "5000"],
)
_GPU_MOUNTS = (*_MOUNTS, "/cache")
GPU: dict[str, Facts] = {
    **_SHARED,
    "prepare": _once(
        _TRAINER_GPU_IMAGE,
        memory=256,
        mounts=(*_PREPARED, "/cache", "/run/hub"),
        groups=_CONFINED,
        gpus=_TRAINER_GPU,
        entrypoint=_PREPARE,
        command=shlex.split("--demo --run.device cuda --rollout.engine sglang --rollout.sglang.venv /opt/engine"),
        environment=frozenset(_RUN | {"HF_TOKEN_PATH"}),
        after={"setup": _DONE, "valkey": _WELL},
    ),
    "orchestrator": _orchestrator(after={"valkey": _WELL, "prepare": _DONE, "prepare-one-gpu": _DONE}),
    "rollout": _service(
        _ROLLOUT_GPU_IMAGE,
        memory=128,
        start=1200,
        mounts=_GPU_MOUNTS,
        gpus=_ROLLOUT_GPU,
        entrypoint=_TAKES_GPUS,
        command=_config("rollout"),
        after={"orchestrator": _WELL},
        **_GPU,
    ),
    "trainer": _service(
        _TRAINER_GPU_IMAGE,
        memory=256,
        start=1200,
        mounts=_GPU_MOUNTS,
        gpus=_TRAINER_GPU,
        command=_config("trainer"),
        restart="on-failure:10",
        grace=600,
        after={"orchestrator": _WELL},
        **_GPU,
    ),
    "dcgm-exporter": _EXPORTER,
}
_TURNS = shlex.split("--rollout.gpu-sharing turns --rollout.replicas 1 --run.max-staleness 0")
ONE_GPU: dict[str, Facts] = {
    **{name: one for name, one in GPU.items() if name not in ("prepare", "rollout")},
    "prepare-one-gpu": {**GPU["prepare"], "command": [*GPU["prepare"]["command"], *_TURNS]},
    "rollout-one-gpu": {**GPU["rollout"], "gpus": _TRAINER_GPU},
}
OBSERVABILITY: dict[str, Facts] = {"setup": _SETUP, "prometheus": _PROMETHEUS, "grafana": _GRAFANA}
ENVIRONMENT = {"environment": _confined("10003", 8, 120, "environment", _ENVIRONMENT, after=_REWARD_AFTER)}
PROFILES = {"cpu": CPU, "gpu": GPU, "one-gpu": ONE_GPU, "observability": OBSERVABILITY, "environment": ENVIRONMENT}


def wanted(*profiles: str) -> dict[str, Facts]:
    """Services of profiles that are started together."""
    return {name: one for profile in profiles for name, one in PROFILES[profile].items()}
