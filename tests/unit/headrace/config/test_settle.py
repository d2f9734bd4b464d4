"""What a start settles, `model.dtype`, `trainer.compile` and `run.stale`, a resume keeps."""

from pathlib import Path

import pytest

from headrace.config import resolve as resolve_module
from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.run_dir import check_resumable
from headrace.config.schema import RunFile
from headrace.config.toml import to_toml
from headrace.run.preparation.input_checks import check_dtype
from headrace.wire.errors import ConfigError

CUDA = ("--run.device", "cuda")
SGLANG = ("--rollout.engine", "sglang")


def config(folder: Path, *arguments: str, text: str = "") -> Resolved:
    file = folder / "run.toml"
    file.write_text(f'[data]\npath = "p.jsonl"\n{text}')
    return resolve(file, arguments=arguments)


def made(run_dir: Path, resolved: Resolved) -> Path:
    """A run directory as the first start leaves it."""
    settled = settle(resolved, run_dir)
    (run_dir / "config").mkdir(parents=True)
    tables = settled.config.model_dump(mode="json", serialize_as_any=True)
    (run_dir / "config" / "run.toml").write_text(to_toml(tables))
    return run_dir


def resumed(resolved: Resolved, run_dir: Path) -> RunFile:
    settled = settle(resolved, run_dir, goes_on=True).config
    check_resumable(run_dir, settled)
    return settled


def dtype(resolved: Resolved) -> str:
    return settle(resolved).config.model.dtype


def test_auto_is_16_bits_on_a_gpu_and_32_elsewhere(tmp_path: Path) -> None:
    assert dtype(config(tmp_path)) == "float32"
    assert dtype(config(tmp_path, *CUDA)) == "bfloat16"
    assert dtype(config(tmp_path, "--run.device", "cuda:1")) == "bfloat16"
    assert dtype(config(tmp_path, *CUDA, "--model.dtype", "float32")) == "float32"
    assert dtype(config(tmp_path, *CUDA, "--model.dtype", "auto")) == "bfloat16"


def test_a_resumed_run_keeps_its_dtype_on_any_device(tmp_path: Path) -> None:
    on_cpu = made(tmp_path / "cpu", config(tmp_path))
    on_gpu = made(tmp_path / "gpu", config(tmp_path, *CUDA))
    assert resumed(config(tmp_path, *CUDA), on_cpu).model.dtype == "float32"
    assert resumed(config(tmp_path), on_gpu).model.dtype == "bfloat16"
    with pytest.raises(ConfigError, match=r"model.dtype was 'float32' .* is now 'bfloat16'"):
        resumed(config(tmp_path, "--model.dtype", "bfloat16"), on_cpu)


def test_layers_are_compiled_on_a_gpu_unless_equal_bits_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks: list[str] = []
    monkeypatch.setattr(resolve_module, "compiler_lacks", lambda environment: lacks)

    def compiles(*arguments: str) -> object:
        return settle(config(tmp_path, *arguments)).config.trainer.compile

    assert compiles(*CUDA) is True and compiles() is False
    assert compiles(*CUDA, "--rollout.deterministic", "true") is False
    assert compiles(*CUDA, "--trainer.backend", "deepspeed") is False
    assert compiles(*CUDA, "--model.lora.rank", "8") is False
    assert compiles(*CUDA, "--trainer.compile", "false") is False and compiles("--trainer.compile", "true") is True
    began = made(tmp_path / "run", config(tmp_path, *CUDA))
    lacks.append("C compiler")
    assert compiles(*CUDA) is False
    assert resumed(config(tmp_path, *CUDA), began).trainer.compile is True
    shared = ("--trainer.ranks", "2", "--trainer.cp", "2")
    assert resumed(config(tmp_path, *CUDA, *shared), began).trainer.compile is False
    toml = began / "config" / "run.toml"
    toml.write_text(toml.read_text().replace("compile = true\n", ""))
    lacks.clear()
    assert settle(config(tmp_path, *CUDA), began, goes_on=True).config.trainer.compile is False, "made before the key"


