"""Whether an environment can be played: its code loads, and the renderer agrees with the model's template."""

from headrace.services.environment.app import check_digest
from headrace.services.environment.cast import cast_of, no_notes
from headrace.services.environment.player.replicas import ReplicaDirectory
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.settings import EnvironmentSettings
from headrace.wire.rendering.tokenizers import load_tokenizer


async def check(settings: EnvironmentSettings) -> int:
    """Returns 0; raises ConfigError, EnvironmentFailedError."""
    check_digest(settings)
    cast = cast_of(settings, load_tokenizer(settings.model.path), TurnClient(ReplicaDirectory()), 1, no_notes)
    await cast.load()
    await cast.pool.close()
    return 0
