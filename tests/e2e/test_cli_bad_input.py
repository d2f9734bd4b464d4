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
    again = headrace(place, "train", "run.toml", "--dry-run")
    assert again.status == 0, "a run directory in which nothing has begun may be prepared again"


NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_a_dry_run_says_what_the_machine_lacks_and_writes_the_configs(place: Path) -> None:
    done = headrace(place, "train", "run.toml", "--dry-run", "--run.device", "cuda", **NO_GPU)
    assert done.status == 1, done.out + done.complaint
    lines = done.out.splitlines()
    assert lines[-1].startswith("the config is in order; this machine cannot run it: gpu, torch. Prepared in ")
    assert sum(line.startswith("lacks: ") for line in lines) == 2
    trainer = json.loads((place / "runs" / "run" / "config" / "trainer.json").read_text())
    assert (trainer["run"]["device"], trainer["model"]["dtype"]) == ("cuda", "bfloat16")
    told = headrace(place, "train", "run.toml", "--dry-run", "--run.device", "cuda", "--json", **NO_GPU).out
    assert json.loads(told.splitlines()[-1])["lacks"] == ["gpu", "torch"]


@pytest.mark.long
def test_a_taken_port_is_what_the_machine_lacks(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = ("--trainer.http-port", str(taken.getsockname()[1]))
        done = headrace(place, "train", "run.toml", "--dry-run", *port)
        assert done.status == 1 and "cannot run it: ports. Prepared in " in done.out.splitlines()[-1]
        assert "port is in use" in refused(place, "train", "run.toml", "--run-dir", "other", *port)


def test_what_no_machine_could_run_is_refused_by_a_dry_run_too(place: Path) -> None:
    served = ("train", "run.toml", "--dry-run", "--run.device", "cuda", "--rollout.engine", "sglang")
    assert "SGLang has no float32 kernels" in refused(place, *served, "--model.dtype", "float32", **NO_GPU)
    assert "on GPU 0 each would take" in refused(place, *served, "--rollout.sglang.base-gpu-id", "0", **NO_GPU)


def test_a_start_without_the_gpu_it_asks_for_is_refused_at_once(place: Path) -> None:
    told = refused(place, "train", "run.toml", "--run.device", "cuda", **NO_GPU)
    assert "--run.device: [run] device: 'cuda', but this machine has no GPU" in told


@pytest.mark.long
def test_prompts_that_the_tokenizer_cannot_read(place: Path) -> None:
    (place / "p.jsonl").write_text('{"prompt": "one plus one"}\n')
    assert "p.jsonl:1: the tokenizer does not know 100.0% of the tokens" in refused(place, "train", "run.toml")


def test_a_missing_config(place: Path) -> None:
    assert "absent.toml: there is no such file" in refused(place, "train", "absent.toml")


@pytest.mark.long
def test_a_missing_data_file(place: Path) -> None:
    (place / "p.jsonl").unlink()
    told = refused(place, "train", "run.toml")
    assert "run.toml:6: [data] path: there is no file" in told and "p.jsonl" in told


@pytest.mark.long
def test_a_bad_json_line(place: Path) -> None:
    with (place / "p.jsonl").open("a") as file:
        file.write('{"prompt": "1+1=", \n')
    assert "p.jsonl:10: not valid JSON" in refused(place, "train", "run.toml")


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


@pytest.mark.long
def test_a_wrong_type(place: Path) -> None:
    (place / "run.toml").write_text(GOOD.replace("max_steps = 2", 'max_steps = "two"'))
    assert 'run.toml:2: [run] max_steps = "two": input should be a valid integer' in refused(place, "train", "run.toml")


@pytest.mark.long
def test_a_model_folder_without_a_tokenizer(place: Path) -> None:
    (place / "model" / "tokenizer.json").unlink()
    told = refused(place, "train", "run.toml")
    assert "run.toml:4: [model] path:" in told and "has no tokenizer" in told


@pytest.mark.long
def test_a_prompt_longer_than_the_context(place: Path) -> None:
    with (place / "p.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "1+" * 30, "answer": "1"}) + "\n")
    assert "p.jsonl:10: the prompt has 60 tokens, but at most 56 fit" in refused(place, "train", "run.toml")


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


@pytest.mark.long
def test_commands_on_a_folder_that_is_no_run(place: Path) -> None:
    assert "is not a run directory" in refused(place, "check", "model")
    assert "is not a run directory" in refused(place, "status", "model")


@pytest.mark.long
def test_a_resumed_run_must_stay_the_same_run(place: Path) -> None:
    assert headrace(place, "train", "run.toml", "--dry-run").status == 0
    told = refused(place, "train", "run.toml", "--resume", "--run.seed", "1")
    assert "run.seed was 0" in told and "is now 1" in told
    for option, value in (("fp32-head", "true"), ("dtype", "bfloat16")):
        told = refused(place, "train", "run.toml", "--resume", f"--model.{option}", value)
        assert f"model.{option.replace('-', '_')} was" in told


@pytest.mark.long
def test_a_run_of_a_version_without_a_key_is_resumed_as_it_was(place: Path) -> None:
    assert headrace(place, "train", "run.toml", "--dry-run").status == 0
    (file,) = place.rglob("config/run.toml")
    text = file.read_text()
    assert "fp32_head = false\n" in text
    file.write_text(text.replace("fp32_head = false\n", ""))
    done = headrace(place, "train", "run.toml", "--resume", "--dry-run")
    assert done.status == 0, done.complaint
    assert "model.fp32_head was False" in refused(place, "train", "run.toml", "--resume", "--model.fp32-head", "true")


@pytest.mark.long
@pytest.mark.parametrize(
    ("scorer", "words"),
    [
        ('name = "exact_mach"', "did you mean 'exact_match'"),
        pytest.param('name = "no_such_module:f"', "put the folder of the module into reward.path"),
        pytest.param('name = "format"', "missing a required argument: 'pattern'"),
    ],
)
def test_a_scorer_that_cannot_be_loaded(place: Path, scorer: str, words: str) -> None:
    (place / "run.toml").write_text(f"{GOOD}\n[[reward.scorers]]\n{scorer}\n")
    message = refused(place, "train", "run.toml", "--run-dir", "run")
    assert words in message and "[reward] scorers" in message


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--eval.component", "exact"], "eval.component = 'exact' is none of the scorers: exact_match"),
        (["--batch.group-size", "1"], "[batch] group_size: a group of one has no advantage"),
        (["--rollout.replicas=2", "--rollout.grpc-port=65535"], "rollout-1 would get port 65536"),
        (["--run.device", "cudaa"], "[run] device"),
        (["--rollout.sampling.max-tokens=99999"], "leave no room for a prompt"),
        (["--run-dir", "p.jsonl/run"], "choose another --run-dir"),
    ],
)
def test_settings_that_cannot_work(place: Path, arguments: list[str], words: str) -> None:
    run_dir = [] if "--run-dir" in arguments else ["--run-dir", "run"]
    assert words in refused(place, "train", "run.toml", *run_dir, *arguments)


