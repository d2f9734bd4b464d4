"""Requirements of a config on a machine. Pure."""

from dataclasses import dataclass

from headrace.config.resolve import Resolved
from headrace.config.reward_checks import all_leaves
from headrace.doctor.placement import placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """Requirements on a machine. Without a config: those of the demo."""

    resolved: Resolved | None = None
    cuda: bool = False
    gpus: int = 0
    """Least number of GPUs of this machine."""
    broker: bool = True
    fresh: bool = False
    """A new run starts: its broker must not hold the streams of another one."""
    sandbox: bool = False
    sglang: bool = False
    """An SGLang server is launched here."""

    @classmethod
    def of(cls, resolved: Resolved, *, fresh: bool = False) -> "Wants":
        """Derives the requirements of a config."""
        config = resolved.config
        cuda = config.run.device.startswith("cuda")
        table, rl = config.rollout, config.run.stage == "rl"
        own_server = rl and table.engine == "sglang" and not table.sglang.urls
        names = {scorer.name for scorer in all_leaves(config) if not scorer.options.get("url")}
        return cls(
            resolved=resolved,
            cuda=cuda,
            gpus=placement(config).needed,
            broker=rl,
            fresh=fresh,
            sandbox=rl and "code" in names,
            sglang=own_server,
        )
