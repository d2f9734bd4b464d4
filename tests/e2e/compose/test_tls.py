"""deploy/compose/tls.yml on a real Docker engine: trains over TLS, and refuses callers without. In this order."""

import json
import os
import re
from collections.abc import Iterator

import pytest

from headrace.operate.role_secrets import ADMIN
from headrace.wire.access.certificates import SECRET
from headrace.wire.access.roles import Role
from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.inside import BROKER_WAYS, GRPC_WAYS, LIST
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
from headrace.wire.v1 import orchestrator_pb2 as pb, orchestrator_pb2_grpc as rpc
folder, *names = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
ca, chain, key = (folder.joinpath(name).read_bytes() for name in names)
async def main():
    options = (('grpc.ssl_target_name_override', 'orchestrator.headrace.internal'),)
    credentials = grpc.ssl_channel_credentials(ca, key, chain)
    async with grpc.aio.secure_channel('orchestrator:7000', credentials, options) as channel:
        metadata = (('authorization', 'Bearer ' + sys.argv[5]),)
        try:
            await rpc.OrchestratorServiceStub(channel).GetStatus(pb.GetStatusRequest(), timeout=20, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return 'OK'
print(json.dumps(asyncio.run(main())))
"""
"""The status, with a certificate of this folder and a token."""


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
    until(
        lambda: int(project.status().get("step", 0)) >= wanted,
        f"step {wanted}",
        seconds=STEP_S,
        detail=project.logs,
        every_s=1.0,
    )


def role_of(service: str) -> Role:
    return Role(service.removesuffix("-cpu"))


def read(project: Project, service: str, path: str) -> str:
    return docker("exec", project.of(service)[0]["Id"], "cat", path)


def listed(project: Project, service: str, folder: str) -> set[str]:
    return {path.rpartition("/")[2] for path in json.loads(project.python(service, LIST, folder))}


def admin(project: Project, *words: str) -> str:
    """A command of the broker's administrator, whose password its own container has."""
    tool = (
        f'REDISCLI_AUTH="$(cat /run/broker/password)" valkey-cli --tls --cacert /run/broker/ca.crt --user {ADMIN} "$@"'
    )
    return docker("exec", project.of("valkey")[0]["Id"], "sh", "-c", tool, "cli", *words)


def test_it_trains_and_all_that_it_says_of_clear_text_are_the_weights(run: Project) -> None:
    told = run.attempt("logs", "--no-log-prefix", "--no-color").stdout
    assert '"not_encrypted"' not in told
    # What `prepare` says; Compose begins a line with a control sequence.
    (exposed,) = set(re.findall(r"^(?:\x1b\[\d*[A-Z])?(.*encrypted.*: use .*)$", told, re.M))
    assert exposed.startswith("collective traffic (weights to the replicas) is neither")


def test_the_brokers_users_may_do_all_that_their_services_do(run: Project) -> None:
    assert admin(run, "ACL", "LOG").strip() == ""
    users = re.findall(r" user=(\S+)", admin(run, "CLIENT", "LIST"))
    assert set(users) == {role_of(service) for service in SERVICES} | {ADMIN}


def test_every_container_is_well_and_prometheus_sees_every_target(run: Project) -> None:
    def ill() -> list[str]:
        return [service_of(one) for one in run.containers() if one["State"]["Health"]["Status"] != "healthy"]

    until(lambda: not ill(), "all to be healthy", seconds=120, detail=lambda: f"{ill()}{run.logs()}", every_s=1.0)
    assert {service_of(one) for one in run.containers()} == SERVICES | {"valkey", "prometheus"}

    def targets() -> set[str]:
        (found,) = run.ask_prometheus("targets?state=active")
        return {one["labels"].get("service", "") for one in found["activeTargets"] if one["health"] == "up"}

    wanted = {"orchestrator", "reward", "rollout", "trainer", "prometheus"}
    until(lambda: targets() >= wanted, "all targets to be up", seconds=90, detail=run.logs, every_s=1.0)


def test_a_container_has_the_secrets_of_its_own_role_and_no_other(run: Project) -> None:
    keys, passwords = {}, {}
    for service in SERVICES:
        role = role_of(service)
        assert listed(run, service, "/run/tokens") == {"accepted.json", role, *SECRET}, service
        assert listed(run, service, "/run/broker") == {"url", SECRET[0]}, service
        keys[role] = read(run, service, "/run/tokens/tls.key")
        user, _, rest = read(run, service, "/run/broker/url").removeprefix("rediss://").partition(":")
        passwords[role], _, place = rest.partition("@")
        assert (user, place.partition("/")[0]) == (role, "valkey:6379")
    assert len(set(keys.values())) == len(set(passwords.values())) == len(SERVICES)
    for one in run.containers(all_of_them=True):
        shown = json.dumps([one["Config"]["Env"], one["Args"], one["Config"]["Cmd"], one["Config"]["Entrypoint"]])
        assert not any(password in shown for password in passwords.values()), service_of(one)
        volumes = {mount["Name"].partition("_")[2] for mount in one["Mounts"] if mount["Type"] == "volume"}
        assert ("vault" in volumes) == (service_of(one) == "setup")
        assert "broker-secret" not in volumes or service_of(one) == "setup"
    broker = docker("exec", run.of("valkey")[0]["Id"], "ls", "-A", "/run/broker").split()
    assert set(broker) == {"password", "valkey.conf", "users.acl", *SECRET}


def test_grpc_refuses_clear_text_and_callers_without_a_certificate(run: Project) -> None:
    answers = json.loads(run.python("reward", GRPC_WAYS, "/run/tokens", *PORTS))
    assert answers == [["UNAVAILABLE", "UNAVAILABLE", "OK"]] * len(PORTS)


def test_a_token_opens_with_the_certificate_of_its_role_alone(run: Project) -> None:
    viewer = read(run, "orchestrator-cpu", "/run/user-tokens/viewer").strip()
    other = json.loads(run.python("reward", ASK, "/run/tokens", *SECRET, viewer))
    assert other in ("PERMISSION_DENIED", "UNAUTHENTICATED")
    words = ("/run/user-tokens", "ca.pem", "viewer.pem", "viewer-key.pem", viewer)
    assert json.loads(run.python("orchestrator-cpu", ASK, *words)) == "OK"


def test_the_broker_refuses_clear_text_and_the_anonymous_and_keeps_each_user_to_its_own(run: Project) -> None:
    clear, anonymous, ping, writes, reads = json.loads(
        run.python("reward", BROKER_WAYS, "/run/broker/ca.crt", "/run/broker/url")
    )
    assert "PONG" not in clear and "PONG" not in anonymous
    assert anonymous.startswith("-NOAUTH")
    assert ping == "True"
    assert "no permissions" in writes.lower() and "no permissions" in reads.lower()


def test_another_up_keeps_authority_and_passwords_and_with_new_ones_the_run_goes_on(run: Project) -> None:
    files = ("/run/tokens/ca.crt", "/run/tokens/tls.key", "/run/broker/url")
    before = [read(run, "reward", file) for file in files]
    run.compose("up", "--detach", seconds=UP_S)
    assert [read(run, "reward", file) for file in files] == before
    run.compose("stop", "trainer-cpu", seconds=180)
    reached = int(run.status().get("step", 0))
    once = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "rm")
    run.compose(*once, "setup", "-r", "/state/vault/certs", "/state/vault/users")
    run.compose("up", "--detach", "--force-recreate", seconds=UP_S)
    wait_for_step(run, reached + 2)
    after = [read(run, "reward", file) for file in files]
    assert not set(after) & set(before)


def test_down_takes_all_secrets_away(run: Project) -> None:
    run.compose("--profile", "*", "down", "--volumes", "--timeout", "20", seconds=180)
    assert run.left() == {}
