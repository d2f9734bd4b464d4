"""Requirements of a config on a machine. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.config.resolve import Resolved
from headrace.doctor.placement import placement
from headrace.services.reward.settings import ScorerTable


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
        names = {scorer.name for scorer in _leaves(_scorers(resolved)) if not scorer.options.get("url")}
        return cls(
            resolved=resolved,
            cuda=cuda,
            gpus=placement(config).needed,
            broker=rl,
            fresh=fresh,
            sandbox=rl and "code" in names,
            sglang=own_server,
        )


def _scorers(resolved: Resolved) -> Sequence[ScorerTable]:
    table = resolved.config.reward
    return [*table.scorers, *(scorer for task in table.tasks.values() for scorer in task.scorers)]


def _leaves(scorers: Sequence[ScorerTable]) -> Iterator[ScorerTable]:
    for scorer in scorers:
        yield from _leaves(scorer.members) if scorer.members else (scorer,)
