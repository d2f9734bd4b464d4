"""What a config asks of a machine. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.config.resolve import Resolved
from services.reward.settings import ScorerTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """Without a config: nothing but that a demo runs."""

    resolved: Resolved | None = None
    cuda: bool = False
    gpus: int = 0
    """How many this machine must have at least."""
    sandbox: bool = False
    sglang: bool = False
    """A server that is launched here."""

    @classmethod
    def of(cls, resolved: Resolved) -> "Wants":
        """Of a config."""
        config = resolved.config
        cuda = config.run.device.startswith("cuda")
        table = config.rollout
        own_server = table.engine == "sglang" and not table.sglang.urls
        serving = table.replicas * table.sglang.tp if own_server and table.sglang.device != "cpu" else 0
        names = {scorer.name for scorer in _leaves(_scorers(resolved)) if not scorer.options.get("url")}
        return cls(
            resolved=resolved,
            cuda=cuda,
            # The engines may share the trainer's devices, so the larger one counts, not the sum.
            gpus=max(config.trainer.ranks // config.trainer.nodes, serving) if cuda else 0,
            sandbox="code" in names,
            sglang=own_server,
        )


def _scorers(resolved: Resolved) -> Sequence[ScorerTable]:
    table = resolved.config.reward
    return [*table.scorers, *(scorer for task in table.tasks.values() for scorer in task.scorers)]


def _leaves(scorers: Sequence[ScorerTable]) -> Iterator[ScorerTable]:
    for scorer in scorers:
        yield from _leaves(scorer.members) if scorer.members else (scorer,)
