"""`model.dtype` and a made model's heads are settled once, when the run directory is made."""

from pathlib import Path

import pytest

from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.run_dir import check_resumable
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


def test_a_resumed_run_keeps_its_dtype_whatever_device_it_goes_on_with(tmp_path: Path) -> None:
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
