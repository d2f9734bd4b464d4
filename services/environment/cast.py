"""What plays the episodes of a config: a pool of sandboxes or children, and the player for them."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.services.environment.agent.player import AgentPlayer
from headrace.services.environment.agent.process import AgentConfig, AgentProcess
from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.player.episode import EpisodePlayer
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.player import Player
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.choice import conversation_renderer
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.services.environment.settings import EnvironmentSettings, EnvironmentTable
from headrace.services.environment.taskset.frames import TasksetConfig
from headrace.services.environment.taskset.player import TasksetPlayer
from headrace.services.environment.taskset.process import TasksetProcess
from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Cast:
    """A pool, the player for its processes, and what renders their turns."""

    pool: ChildPool[Any]
    player: Player[Any]
    renderer: ConversationRenderer

    async def load(self) -> None:
        """Loads the user's code before anything is taken, and renders with its tools: errors in either end the start.

        Raises ConfigError, EnvironmentFailedError; the pool is closed then.
        """
        try:
            async with self.pool.child() as child:
                self.renderer.check(child.tools)
        except BaseException:
            await self.pool.close()
            raise


def cast_of(
    settings: EnvironmentSettings,
    tokenizer: "PreTrainedTokenizerBase",
    turns: TurnClient,
    slots: int,
    begun: Callable[[str, int, Counter[str]], None],
) -> Cast:
    """The cast of a config; `begun` is given what a `ProgramPlayer` gives it. Raises ConfigError."""
    limits, table = limits_of(settings), settings.environment
    config = child_config(table, settings.run_dir)
    renderer = conversation_renderer(table.renderer, tokenizer)
    if table.taskset:
        played = taskset_config(table, context_length=limits.context_length)
        pool = ChildPool(lambda: TasksetProcess(config, played), slots)
        return Cast(pool, TasksetPlayer(renderer, turns, limits, begun), renderer)
    if not table.command:
        return Cast(ChildPool(lambda: ChildProcess(config), slots), EpisodePlayer(renderer, turns, limits), renderer)
    agent = AgentConfig(command=table.command, reward_command=table.reward_command, reward_file=table.reward_file)
    agents = ChildPool(lambda: AgentProcess(config, agent), slots)
    return Cast(agents, AgentPlayer(renderer, turns, limits, begun), renderer)


def no_notes(name: str, turns: int, begun: Counter[str]) -> None:
    """Takes the turns of an episode, and warns of nothing."""


def child_config(table: EnvironmentTable, run_dir: Path | None) -> ChildConfig:
    """What each child runs, and its limits."""
    return ChildConfig(
        environment=table.name,
        tools=table.tools,
        rewards=table.rewards,
        path=table.path,
        run_dir=run_dir,
        folders=table.folders,
        variables=table.variables,
        sandbox=table.sandbox == "auto",
        network=table.network,
        memory_mib=table.memory_mib,
        cpu_s=table.cpu_s,
        max_result_chars=table.max_result_chars,
        start_s=table.start_s,
    )


def taskset_config(table: EnvironmentTable, *, context_length: int) -> TasksetConfig:
    """The taskset of a config."""
    return TasksetConfig(
        taskset=table.taskset,
        options=table.options,
        harness=table.harness,
        max_turns=table.max_turns,
        context_length=context_length,
    )


def limits_of(settings: EnvironmentSettings) -> EpisodeLimits:
    """The limits of each episode."""
    table = settings.environment
    return EpisodeLimits(
        max_turns=table.max_turns,
        max_turn_tokens=table.max_turn_tokens,
        context_length=settings.context_length or context_of(settings.model.path),
        episode_s=table.episode_s,
        turn_s=table.turn_s,
        tool_s=table.tool_s,
    )


def context_of(model: Path) -> int:
    """The longest context of a model folder. Raises ConfigError if its config does not say it."""
    try:
        config = json.loads((model / "config.json").read_text())
        return int((config.get("text_config") or config)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"model.path: {model / 'config.json'} does not say how long a context may be ({error!r}): set "
            "rollout.context_length"
        ) from error
