"""Each mistake: a clear message, an exit status that is not 0, nothing half-written, no process left."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from tests.leftovers import left_running
from tests.verbs import Ended, ended

MARK = "HEADRACE_TEST_MARK"
SERVICES = ("orchestrator", "reward-0", "rollout-0", "rollout-1", "trainer")

GOOD = """\
[run]
max_steps = 2
[model]
path = "model"
[data]
path = "p.jsonl"
[rollout.sampling]
max_tokens = 8
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a good model, good data and a good run.toml."""
    write_model(tmp_path / "model", character_tokenizer("0123456789+="), Shape(layers=1, hidden=8), seed=0)
    (tmp_path / "p.jsonl").write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(9)))
    (tmp_path / "run.toml").write_text(GOOD)
    return tmp_path


def headrace(place: Path, *arguments: str, **environment: str) -> Ended:
    """The command line in `place`, in this process: what it starts has the mark of this test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, value in {MARK: str(place), **environment}.items():
            patch.setenv(name, value)
        return ended(*arguments)


def refused(place: Path, *arguments: str, **environment: str) -> str:
    """The message of a command that must fail and leave nothing behind."""
    before = sorted(path for path in place.rglob("*"))
    done = headrace(place, *arguments, **environment)
    assert done.status == 2, done.out + done.complaint
    assert "Traceback" not in done.complaint
    assert sorted(path for path in place.rglob("*")) == before
    assert left_running(str(place)) == []
    return done.complaint


def test_a_good_place_passes_a_dry_run(place: Path) -> None:
    done = headrace(place, "train", "run.toml", "--dry-run", "--json", "--rollout.replicas", "2")
    assert done.status == 0, done.complaint
    assert json.loads(done.out.splitlines()[-1])["prompts"] == 9
    names = {path.name for path in (place / "runs" / "run" / "config").iterdir()}
    assert names >= {"run.toml", *(f"{service}.json" for service in SERVICES)}
    assert left_running(str(place)) == []
    again = headrace(place, "train", "run.toml", "--dry-run", "--rollout.sampling.top-k", "30")
    assert again.status == 0, "a run directory in which nothing has begun may be prepared again"
    assert "at most 30 ids, which take up to 124 bytes" in again.out


NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_a_dry_run_lists_what_the_machine_lacks_and_writes_the_configs(place: Path) -> None:
    done = headrace(place, "train", "run.toml", "--dry-run", "--run.device", "cuda", **NO_GPU)
    assert done.status == 1, done.out + done.complaint
    lines = done.out.splitlines()
    assert lines[-1].startswith("the config is in order; this machine cannot run it: gpu, torch. Prepared in ")
    assert sum(line.startswith("lacks: ") for line in lines) == 2
    trainer = json.loads((place / "runs" / "run" / "config" / "trainer.json").read_text())
    assert (trainer["run"]["device"], trainer["model"]["dtype"]) == ("cuda", "bfloat16")
    told = headrace(place, "train", "run.toml", "--dry-run", "--run.device", "cuda", "--json", **NO_GPU).out
    assert json.loads(told.splitlines()[-1])["lacks"] == ["gpu", "torch"]


def test_a_dry_run_rejects_a_config_that_no_machine_can_run(place: Path) -> None:
    served = ("train", "run.toml", "--dry-run", "--run.device", "cuda", "--rollout.engine", "sglang")
    assert "SGLang has no float32 kernels" in refused(place, *served, "--model.dtype", "float32", **NO_GPU)
    assert "on GPU 0 each would take" in refused(place, *served, "--rollout.sglang.base-gpu-id", "0", **NO_GPU)


def test_a_start_without_the_gpu_it_asks_for_is_refused_at_once(place: Path) -> None:
    told = refused(place, "train", "run.toml", "--run.device", "cuda", **NO_GPU)
    assert "--run.device: [run] device: 'cuda', but this machine has no GPU" in told


def test_a_process_ends_with_the_message_and_its_status(place: Path) -> None:
    command = [sys.executable, "-P", "-m", "headrace", "train", "absent.toml"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "absent.toml: there is no such file" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_key(place: Path) -> None:
    (place / "run.toml").write_text(GOOD + "[trainer]\nlearnin_rate = 1e-6\n")
    told = refused(place, "train", "run.toml")
    assert 'run.toml:10: [trainer] unknown key "learnin_rate"; did you mean "learning_rate"?' in told
    assert "--run.max-stps: [run] unknown key" in refused(place, "train", "run.toml", "--run.max-stps", "3")


def test_an_occupied_port(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = refused(place, "train", "run.toml", "--orchestrator.http-port", str(port))
    assert f"--orchestrator.http-port: [orchestrator] http_port = {port}: the port is in use" in told


def test_an_unreachable_redis(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"redis://user:secret@127.0.0.1:{port}/0"
    told = refused(place, "train", "run.toml", "--broker.connect-timeout-s", "1", HEADRACE_BROKER__URL=url)
    assert "HEADRACE_BROKER__URL: [broker] url: no Redis or Valkey answers at redis://127.0.0.1" in told
    assert "within 1 s (" in told and "111" in told and "secret" not in told  # ECONNREFUSED, of the last attempt.
    with socket.create_server(("127.0.0.1", 0)) as server:  # It takes connections, and never answers.
        silent = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        told = refused(place, "train", "run.toml", "--broker.connect-timeout-s", "1", "--broker.url", silent)
    assert f"no Redis or Valkey answers at {silent} within 1 s (no attempt has ended yet)" in told
    assert "[broker] url" in refused(place, "train", "run.toml", "--broker.url", "http://x")


def test_a_run_directory_that_holds_a_run(place: Path) -> None:
    (place / "old" / "journal").mkdir(parents=True)
    told = refused(place, "train", "run.toml", "--run-dir", "old")
    assert "continue it with --resume, or choose another folder with --run-dir" in told
    assert "there is no run to resume in" in refused(place, "train", "run.toml", "--resume", "--run-dir", "other")
    assert "is not empty" in refused(place, "train", "run.toml", "--run-dir", "model")
