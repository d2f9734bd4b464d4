"""`model.dtype` and `run.stale` are settled once, when the run directory is made, and kept by a resume."""

from pathlib import Path

import pytest

from headrace.config.resolve import Resolved, resolve
from headrace.config.run_dir import check_resumable
from headrace.config.settle import check_dtype, settle
from headrace.config.toml import to_toml
from headrace.wire.errors import ConfigError

CUDA = ("--run.device", "cuda")
SGLANG = ("--rollout.engine", "sglang")


def config(folder: Path, *arguments: str, text: str = "") -> Resolved:
    file = folder / "run.toml"
    file.write_text(f'[data]\npath = "p.jsonl"\n{text}')
    return resolve(file, arguments=arguments)


def made(run_dir: Path, resolved: Resolved) -> Path:
    """A run directory as the first start leaves it."""
    settled = settle(resolved, run_dir, goes_on=False)
    (run_dir / "config").mkdir(parents=True)
    tables = settled.config.model_dump(mode="json", serialize_as_any=True)
    (run_dir / "config" / "run.toml").write_text(to_toml(tables))
    return run_dir


def dtype(resolved: Resolved, run_dir: Path, *, goes_on: bool = False) -> str:
    settled = settle(resolved, run_dir, goes_on=goes_on)
    if goes_on:
        check_resumable(run_dir, settled.config)
    return settled.config.model.dtype


def test_auto_is_16_bits_on_a_gpu_and_32_elsewhere(tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert dtype(config(tmp_path), new) == "float32"
    assert dtype(config(tmp_path, *CUDA), new) == "bfloat16"
    assert dtype(config(tmp_path, "--run.device", "cuda:1"), new) == "bfloat16"
    assert dtype(config(tmp_path, *CUDA, "--model.dtype", "float32"), new) == "float32"
    assert dtype(config(tmp_path, *CUDA, "--model.dtype", "auto"), new) == "bfloat16"


def test_a_resumed_run_keeps_its_dtype_on_any_device(tmp_path: Path) -> None:
    on_cpu = made(tmp_path / "cpu", config(tmp_path))
    on_gpu = made(tmp_path / "gpu", config(tmp_path, *CUDA))
    assert dtype(config(tmp_path, *CUDA), on_cpu, goes_on=True) == "float32"
    assert dtype(config(tmp_path), on_gpu, goes_on=True) == "bfloat16"
    with pytest.raises(ConfigError, match=r"model.dtype was 'float32' .* is now 'bfloat16'"):
        dtype(config(tmp_path, "--model.dtype", "bfloat16"), on_cpu, goes_on=True)


def test_float32_in_sglang_on_a_gpu_is_refused_with_the_way_out(tmp_path: Path) -> None:
    def check(*arguments: str) -> None:
        check_dtype(settle(config(tmp_path, *arguments), tmp_path / "new", goes_on=False))

    check(*CUDA, *SGLANG)
    check(*SGLANG, "--model.dtype", "float32")
    check(*CUDA, "--model.dtype", "float32")
    with pytest.raises(ConfigError, match=r'--model.dtype: \[model\] dtype: SGLang has no float32 .* "bfloat16"'):
        check(*CUDA, *SGLANG, "--model.dtype", "float32")
    with pytest.raises(ConfigError, match="no float32 kernels"):
        check(*SGLANG, "--rollout.sglang.device", "cuda", "--model.dtype", "float32")


STALE = "[run]\nmax_staleness = 1\n"


def resumed(run_dir: Path, resolved: Resolved) -> str:
    settled = settle(resolved, run_dir, goes_on=True)
    check_resumable(run_dir, settled.config)
    return settled.config.run.stale


def test_a_new_run_waits_and_a_resumed_one_keeps_its_policy(tmp_path: Path) -> None:
    waiting = config(tmp_path, text=STALE)
    assert settle(waiting, tmp_path / "new", goes_on=False).config.run.stale == "wait"
    masking = config(tmp_path, "--run.stale", "mask", text=STALE)
    run_dir = made(tmp_path / "run", masking)
    assert resumed(run_dir, masking) == "mask"
    with pytest.raises(ConfigError, match=r"run.stale was 'mask' .* is now 'wait'"):
        resumed(run_dir, waiting)


def test_a_resume_keeps_the_policy_that_a_run_with_an_environment_has_chosen(tmp_path: Path) -> None:
    played = f'{STALE}[environment]\nname = "game:Sums"\n'
    run_dir = made(tmp_path / "run", config(tmp_path, text=played))
    assert resumed(run_dir, config(tmp_path, text=played)) == "mask"
    with pytest.raises(ConfigError, match=r"run.stale was 'mask' .* is now 'wait'"):
        resumed(run_dir, config(tmp_path, "--run.stale", "wait", text=played))
