"""Settings of the environment service."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from headrace.wire.config.settings import ServiceSettings, Table

TEMPLATE = "template"
"""The renderer that is the model's own chat template."""
VERIFIERS = "verifiers:"
"""Prefix of an environment that is a taskset."""


class EnvironmentTable(Table):
    """`[environment]`: episodes in place of single completions: the rows of `[data]` are tasks, played with tools."""

    name: str = ""
    """Your class, `module:Class`, with `reset` and `step`; `trl:module:factory`: an `environment_factory` of TRL's;
    `verifiers:taskset`: a taskset of the package verifiers; empty = `tools` alone, or no environment at all."""
    options: dict[str, object] = Field(default_factory=dict)
    """Fields of the taskset's config, for `verifiers:taskset`."""
    harness: str = "null"
    """Program that plays a taskset: `null` = a loop of chat completions with its tools, `bash` = with a shell beside
    them."""
    tools: tuple[str, ...] = ()
    """Functions with type hints that the policy may call, each `module:function`."""
    rewards: tuple[str, ...] = ()
    """Reward functions of TRL's that take `environments`, each `module:function`; with `trl:module:factory` alone."""
    command: tuple[str, ...] = ()
    """Words of a program that is the agent, such as `["python", "agent.py"]`, in place of `name` and `tools`: it is run
    once an episode in bubblewrap, and the policy is its OpenAI-compatible endpoint (`OPENAI_BASE_URL`,
    `OPENAI_API_KEY`). It starts in a folder with a copy of `path` and the row as `task.json`."""
    reward_command: tuple[str, ...] = ()
    """Run in the same folder once the program has ended, without the endpoint, such as `["bash", "tests/test.sh"]`;
    what it names at the top of `path` (here `tests`) is kept from the program."""
    reward_file: str = ""
    """File with the reward, in that folder: a number, or, as `*.json`, an object of `reward` and components; empty =
    `/logs/verifier/reward.txt` or `.json` where there is a `reward_command`, else no reward."""
    path: Path | None = None
    """Folder of your modules, last on the import path. It is copied into the run directory at the start, and episodes
    import the copy."""
    renderer: str = TEMPLATE
    """What renders conversations and reads calls of tools: `template` = the model's chat template, or a family of the
    package renderers, such as `qwen3` or `glm-4.5`; refused where it renders otherwise than the template."""
    max_turns: int = Field(8, ge=1)
    """Most turns of an episode; one that has had them is scored as it stands."""
    max_turn_tokens: int = Field(0, ge=0)
    """Most tokens that the policy samples in a turn; 0 = what is left of `rollout.sampling.max_tokens`, which bounds
    those of a whole episode."""
    replicas: int = Field(1, ge=1)
    """Environment services that share the work; `headrace scale environment N` changes their number during the run."""
    slots: int = Field(8, ge=1)
    """Episodes that one service plays at a time, each in a process of its own."""
    episode_s: float = Field(300.0, gt=0)
    """Seconds for an episode; one that takes longer abstains: it is in no baseline and is not trained."""
    turn_s: float = Field(120.0, gt=0)
    """Seconds in which an engine samples a turn; they do not pass during a publication."""
    tool_s: float = Field(30.0, gt=0)
    """Seconds for a call of the environment: its reset, one step with its tools, its reward. At the deadline its
    process is killed, and the episode abstains."""
    start_s: float = Field(60.0, gt=0)
    """Seconds in which your code is imported."""
    hold_s: float = Field(5.0, ge=0)
    """Seconds for which a group is held that needs newer weights, while they are published, before it is handed back.
    It takes no slot meanwhile."""
    outage_s: float = Field(300.0, gt=0)
    """Seconds for which every episode may fail by an error of the environment before the run stops with the reason."""
    max_result_chars: int = Field(4000, ge=1)
    """Longest result of a tool that the policy reads; the rest is cut, and its end says so."""
    memory_mib: int = Field(2048, ge=0)
    """Address space of an episode's process; 0 = no limit."""
    cpu_s: float = Field(0.0, ge=0)
    """Seconds of a CPU that an episode may use; 0 = no limit."""
    network: bool = False
    """Whether environments and tools may use the network; without it they run in bubblewrap."""
    sandbox: Literal["auto", "none"] = "auto"
    """`auto` = in bubblewrap, which hides files and processes, where it is installed; `none` = never, with
    `network = true` alone: only for a machine or container that holds nothing to hide."""
    folders: tuple[Path, ...] = ()
    """Further folders that environments and tools may read; of all others they see Python's and the copy of `path`."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that they are given, such as a key of an API; of all others they see a few that
    name the places of programs and certificates."""

    @property
    def on(self) -> bool:
        """Whether rows are played."""
        return bool(self.name or self.tools or self.command)

    @property
    def taskset(self) -> str:
        """The taskset of verifiers that is played; empty = none."""
        return self.name.removeprefix(VERIFIERS) if self.name.startswith(VERIFIERS) else ""

    @property
    def label(self) -> str:
        """Its name for people and messages."""
        return self.name or "+".join(self.tools) or " ".join(self.command)

    @property
    def key(self) -> str:
        """The key that says what is played."""
        return "command" if self.command else "name" if self.name else "tools"

    @model_validator(mode="after")
    def _is_whole(self) -> "EnvironmentTable":
        if self.path is not None and not self.on:
            raise ValueError("path is given, but neither name, tools nor command say what is played")
        if self.command and (self.name or self.tools):
            raise ValueError("command is a program that plays in place of name and tools: leave these out")
        if self.command and (self.network or self.sandbox == "none"):
            raise ValueError(
                "command has no network but the policy's endpoint, so that the sandbox can keep every other port from "
                "it: leave network and sandbox out"
            )
        if (self.reward_command or self.reward_file) and not self.command:
            raise ValueError("reward_command and reward_file are for command: a name's class has a method reward")
        if self.taskset and self.tools:
            raise ValueError("a taskset brings its own tools: leave environment.tools out")
        if not self.taskset and (self.options or self.harness != "null"):
            raise ValueError('options and harness are for name = "verifiers:taskset"')
        if self.rewards and not self.name.startswith("trl:"):
            raise ValueError(
                'rewards are for name = "trl:module:factory"; name a reward function that needs no environment as a '
                'scorer: [[reward.scorers]] name = "module:function"'
            )
        if self.sandbox == "none" and not self.network:
            raise ValueError(
                'sandbox = "none" leaves nothing that keeps an environment from the network: set network = true, or '
                "leave sandbox out"
            )
        return self


class EnvironmentSettings(ServiceSettings):
    """All settings of the environment service. Built once in `__main__`, passed down, never looked up."""

    environment: EnvironmentTable = EnvironmentTable()
    events: Path | None = None
    """Folder of its event log, as it is mounted here; none = RUN/events/environment."""
    context_length: int = Field(0, ge=0)
    """Longest context and completion together; 0 = the model's own limit."""
    deterministic: bool = False
    """`rollout.deterministic`: a time limit that ends an episode is reported, as it depends on the machine."""
    environment_digest: str = ""
    """Digest of the environment's code and config when the run began; a service with another one refuses to play."""


class PlayTable(Table):
    """`[play]`: one episode for people."""

    task_json: str
    max_tokens: int = Field(128, ge=1)
    temperature: float = Field(1.0, gt=0)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    greedy: bool = False
    seed: int | None = Field(None, ge=0)
    stop_token_ids: tuple[int, ...] = ()
    address: str = ""
    """host:port of the replica that samples the turns; empty = those that the orchestrator lists."""
    version: int = Field(0, ge=0)
    """Version of the weights behind `address`: a number of steps."""


class PlayOnceSettings(EnvironmentSettings):
    """A worker's settings, and the episode."""

    play: PlayTable
