"""Trainer and servers that one command starts take different GPUs; in containers each counts its own from 0."""

from pathlib import Path

import pytest

from headrace.config.resolve import Resolved, resolve, settle
from headrace.doctor.placement import check_overlap, check_visible, placement, shown, visible
from headrace.wire.errors import ConfigError

SERVED = ("--run.device", "cuda", "--rollout.engine", "sglang")
TURNS = ("--rollout.gpu-sharing", "turns", "--run.max-staleness", "0")
SHARES = ("--trainer.memory-fraction", "0.5", "--rollout.sglang.mem-fraction-static", "0.4")


def config(folder: Path, *arguments: str) -> Resolved:
    file = folder / "run.toml"
    file.write_text('[data]\npath = "p.jsonl"\n')
    return settle(resolve(file, arguments=arguments), folder / "new", goes_on=False)


@pytest.mark.parametrize(
    ("arguments", "trainer", "servers", "needed"),
    [
        ((), range(0), range(0), 0),
        (SERVED, range(1), range(1, 2), 2),
        ((*SERVED, "--trainer.ranks", "4", "--rollout.replicas", "2", "--rollout.sglang.tp", "2"), range(4),
         range(4, 8), 8),
        ((*SERVED, "--trainer.ranks", "4", "--trainer.nodes", "2", "--trainer.rendezvous", "a:1"), range(2),
         range(2, 3), 3),
        (("--run.device", "cuda:2", *SERVED[2:]), range(2, 3), range(3, 4), 4),
        ((*SERVED, "--rollout.sglang.base-gpu-id", "5"), range(1), range(5, 6), 6),
        ((*SERVED, *SHARES), range(1), range(1), 1),
        ((*SERVED, *TURNS), range(1), range(1), 1),
        ((*SERVED, *TURNS, "--trainer.ranks", "2", "--rollout.replicas", "2"), range(2), range(2), 2),
        (("--run.device", "cuda"), range(1), range(0), 1),
    ],
)  # fmt: skip
def test_servers_get_the_gpus_after_the_trainers_ranks(
    tmp_path: Path, arguments: tuple[str, ...], trainer: range, servers: range, needed: int
) -> None:
    resolved = config(tmp_path, *arguments)
    found = placement(resolved.config)
    assert (found.trainer, list(found.servers), found.needed) == (trainer, list(servers), needed)
    check_overlap(resolved)


def test_an_overlap_without_shares_names_both_ways_out(tmp_path: Path) -> None:
    same = (*SERVED, "--trainer.ranks", "2", "--rollout.sglang.base-gpu-id", "1")
    with pytest.raises(ConfigError, match=r"base_gpu_id: trainer on GPUs 0-1, SGLang on GPU 1: on GPU 1 .*") as caught:
        check_overlap(config(tmp_path, *same))
    assert "base_gpu_id = 2" in str(caught.value) and "trainer.memory_fraction" in str(caught.value)
    assert 'rollout.gpu_sharing = "turns"' in str(caught.value)
    with pytest.raises(ConfigError, match="give each a share"):
        check_overlap(config(tmp_path, *same, *SHARES[:2]))
    check_overlap(config(tmp_path, *same, *SHARES))
    with pytest.raises(ConfigError, match="more than all of its memory"):
        check_overlap(config(tmp_path, *same, *SHARES[:2], SHARES[2], "0.7"))


def test_too_few_gpus_are_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(count: int) -> None:
        smi = tmp_path / "nvidia-smi"
        smi.write_text("#!/bin/sh\n" + "".join(f'echo "GPU {n}: NVIDIA H200 (UUID: GPU-{n})"\n' for n in range(count)))
        smi.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    two = config(tmp_path, *SERVED)
    seen(2)
    check_visible(two, {})
    assert visible({"CUDA_VISIBLE_DEVICES": "1"}) == 1
    with pytest.raises(ConfigError, match=r"trainer on GPU 0, SGLang on GPU 1, but this machine has 1"):
        check_visible(two, {"CUDA_VISIBLE_DEVICES": "1"})
    seen(0)
    monkeypatch.setattr("headrace.doctor.placement.device_files", list)
    monkeypatch.setattr("headrace.doctor.placement._KFD", tmp_path)
    with pytest.raises(ConfigError, match="GPUs of AMD, which are not supported"):
        check_visible(two, {})
    monkeypatch.setattr("headrace.doctor.placement._KFD", tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"\[run\] device: 'cuda', but this machine has no GPU"):
        check_visible(two, {})
    check_visible(config(tmp_path), {})


@pytest.mark.parametrize(
    ("there", "chosen", "count"),
    [
        (4, None, 4),
        (4, "", 0),
        (4, "2,3", 2),
        (4, "0,-1,2", 1),
        (4, "0,9,1", 1),
        (4, "GPU-1,GPU-2", 2),
        (1, "0,0", 1),
        (1, "MIG-a,MIG-b", 2),
    ],
)
def test_cuda_visible_devices_hides_the_others(there: int, chosen: str | None, count: int) -> None:
    assert shown(there, chosen) == count
