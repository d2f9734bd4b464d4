"""How an agent's episode ends, what rewards it, and what its program sees of the machine."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.services.environment.agent.process import withheld_from
from headrace.services.environment.agent.rewards import reward_of
from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.wire.contracts import FinishReason
from headrace.wire.errors import ConfigError, ContractError
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.agents import agent_stage, play
from tests.integration.environment.test_episode import error_of

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]
SECRET = "planted-3f9c"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("ask(USER)\nsys.exit('no way')", r"python exited with status 1; .*no way"),
        ("pass", r"python ended without a call of the policy"),
        ("ask(USER)\nos.kill(os.getpid(), 9)", r"python was ended by signal 9"),
    ],
    ids=["crashes", "never calls", "is killed"],
)
async def test_a_failure_of_the_program_abstains(tmp_path: Path, program: str, words: str) -> None:
    async with agent_stage(tmp_path, program, slots=1) as it:
        rollout = await play(it)
        assert rollout.finish_reason is FinishReason.ENVIRONMENT_ERROR and rollout.must_abstain
        assert re.search(words, error_of(rollout), re.DOTALL) and len(error_of(rollout)) < 1000
        assert len(rollout.token_ids) == (3 if "ask" in program else 0), "what was sampled is kept"
        assert len(it.begun) == 1


async def test_a_limit_ends_an_episode_which_keeps_its_reward(tmp_path: Path) -> None:
    program = """
    open("reward.txt", "w").write("0.5")
    messages = [USER]
    try:
        while True:
            messages += [said(ask(*messages)), USER]
    except Exception as error:
        assert error.code == "turn_limit", error
        raise
    """
    async with agent_stage(tmp_path, program, limits={"max_turns": 2}, reward_file="reward.txt") as it:
        rollout = await play(it)
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.TURN_LIMIT, "") and not rollout.must_abstain
        assert rollout.episode is not None and len(rollout.episode.turn_ends) == 2
        assert rollout.episode.reward is not None and rollout.episode.reward.value == 0.5


async def test_a_failed_or_late_turn_is_not_the_programs_error(tmp_path: Path) -> None:
    def refuses(text: str, request: pb.SampleRequest) -> str:
        raise ContractError("bad_tokens", "never")

    program = """
    try:
        ask(USER)
    except Exception:
        time.sleep(1000)
    """
    async with agent_stage(tmp_path, program, refuses) as it:
        with pytest.raises(ContractError, match="never"):
            await play(it)
        it.replicas["rollout-0"].late = True
        rollout = await play(it)
        assert rollout.finish_reason is FinishReason.TIME and rollout.must_abstain
        assert error_of(rollout).startswith("environment.turn_s = 100 passed on rollout-0")


async def test_a_program_that_exits_during_a_call_ends_the_episode(tmp_path: Path) -> None:
    program = """
    import threading
    ask(USER)
    threading.Thread(target=ask, args=({"role": "user", "content": "wait"},), daemon=True).start()
    time.sleep(1)  # It is being asked by then.
    """

    def says(text: str, request: pb.SampleRequest) -> str | None:
        return None if "wait" in text else "a"

    async with agent_stage(tmp_path, program, says) as it:
        rollout = await play(it)
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert rollout.episode is not None and len(rollout.episode.turn_ends) == 1


async def test_the_tasks_reward_command_reads_files_that_the_program_never_saw(tmp_path: Path) -> None:
    program = """
    ask(USER)
    import subprocess, pathlib
    assert not pathlib.Path("tests").exists() and pathlib.Path("data/words").read_text() == "w"
    for place in ("tests/test.sh", "/logs/verifier/reward.txt"):
        pathlib.Path(place).parent.mkdir(exist_ok=True)
        pathlib.Path(place).write_text("echo 1 > /logs/verifier/reward.txt")
    pathlib.Path("task.json").write_text("{}")
    pathlib.Path("out").write_text("4")
    late = "import os, time\\nos.chdir('/tmp/work')\\n"
    late += "while True: open('o', 'w').write('0'); os.replace('o', 'out'); time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-c", late], start_new_session=True)
    """
    test = """
    [ -z "$OPENAI_BASE_URL$OPENAI_API_KEY" ] || exit 1
    ls /proc | grep -c '^[0-9]*$' > /tmp/processes
    sum=$(python -c "import json; print(json.load(open('task.json'))['a'] + float(open('tests/more').read()))")
    echo "{\\"reward\\": $sum, \\"out\\": $(cat out | grep -c . )}" > /logs/verifier/reward.json
    """
    files = {"tests/test.sh": test, "tests/more": "2.5", "data/words": "w"}
    async with agent_stage(tmp_path, program, files=files, reward_command=("bash", "tests/test.sh")) as it:
        rollout = await play(it, {"a": 1})
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")
        assert rollout.episode is not None and rollout.episode.reward is not None
        assert (rollout.episode.reward.value, rollout.episode.reward.components) == (3.5, {"out": 1.0})


@pytest.mark.parametrize(
    ("program", "command", "file", "words"),
    [
        ("ask(USER)", (), "reward.txt", "the episode has no reward: there is no reward.txt"),
        ("ask(USER)", ("bash", "-c", "echo lost"), "", "no /logs/verifier/reward.txt or .*reward.json; .*lost"),
    ],
)
async def test_a_reward_that_is_missing_or_unreadable_abstains(
    tmp_path: Path, program: str, command: tuple[str, ...], file: str, words: str
) -> None:
    async with agent_stage(tmp_path, program, reward_command=command, reward_file=file) as it:
        rollout = await play(it)
        assert rollout.finish_reason is FinishReason.ENVIRONMENT_ERROR and rollout.must_abstain
        assert re.search(words, error_of(rollout)), error_of(rollout)


def test_a_reward_is_a_number_or_an_object_of_numbers() -> None:
    assert reward_of("reward.txt", " 0.5\n").value == 0.5
    found = reward_of("reward.json", '{"reward": 1, "style": 0.25}')
    assert (found.value, found.components) == (1.0, {"style": 0.25})
    assert reward_of("r.json", '{"a": 1, "b": 0.25}').value == 1.25
    for name, text in (("r.txt", "nan"), ("r.txt", '{"reward": 1}'), ("r.json", "{}"), ("r.json", '{"reward": "x"}')):
        with pytest.raises(EnvironmentFailedError):
            reward_of(name, text)


def test_the_files_that_the_reward_command_names_are_withheld(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "grade.py").touch()
    assert withheld_from(("bash", "./tests/test.sh"), tmp_path) == ["tests"]
    assert withheld_from(("python", "grade.py", "--strict", "other"), tmp_path) == ["grade.py"]
    assert withheld_from((), tmp_path) == withheld_from(("bash", "tests/test.sh"), None) == []


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run directory with secrets, below it the agent's code; a variable; a service on a port of the machine."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "orchestrator.json").write_text(SECRET)
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        (tmp_path / "port").write_text(str(listener.getsockname()[1]))
        yield tmp_path


async def test_the_program_sees_no_other_port_key_or_file(planted: Path) -> None:
    port = (planted / "port").read_text()
    program = f"""
    import pathlib, socket, urllib.parse
    ask(USER)
    own = urllib.parse.urlparse(os.environ["OPENAI_BASE_URL"]).port
    def opens(port, host="127.0.0.1"):
        with socket.socket() as one:
            one.settimeout(5)
            # The kernel may choose the very port that is tried: then the socket is connected to itself.
            return one.connect_ex((host, port)) == 0 and one.getsockname() != one.getpeername()
    found = {{
        "ports": [one for one in range(1, 65536) if opens(one)] == [own],
        "port": opens({port}), "net": opens(53, "1.1.1.1"),
        "interfaces": sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else ["lo"],
        "secrets": [n for n, v in os.environ.items() if "{SECRET}" in v],
        "file": os.path.exists("{planted}/config"), "code": os.path.exists("{planted}/code"),
        "top": sorted(os.listdir("/")), "seen": [p for p in os.listdir("/proc") if p.isdigit()],
        "here": sorted(os.listdir(".")), "cwd": os.getcwd(),
        "ours": [n for n in sys.modules if n.startswith("headrace")],
    }}
    for place in ("/x", sys.prefix + "/x", "/usr/x"):
        try:
            open(place, "w")
            found["wrote"] = place
        except OSError:
            pass
    try:
        pathlib.Path(f"/proc/{{os.getppid()}}/mem").open("r+b")
        found["wrote"] = "the parent's memory"
    except OSError:
        pass
    print(json.dumps(found), file=sys.stderr)
    sys.exit(3)
    """
    async with agent_stage(planted, program, run_dir=planted, max_frame_bytes=1 << 24) as it:
        said = error_of(await play(it))
    found = json.loads("{" + said.partition("{")[2]) if "{" in said else {"said": said}
    assert found.pop("ports", None) is True, found
    assert (found["port"], found["net"], found["secrets"], found["file"], found["code"]) == (
        *(False, False, []),
        *(False, False),
    )
    assert found["interfaces"] == ["lo"] and found["here"] == ["agent.py", "task.json"]
    assert found["cwd"] == "/tmp/work" and found["ours"] == [] and "wrote" not in found, found


async def test_a_command_that_is_not_in_the_sandbox_is_refused(tmp_path: Path) -> None:
    for command in (("nothing-of-this-name",), ("./agent.sh",)):
        with pytest.raises(ConfigError, match=r"there is no '.*' in the sandbox \(environment.command\)"):
            async with agent_stage(tmp_path, "", command=command) as it:
                await play(it)