@pytest.mark.long
def test_rows_that_a_scorer_cannot_use(place: Path) -> None:
    (place / "p.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n{"prompt": "1+2=", "answer": "unknown"}\n')
    (place / "run.toml").write_text(f'{GOOD}\n[[reward.scorers]]\nname = "numeric"\n')
    message = refused(place, "train", "run.toml", "--run-dir", "run")
    assert "the answer 'unknown' holds no number" in message and "sample " in message


@pytest.mark.long
def test_data_without_the_column_that_a_scorer_reads(place: Path) -> None:
    (place / "p.jsonl").write_text('{"prompt": "1+1=", "label": "2"}\n')
    assert "no column 'answer'; columns: label" in refused(place, "train", "run.toml", "--run-dir", "run")


@pytest.mark.long
def test_a_reward_function_that_does_not_take_the_columns(place: Path) -> None:
    (place / "rewards.py").write_text("def f(completion):\n    return 0.0\n")
    toml = f'{GOOD}\n[reward]\npath = "."\n[[reward.scorers]]\nname = "rewards:f"\n'
    (place / "run.toml").write_text(toml)
    message = refused(place, "train", "run.toml", "--run-dir", "run", PYTHONDONTWRITEBYTECODE="1")
    assert "let it take **columns" in message


@pytest.mark.long
def test_a_completion_that_would_be_too_long_for_the_reward_model(place: Path) -> None:
    write_model(place / "rm", character_tokenizer("0123456789+="), Shape(layers=1, hidden=8), seed=0)
    file = place / "rm" / "config.json"
    found = json.loads(file.read_text())
    found |= {"architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "x"}, "label2id": {"x": 0}}
    (place / "run.toml").write_text(
        f'{GOOD}\n[[reward.scorers]]\nname = "reward_model"\n[reward.scorers.options]\npath = "rm"\n'
    )
    file.write_text(json.dumps(found | {"max_position_embeddings": 11}))
    message = refused(place, "train", "run.toml", "--run-dir", "run", "--dry-run")
    assert "'reward_model' reads at most 11 tokens" in message and "has 4," in message
    file.write_text(json.dumps(found | {"max_position_embeddings": 12}))
    assert headrace(place, "train", "run.toml", "--run-dir", "run", "--dry-run").status == 0


@pytest.mark.long
def test_rows_without_a_reference_for_the_discriminator(place: Path) -> None:
    (place / "p.jsonl").write_text('{"prompt": "1+1=", "label": "2"}\n{"prompt": "1+2=", "label": null}\n')
    (place / "run.toml").write_text(
        f'{GOOD}\n[discriminator]\nevery = 1\nreference = "label"\n[[reward.scorers]]\nname = "discriminator"\n'
    )
    message = refused(place, "train", "run.toml", "--run-dir", "run", "--dry-run")
    assert "discriminator.reference = 'label': no text in this column for prompts.parquet, sample " in message
