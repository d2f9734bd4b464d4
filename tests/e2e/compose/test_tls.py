"""deploy/compose/tls.yml on a real Docker engine: tokens, TLS, and who may read and write what. In this order."""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headrace.wire.access.certificates import SECRET
from headrace.wire.access.roles import Role
from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.inside import BROKER_WAYS, GRPC_WAYS, LIST, TRY, WRITABLE
from tests.e2e.compose.project import Project, docker, service_of
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
BUILD_S, UP_S, STEP_S = 1200, 600, 300
RUN = "--demo --sft.steps 3 --run.max-steps 5000 --batch.groups 8 --eval.every 0 --trainer.checkpoint-every 1"
SERVICES = {"orchestrator-cpu", "rollout-cpu", "reward", "trainer-cpu"}
PORTS = ("orchestrator:7000", "rollout:7000", "trainer:7000", "reward:7000")
ASK = """
import asyncio, json, pathlib, sys
import grpc
from headrace.wire.v1 import rollout_pb2 as pb, rollout_pb2_grpc as rpc
folder, *names = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
ca, chain, key = (folder.joinpath(name).read_bytes() for name in names)
async def ask(token):
    options = (('grpc.ssl_target_name_override', 'rollout.headrace.internal'),)
    credentials = grpc.ssl_channel_credentials(ca, key, chain)
    async with grpc.aio.secure_channel('rollout:7000', credentials, options) as channel:
        metadata = (('authorization', 'Bearer ' + token),) if token else ()
        try:
            await rpc.RolloutServiceStub(channel).GetReplica(pb.GetReplicaRequest(), timeout=20, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return 'OK'
async def main():
    print(json.dumps([await ask(token) for token in sys.argv[5:]]))
asyncio.run(main())
"""
"""What a replica is, with a certificate of this folder and each of some tokens."""


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    need_engine()
    files = "docker-compose.yml:deploy/compose/tls.yml"
    variables = {**engine_images(), "COMPOSE_FILE": files, "RUN_ARGS_CPU": RUN}
    made = Project(f"headrace-tls-{os.getpid()}", "cpu", variables)
    made.compose("build", seconds=BUILD_S)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


@pytest.fixture(scope="module")
def run(project: Project) -> Project:
    """Up, and trained a little."""
    project.compose("up", "--detach", seconds=UP_S)
    wait_for_step(project, 3)
    return project


def wait_for_step(project: Project, wanted: int) -> None:
    until(lambda: step(project) >= wanted, f"step {wanted}", seconds=STEP_S, detail=project.logs, every_s=1.0)


def step(project: Project) -> int:
    return int(project.status().get("step", 0))


def stopped_at(project: Project) -> int:
    """Stops the trainer; the step that it has reached."""
    project.compose("stop", "trainer-cpu", seconds=180)
    return step(project)


def found(project: Project, service: str, code: str, *arguments: str) -> list[str]:
    """What code prints in a service's container, with its own user and groups."""
    strings: list[str] = json.loads(project.python(service, code, *arguments))
    return strings


def read(project: Project, service: str, path: str) -> str:
    return docker("exec", project.of(service)[0]["Id"], "cat", path).strip()


def listed(project: Project, service: str, folder: str) -> set[str]:
    return {path.rpartition("/")[2] for path in found(project, service, LIST, folder)}


def test_a_tls_run_trains_and_reports_only_weights_as_clear_text(run: Project) -> None:
    told = run.attempt("logs", "--no-log-prefix", "--no-color").stdout
    assert '"not_encrypted"' not in told
    # What `prepare` says; Compose begins a line with a control sequence.
    (exposed,) = set(re.findall(r"^(?:\x1b\[\d*[A-Z])?(.*encrypted.*: use .*)$", told, re.M))
    assert exposed.startswith("collective traffic (weights to the replicas) is neither")


