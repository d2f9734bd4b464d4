"""Inside the sandbox: a taskset with its harness as an environment of `verifiers`, or why it cannot be played."""

import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.envs.single_agent.env import SingleAgentEnv
from verifiers.v1.runtimes.subprocess import SubprocessRuntime
from verifiers.v1.utils.loaders import environment_class, harness_class

from headrace.services.environment.child.frames import Json
from headrace.services.environment.child.loading import LoadError, place_of
from headrace.services.environment.taskset.frames import TasksetConfig
from headrace.services.environment.taskset.harness import HarnessScripts


@dataclass(slots=True, kw_only=True)
class LoadedTaskset:
    """A taskset that can be played."""

    env: vf.Env
    tasks: Iterator[vf.Task] = field(default_factory=lambda: iter(()))
    """Those that are not read yet."""

    @property
    def executes_code(self) -> bool:
        """Whether the policy runs code of its own."""
        return any(harness_class(one.id).EXECUTES_CODE for one in self.env.config.agent_harnesses().values())

    def task(self, columns: Json) -> vf.Task:
        """The task of a row's columns; what the task's data has no field for is left out."""
        taskset = self.env.taskset
        kind = type(taskset).task_type()
        data = kind.data_type()
        known = columns if data.model_config.get("extra") == "allow" else columns.keys() & data.model_fields.keys()
        return kind(data.model_validate({key: columns[key] for key in known}), taskset.config.task)


def load(asked: TasksetConfig, path: Path | None, scripts: HarnessScripts) -> LoadedTaskset:
    """Imports the taskset, which may be a module below `path`, and builds its environment. Raises LoadError."""
    if path is not None:
        sys.path.append(str(path))
        # Servers of tools are processes of their own, which find their modules by it.
        found = [os.environ.get("PYTHONPATH", ""), str(path)]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    SubprocessRuntime.scripts_dir = str(scripts.folder / "scripts")
    # The package syncs a script with uv unless it has its interpreter: there is no network to sync it from here.
    SubprocessRuntime._interpreters.update(scripts.interpreters)
    try:
        env = _environment(asked)
        _check(env)
    except LoadError:
        raise
    except Exception as error:  # It is the user's code that is imported: it may raise anything.
        where = place_of(error)
        problem = f"{type(error).__name__}: {error}" + (f" ({where})" if where else "")
        raise LoadError(
            f"verifiers:{asked.taskset}: {problem}; a taskset is an installed package, or a module in "
            "environment.path, that exports its Taskset in __all__"
        ) from error
    return LoadedTaskset(env=env)


def _environment(asked: TasksetConfig) -> vf.Env:
    own = environment_class(asked.taskset)
    if not issubclass(own, SingleAgentEnv):
        raise LoadError(
            f"verifiers:{asked.taskset}: it comes with the environment {own.__name__}, which may let several agents "
            "play: an episode has one agent and one reward"
        )
    config = vf.taskset_config_type(asked.taskset).model_validate({**asked.options, "id": asked.taskset})
    agent = vf.AgentConfig.model_validate(
        {
            "harness": {"id": asked.harness},
            "runtime": {"type": "subprocess"},
            "max_turns": asked.max_turns,
            "max_total_tokens": asked.context_length,
        }
    )
    return vf.load_environment(vf.SingleAgentEnvConfig(taskset=config, agent=agent))


def _check(env: vf.Env) -> None:
    """Raises LoadError for a taskset that needs what a sandbox has not."""
    for name, harness in env.config.agent_harnesses().items():
        if harness_class(harness.id).NEEDS_CONTAINER:
            raise LoadError(f"the harness {harness.id} of {name} needs a container, and episodes run in bubblewrap")
    kind = type(env.taskset).task_type()
    if getattr(kind, "NEEDS_CONTAINER", False):
        raise LoadError(f"{kind.__name__} needs a container (NEEDS_CONTAINER), and episodes run in bubblewrap")
    if not inspect.isclass(kind.data_type()):
        raise LoadError(f"{kind.__name__} names no TaskData")
