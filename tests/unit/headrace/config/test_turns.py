"""What `rollout.gpu_sharing = "turns"` needs, each refusal with its way out."""

from pathlib import Path

import pytest

from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.services import MachineLayout, settings_of, specs
from headrace.config.tables import Ports
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import ConfigError

TURNS = ("--rollout.gpu-sharing", "turns", "--run.max-staleness", "0")


def config(folder: Path, *arguments: str) -> Resolved:
    file = folder / "run.toml"
    file.write_text('[data]\npath = "p.jsonl"\n')
    return settle(resolve(file, arguments=arguments), folder / "new", goes_on=False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--run.max-staleness", "1"), r"run\.max_staleness = 0"),
        (("--trainer.nodes", "2", "--trainer.ranks", "2", "--trainer.rendezvous", "a:1"), r"trainer\.nodes = 1"),
        (("--trainer.backend", "deepspeed"), r"trainer\.backend auto, single or fsdp2"),
        (("--trainer.ranks", "2"), r"one replica a GPU; they are 1 and 2"),
        (("--rollout.sglang.tp", "2"), r"rollout\.sglang\.tp = 1"),
        (("--rollout.sglang.urls", '["http://a:1"]'), r"rollout\.sglang\.urls are not ours"),
        (("--rollout.engine", "sglang", "--model.lora.rank", "4"), r"model\.lora\.rank = 0"),
        (("--eval.deadline-s", "1800"), r"trainer\.turn_timeout_s above eval\.deadline_s, which is 1800"),
    ],
)
def test_configs_that_cannot_share_a_gpu_in_turns_are_rejected_and_the_key_is_named(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"rollout.gpu_sharing = 'turns' needs .*{reason}"):
        config(tmp_path, *TURNS, *arguments)


def test_settings_of_trainer_and_replicas_carry_gpu_turns(tmp_path: Path) -> None:
    for arguments, shared in (((), False), (TURNS, True)):
        found = config(tmp_path, *arguments).config
        ports = {spec.name: Ports(grpc_port=1, http_port=2) for spec in specs(found)}
        place = MachineLayout(tmp_path, "redis://x", ports, ())
        by_name = {spec.name: settings_of(found, spec, place, ports[spec.name]) for spec in specs(found)}
        trainer, replica = by_name["trainer"], by_name["rollout-0"]
        assert isinstance(trainer, TrainerSettings) and isinstance(replica, RolloutSettings)
        assert trainer.takes_turns is shared
        assert (replica.rollout.gpu_sharing == "turns") is shared
