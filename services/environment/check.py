"""Whether an environment can be played: its code loads, and the model's template renders a conversation."""

from headrace.services.environment.app import check_digest
from headrace.services.environment.cast import cast_of, load_tokenizer, no_notes
from headrace.services.environment.player.rendering import ConversationRenderer
from headrace.services.environment.player.replicas import ReplicaDirectory
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.settings import EnvironmentSettings


async def check(settings: EnvironmentSettings) -> int:
    """Returns 0; raises ConfigError, EnvironmentFailedError."""
    check_digest(settings)
    renderer = ConversationRenderer(load_tokenizer(settings.model.path))
    pool = cast_of(settings, renderer, TurnClient(ReplicaDirectory()), 1, no_notes).pool
    try:
        async with pool.child():
            return 0
    finally:
        await pool.close()
