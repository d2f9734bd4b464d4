"""Whether an environment can be played: its code loads, and the renderer agrees with the model's template."""

from headrace.services.environment.app import check_digest, child_config, limits_of, load_tokenizer
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.rendering.choice import conversation_renderer
from headrace.services.environment.settings import EnvironmentSettings


async def check(settings: EnvironmentSettings) -> int:
    """Returns 0; raises ConfigError, EnvironmentFailedError."""
    check_digest(settings)
    limits_of(settings)
    renderer = conversation_renderer(settings.environment.renderer, load_tokenizer(settings.model.path))
    child = ChildProcess(child_config(settings))
    try:
        await child.start()
        renderer.check(child.tools)
    finally:
        await child.kill()
    return 0
