"""Requirements of a config on a machine. Pure."""

from dataclasses import dataclass

from headrace.config.resolve import Resolved
from headrace.config.reward_checks import all_leaves
from headrace.doctor.placement import placement

CODE = "code rewards"


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
    sandbox: tuple[str, ...] = ()
    """What cannot run without bubblewrap, in words."""
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
        played = config.environment
        sandboxed = {
            CODE: "code" in names,
            "environment.command": bool(played.command),
            "environments without the network": played.on and not played.network and not played.command,
        }
        return cls(
            resolved=resolved,
            cuda=cuda,
            gpus=placement(config).needed,
            broker=rl,
            fresh=fresh,
            sandbox=tuple(what for what, needs in sandboxed.items() if rl and needs),
            sglang=own_server,
        )