def test_every_container_is_healthy_and_prometheus_scrapes_every_target(run: Project) -> None:
    def ill() -> list[str]:
        return [service_of(one) for one in run.containers() if one["State"]["Health"]["Status"] != "healthy"]

    until(lambda: not ill(), "all to be healthy", seconds=120, detail=lambda: f"{ill()}{run.logs()}", every_s=1.0)
    assert {service_of(one) for one in run.containers()} == SERVICES | {"valkey", "prometheus"}

    def targets() -> set[str]:
        (active,) = run.ask_prometheus("targets?state=active")
        return {one["labels"].get("service", "") for one in active["activeTargets"] if one["health"] == "up"}

    wanted = {"orchestrator", "reward", "rollout", "trainer", "prometheus"}
    until(lambda: targets() >= wanted, "all targets to be up", seconds=90, detail=run.logs, every_s=1.0)


def test_a_container_holds_only_the_secrets_of_its_own_role(run: Project) -> None:
    given = []
    for service in SERVICES:
        role = service.removesuffix("-cpu")
        assert listed(run, service, "/run/tokens") == {"accepted.json", role, *SECRET}, service
        given += [read(run, service, f"/run/tokens/{name}") for name in (role, "tls.key")]
        accepted = json.loads(read(run, service, "/run/tokens/accepted.json"))
        assert set(accepted) == set(Role)
    assert len(set(given)) == len(given) == 2 * len(SERVICES)
    assert {"operator", "viewer", "annotator"} < listed(run, "orchestrator-cpu", "/run/user-tokens")
    password = read(run, "valkey", "/run/broker/password")
    for one in run.containers(all_of_them=True):
        shown = json.dumps([one["Config"]["Env"], one["Args"], one["Config"]["Cmd"], one["Config"]["Entrypoint"]])
        assert not any(secret in shown for secret in (*given, password)), service_of(one)
        volumes = {mount["Name"].partition("_")[2] for mount in one["Mounts"] if mount["Type"] == "volume"}
        assert ("vault" in volumes) == (service_of(one) == "setup")
    # The broker's own files, which the containers of code of others cannot read.
    own = [("read", f"/run/broker/{name}") for name in ("password", "valkey.conf", "tls.key")]
    assert found(run, "reward", TRY, json.dumps(own)) == ["Permission denied"] * len(own)
    assert not [path for path in found(run, "trainer-cpu", LIST, "/runs/demo/run") if "tokens" in path]


def test_grpc_refuses_clear_text_and_callers_without_a_certificate(run: Project) -> None:
    answers = json.loads(run.python("reward", GRPC_WAYS, "/run/tokens", *PORTS))
    assert answers == [["UNAVAILABLE", "UNAVAILABLE", "UNAUTHENTICATED"]] * len(PORTS)


def test_a_token_works_only_with_the_certificate_of_its_role(run: Project) -> None:
    viewer, own = read(run, "orchestrator-cpu", "/run/user-tokens/viewer"), read(run, "reward", "/run/tokens/reward")
    answers = found(run, "reward", ASK, "/run/tokens", *SECRET, "", own, viewer)
    assert answers == ["UNAUTHENTICATED", "PERMISSION_DENIED", "PERMISSION_DENIED"]
    words = ("/run/user-tokens", "ca.pem", "viewer.pem", "viewer-key.pem", viewer)
    assert found(run, "orchestrator-cpu", ASK, *words) == ["OK"]


def test_the_broker_rejects_clear_text_and_anonymous_clients(run: Project) -> None:
    clear, anonymous, ping = found(run, "reward", BROKER_WAYS, "/run/broker/ca.crt", "/run/broker/url")
    assert "PONG" not in clear and anonymous.startswith("-NOAUTH") and ping == "True"


