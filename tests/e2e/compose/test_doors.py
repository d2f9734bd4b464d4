"""Who may read and write what, asked inside running containers: tokens, and the run directory. In this order."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headrace.wire.access.roles import Role
from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.inside import LIST, TRY, WRITABLE
from tests.e2e.compose.project import Project, docker, service_of
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
BUILD_S, UP_S, STEP_S = 1200, 600, 300
RUN = "--demo --sft.steps 3 --run.max-steps 5000 --batch.groups 8 --eval.every 0 --trainer.checkpoint-every 1"
HEADRACE = {"orchestrator-cpu", "rollout-cpu", "reward", "trainer-cpu"}
ASK = """
import asyncio, json, pathlib, sys
import grpc
from headrace.wire.v1 import orchestrator_pb2 as pb, orchestrator_pb2_grpc as rpc
async def ask(token):
    async with grpc.aio.insecure_channel('orchestrator:7000') as channel:
        stub = rpc.OrchestratorServiceStub(channel)
        metadata = (('authorization', 'Bearer ' + token),) if token else ()
        try:
            await stub.GetStatus(pb.GetStatusRequest(), timeout=20, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return 'OK'
async def main():
    own = pathlib.Path('/run/tokens', sys.argv[1]).read_text().strip()
    print(json.dumps([await ask(''), await ask(own), await ask(sys.argv[2])]))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    need_engine()
    made = Project(f"headrace-doors-{os.getpid()}", "cpu", {**engine_images(), "RUN_ARGS_CPU": RUN})
    made.compose("build", seconds=BUILD_S)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5", seconds=180)


@pytest.fixture(scope="module")
def run(project: Project) -> Project:
    """Up, with a first checkpoint."""
    project.compose("up", "--detach", seconds=UP_S)
    wait_for_step(project, 2)
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


def token_of(project: Project, service: str, path: str) -> str:
    return docker("exec", project.of(service)[0]["Id"], "cat", path).strip()


def test_a_container_has_the_token_of_its_own_role_and_no_other(run: Project) -> None:
    tokens = {}
    for name in HEADRACE:
        role = name.removesuffix("-cpu")
        files = found(run, name, LIST, "/run/tokens")
        assert files == ["/run/tokens/accepted.json", f"/run/tokens/{role}"], name
        tokens[role] = token_of(run, name, files[1])
        accepted = json.loads(token_of(run, name, files[0]))
        assert set(accepted) == set(Role)
    assert len(set(tokens.values())) == len(HEADRACE)
    user = found(run, "orchestrator-cpu", LIST, "/run/user-tokens")
    assert user == [f"/run/user-tokens/{name}" for name in sorted(("accepted.json", "annotator", "operator", "viewer"))]
    for one in run.containers():
        shown = json.dumps([one["Config"]["Env"], one["Args"], one["Config"]["Cmd"], one["Config"]["Entrypoint"]])
        assert not any(token in shown for token in tokens.values()), service_of(one)
    assert found(run, "trainer-cpu", LIST, "/runs/demo/run") != [] and not [
        path for path in found(run, "trainer-cpu", LIST, "/runs/demo/run") if "tokens" in path
    ]


def test_rewards_token_opens_what_reward_may_call_and_no_more(run: Project) -> None:
    viewer = token_of(run, "orchestrator-cpu", "/run/user-tokens/viewer")
    answers = found(run, "reward", ASK, "reward", viewer)
    assert answers == ["UNAUTHENTICATED", "PERMISSION_DENIED", "OK"]


def test_reward_may_write_to_its_own_event_logs_and_to_nothing_else_of_any_run(run: Project) -> None:
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


def files_of_others(run: Project) -> list[str]:
    """A journal's segment, a checkpoint's file, the settings, and event logs of two services."""
    paths = found(run, "trainer-cpu", LIST, "/runs/demo")
    wanted = ("/journal/segment-", "/checkpoints/step-", "/config/trainer.json", "/events/trainer-", "/events/orch")
    named = [path for path in reversed(paths) if "." in path.rpartition("/")[2]]
    files = [next(path for path in named if part in path) for part in wanted]
    assert found(run, "trainer-cpu", TRY, json.dumps([("append", path) for path in files])) == [""] * len(files)
    return files


def test_reward_reads_what_it_needs_of_the_run(run: Project) -> None:
    paths = [f"/runs/demo/{path}" for path in ("config/reward.json", "prompts.parquet", "demo/model/config.json")]
    assert found(run, "reward", TRY, json.dumps([("read", path) for path in paths])) == ["", "", ""]


def test_the_run_is_its_groups_alone(run: Project) -> None:
    code = "import json, os; s = os.stat('/runs/demo'); print(json.dumps([oct(s.st_mode & 0o777), str(s.st_gid)]))"
    assert found(run, "trainer-cpu", code) == ["0o750", "10001"]


def test_an_operators_act_needs_the_token_that_the_page_says_how_to_read(run: Project) -> None:
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
    assert act(token_of(run, "orchestrator-cpu", "/run/user-tokens/operator")) == 200


def test_the_run_is_proven_with_the_logs_in_both_places(run: Project) -> None:
    wait_for_step(run, step(run) + 2)
    assert_in_order(run)


def assert_in_order(run: Project) -> None:
    """While it is paused: of a step that is being written not all files know yet."""
    words = ("exec", "-T", "orchestrator-cpu", "headrace")
    url = ("--url", "http://127.0.0.1:8080")
    run.compose(*words, "pause", *url)

    def said() -> str:
        return run.attempt(*words, "check", "/runs/demo").stdout

    until(lambda: said().startswith("in order"), "a run in order", seconds=60, detail=said, every_s=1.0)
    run.compose(*words, "resume", *url)


def test_an_up_after_an_up_keeps_the_tokens_and_a_removed_one_is_made_anew(run: Project) -> None:
    files = {"reward": "/run/tokens/reward", "rollout-cpu": "/run/tokens/rollout"}
    before = {name: token_of(run, name, file) for name, file in files.items()}
    once = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "rm", "setup")
    run.compose(*once, "/state/tokens/reward/reward")
    reached = stopped_at(run)
    run.compose("up", "--detach", "--force-recreate", seconds=UP_S)
    wait_for_step(run, reached + 2)
    after = {name: token_of(run, name, file) for name, file in files.items()}
    assert after["rollout-cpu"] == before["rollout-cpu"] and after["reward"] != before["reward"]


def test_a_run_of_before_with_all_tokens_in_its_folder_goes_on_without_them(run: Project) -> None:
    reached = stopped_at(run)
    old = """
        mkdir -m 700 /runs/demo/run/tokens
        echo old > /runs/demo/run/tokens/trainer
        chgrp 10001 /runs/demo/events/reward
        chmod 755 /runs/demo/events/reward
        chmod 700 /runs/demo
    """
    run.compose("run", "--rm", "--no-deps", "-T", "--entrypoint", "sh", "setup", "-euc", old)
    run.compose("up", "--detach", "--force-recreate", seconds=UP_S)
    wait_for_step(run, reached + 2)
    assert not [path for path in found(run, "trainer-cpu", LIST, "/runs/demo/run") if "tokens" in path]
    assert_in_order(run)
    assert found(run, "reward", WRITABLE)[0] == "/runs/demo/events/reward"


def test_down_takes_all_secrets_away(run: Project) -> None:
    run.compose("--profile", "*", "down", "--volumes", "--timeout", "20", seconds=180)
    assert run.left() == {}