def test_the_policy_for_stale_rollouts_is_kept(tmp_path: Path) -> None:
    assert settle(config(tmp_path)).config.run.stale == "wait"
    masking = config(tmp_path, "--run.stale", "mask")
    run_dir = made(tmp_path / "run", masking)
    assert resumed(masking, run_dir).run.stale == "mask"
    with pytest.raises(ConfigError, match=r"run.stale was 'mask' .* is now 'wait'"):
        resumed(config(tmp_path), run_dir)
    toml = run_dir / "config" / "run.toml"
    toml.write_text(toml.read_text().replace('stale = "mask"\n', ""))
    assert resumed(config(tmp_path), run_dir).run.stale == "drop", "as before that key existed"


def test_an_environment_run_keeps_its_staleness_policy_when_resumed(
    tmp_path: Path,
) -> None:
    played = '[environment]\nname = "game:Sums"\n'
    run_dir = made(tmp_path / "run", config(tmp_path, text=played))
    assert resumed(config(tmp_path, text=played), run_dir).run.stale == "mask"
    with pytest.raises(ConfigError, match=r"run.stale was 'mask' .* is now 'wait'"):
        resumed(config(tmp_path, "--run.stale", "wait", text=played), run_dir)


def test_float32_in_sglang_on_a_gpu_is_rejected_with_a_fix(tmp_path: Path) -> None:
    def check(*arguments: str) -> None:
        check_dtype(settle(config(tmp_path, *arguments)))

    check(*CUDA, *SGLANG)
    check(*SGLANG, "--model.dtype", "float32")
    check(*CUDA, "--model.dtype", "float32")
    with pytest.raises(ConfigError, match=r'--model.dtype: \[model\] dtype: SGLang has no float32 .* "bfloat16"'):
        check(*CUDA, *SGLANG, "--model.dtype", "float32")
    with pytest.raises(ConfigError, match="no float32 kernels"):
        check(*SGLANG, "--rollout.sglang.device", "cuda", "--model.dtype", "float32")


def test_the_heads_of_a_made_model_are_wide_enough_for_sglang_on_a_gpu(tmp_path: Path) -> None:
    for arguments, width in (((), 32), ((*CUDA, *SGLANG), 64)):
        made_from = settle(config(tmp_path, *arguments, text="[model.make]\n")).to_make
        assert made_from is not None and made_from.head_dim == width
    with pytest.raises(ConfigError, match=r"run.toml:4: \[model.make\] head_dim: 32, but SGLang's attention"):
        settle(config(tmp_path, *CUDA, *SGLANG, text="[model.make]\nhead_dim = 32\n"))


def test_checkpoints_come_by_time_but_by_steps_where_a_run_is_to_repeat_bit_by_bit(tmp_path: Path) -> None:
    def every(*arguments: str) -> tuple[int, float]:
        table = settle(config(tmp_path, *arguments)).config.trainer
        return table.checkpoint_steps, table.checkpoint_seconds

    exact = ("--rollout.deterministic", "true")
    assert every() == (0, 600.0)
    assert every(*exact) == (10, 0.0)
    assert every(*exact, "--trainer.checkpoint-every", "2h") == (0, 7200.0)
    assert every("--trainer.checkpoint-every", "20") == (20, 0.0)
    for wrong in ("0", "10x", "0m"):
        with pytest.raises(ConfigError, match=r'checkpoint_every.*a time such as "10m"'):
            every("--trainer.checkpoint-every", wrong)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--model.lora.rank", "4"), "adapters are trained"),
        (("--run.stage", "reward_model"), "all weights are trained"),
        (("--trainer.backend", "deepspeed"), "fsdp2"),
    ],
)
def test_part_of_the_layers_is_refused_where_it_would_not_be_obeyed(tmp_path, arguments, reason):
    file = tmp_path / "run.toml"
    file.write_text('[data]\npath = "p.jsonl"\n[model]\ntrainable = "layers 1-, norms"\n')
    with pytest.raises(ConfigError, match=rf"model\.trainable.*{reason}"):
        resolve(file, arguments=arguments)