def test_the_reward_service_can_write_only_its_own_event_logs(run: Project) -> None:
    own = "/runs/demo/events/reward"
    writable = found(run, "reward", WRITABLE)
    (log,) = [path for path in writable if path != own]
    assert writable == [own, log] and log.startswith(f"{own}/reward-")
    acts = [
        *(("create", f"/runs{path}") for path in ("", "/demo", "/demo/journal", "/demo/checkpoints", "/demo/events")),
        ("create", "/runs/demo/config"),
        *(("rename", f"/runs/{path}") for path in ("demo", "demo/journal", "demo/checkpoints", "demo/events/reward")),
        *(("append", path) for path in files_of_others(run)),
        *(("chmod", f"/runs/{path}") for path in ("demo", "demo/events", "demo/events/reward")),
    ]
    refused = found(run, "reward", TRY, json.dumps(acts))
    assert len(acts) > 16 and set(refused) <= {"Permission denied", "Operation not permitted"}, refused
    assert found(run, "reward", TRY, json.dumps([("create", own)])) == [""]
    needed = [f"/runs/demo/{path}" for path in ("config/reward.json", "prompts.parquet", "demo/model/config.json")]
    assert found(run, "reward", TRY, json.dumps([("read", path) for path in needed])) == ["", "", ""]
    code = "import json, os; s = os.stat('/runs/demo'); print(json.dumps([oct(s.st_mode & 0o777), str(s.st_gid)]))"
    assert found(run, "trainer-cpu", code) == ["0o750", "10001"]


def files_of_others(run: Project) -> list[str]:
    """A journal's segment, a checkpoint's file, the settings, and event logs of two services."""
    paths = found(run, "trainer-cpu", LIST, "/runs/demo")
    wanted = ("/journal/segment-", "/checkpoints/step-", "/config/trainer.json", "/events/trainer-", "/events/orch")
    named = [path for path in reversed(paths) if "." in path.rpartition("/")[2]]
    files = [next(path for path in named if part in path) for part in wanted]
    assert found(run, "trainer-cpu", TRY, json.dumps([("append", path) for path in files])) == [""] * len(files)
    return files


def test_an_operator_action_needs_the_token_from_the_documented_command(run: Project) -> None:
    url = f"http://127.0.0.1:{run.port}"

    def act(token: str) -> int:
        headers = {"Content-Type": "application/json", "Origin": url}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{url}/api/actions/resume", b"{}", headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert act("") == act("x" * 64) == 401
    # The container knows where it is.
    words = ("exec", "-T", "orchestrator-cpu", "headrace", "pause", "--url", "http://127.0.0.1:8080")
    assert "paused" in run.compose(*words)
    assert act(read(run, "orchestrator-cpu", "/run/user-tokens/operator")) == 200


def test_a_second_up_keeps_secrets_and_a_run_continues_with_new_ones(run: Project) -> None:
    """Removed: reward's token, the broker's password and the authority."""
    places = ("/run/tokens/reward", "/run/tokens/ca.crt", "/run/tokens/tls.key", "/run/broker/url")
    before = [read(run, "reward", place) for place in places]
    kept = read(run, "rollout-cpu", "/run/tokens/rollout")
    run.compose("up", "--detach", seconds=UP_S)
    assert [read(run, "reward", place) for place in places] == before
    reached = stopped_at(run)
    once = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "rm", "setup", "-rf")
    run.compose(*once, "/state/vault/certs", "/state/broker/password", "/state/tokens/reward/reward")
    run.compose("up", "--detach", "--force-recreate", seconds=UP_S)
    wait_for_step(run, reached + 2)
    assert not {read(run, "reward", place) for place in places} & set(before)
    assert read(run, "rollout-cpu", "/run/tokens/rollout") == kept


def test_check_passes_with_event_logs_in_both_places(run: Project) -> None:
    """While it is paused: of a step that is being written not all files know yet."""
    words = ("exec", "-T", "orchestrator-cpu", "headrace")
    run.compose(*words, "pause", "--url", "http://127.0.0.1:8080")

    def said() -> str:
        return run.attempt(*words, "check", "/runs/demo").stdout

    until(lambda: said().startswith("in order"), "a run in order", seconds=60, detail=said, every_s=1.0)


def test_down_removes_all_secrets(run: Project) -> None:
    run.compose("--profile", "*", "down", "--volumes", "--timeout", "20", seconds=180)
    assert run.left() == {}
