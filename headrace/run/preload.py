"""Which libraries a run's fork server imports, and for which of its processes that pays."""

from importlib.util import find_spec
from pathlib import Path

from headrace.config.schema import RunFile
from headrace.model.model_check import check_model
from headrace.supervisor.fork_server.client import ForkServer, can_fork

TRAINER = ("headrace.services.trainer.stages.follower", "headrace.services.trainer.stages.rl")
OFFLINE = ("headrace.services.trainer.stages.offline.ranks",)
DATA = ("headrace.data.prepare", "headrace.data.prepare_examples")
REPLICA = ("headrace.services.rollout.app", "headrace.services.rollout.engines.torch.engine")
LIGHT = ("headrace.services.orchestrator.app", "headrace.services.reward.app", "headrace.wire.streams.redis")


def begin_fork_server(config: RunFile, env: dict[str, str], model: Path | None = None) -> ForkServer | None:
    """Starts the fork server of a run under `env`; None where it has none.

    `model`: a folder with a model of the same family, where the run's own is not there yet.

    Only for runs on a CPU: whether CUDA's libraries survive a fork has not been tried.
    """
    if config.run.device != "cpu" or not can_fork():
        return None
    family = check_model(model or config.model.path, engine="").family
    heavy = ["headrace.services.trainer", "headrace.data"]
    modules = [*DATA, *later(), f"transformers.models.{family}.modeling_{family}"]
    if config.run.stage != "rl":
        modules += OFFLINE
    else:
        modules += [*TRAINER, *LIGHT]
        if config.rollout.engine == "torch":
            heavy.append("headrace.services.rollout")
            modules += REPLICA
    return ForkServer(env, modules, heavy=heavy)


def later() -> list[str]:
    """What the services import only as they run: pyarrow imports pandas, where it is installed, for its first array."""
    return ["transformers.tokenization_utils_tokenizers", *(["pandas"] if find_spec("pandas") else [])]
