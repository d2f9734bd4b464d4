"""The layout of a run directory. docs/running.md says what each entry is, what writes it, and what its loss costs.

`RunPaths(path).metrics` is a path; `RunPaths.metrics` is its entry. Other modules know no name of a file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import overload

CONFINED = ("environment", "reward")
"""Services that run code of users and programs of the policy: the run directory is read-only to them in a deployment,
but for `events/SERVICE/`."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A file or folder of a run directory."""

    name: str
    """Path inside the run directory; a folder's ends with a slash."""
    before: bool = False
    """Whether it may be there before the run begins: made by its preparation, or by a start that failed."""

    @property
    def top(self) -> str:
        """First part of the path: the entry's name in the run directory itself."""
        return self.name.partition("/")[0]

    @overload
    def __get__(self, run: None, owner: type["RunPaths"]) -> "RunEntry": ...
    @overload
    def __get__(self, run: "RunPaths", owner: type["RunPaths"]) -> Path: ...
    def __get__(self, run: "RunPaths | None", owner: type["RunPaths"]) -> "RunEntry | Path":
        return self if run is None else run.path / self.name


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The paths in one run directory; nothing is created or read here."""

    path: Path

    run_toml = RunEntry("config/run.toml", before=True)
    config = RunEntry("config/", before=True)
    data_summary = RunEntry("config/data.json", before=True)
    model_files = RunEntry("config/model_files.json", before=True)
    fork = RunEntry("config/fork.json", before=True)
    code_digests = RunEntry("config/algorithm.json", before=True)
    environment_digests = RunEntry("config/environment_code.json", before=True)
    prompts = RunEntry("prompts.parquet", before=True)
    eval_prompts = RunEntry("eval.parquet", before=True)
    examples = RunEntry("examples.parquet", before=True)
    eval_examples = RunEntry("eval_examples.parquet", before=True)
    tokenizer = RunEntry("tokenizer.json", before=True)
    model = RunEntry("model/", before=True)
    base = RunEntry("base/", before=True)
    code = RunEntry("algorithm/", before=True)
    environment = RunEntry("environment/", before=True)
    demo = RunEntry("demo/", before=True)
    demo_toml = RunEntry("demo/run.toml", before=True)
    demo_model = RunEntry("demo/model/", before=True)
    logs = RunEntry("logs/", before=True)
    processes = RunEntry("run/", before=True)
    supervisor = RunEntry("run/supervisor.json", before=True)
    control_socket = RunEntry("run/control/", before=True)
    broker_socket = RunEntry("run/socket/", before=True)
    rpc_sockets = RunEntry("run/rpc/", before=True)
    tokens = RunEntry("run/tokens/", before=True)
    journal = RunEntry("journal/")
    checkpoints = RunEntry("checkpoints/")
    metrics = RunEntry("metrics.jsonl")
    evals = RunEntry("evals.jsonl")
    rollouts = RunEntry("rollouts/")
    kept_ids = RunEntry("kept_ids/")
    evaluations = RunEntry("evaluations/")
    events = RunEntry("events/")
    receipts = RunEntry("receipts.jsonl")
    state = RunEntry("state.sqlite")
    broker = RunEntry("broker/")
    weights = RunEntry("weights/")
    discriminator = RunEntry("discriminator/")
    reference_logprobs = RunEntry("reference_logprobs.safetensors")
    annotations = RunEntry("annotations/")
    votes = RunEntry("annotations/votes.jsonl")
    ranked_pairs = RunEntry("annotations/pairs.jsonl")
    trackers = RunEntry("trackers/")
    export = RunEntry("export/")
    exports = RunEntry("exports/")
    replay_source = RunEntry(".source/")
    staging = RunEntry(".preparing/", before=True)

    def settings(self, process: str) -> Path:
        """Config of one process, by its name: `trainer`, `rollout-1`."""
        return self.config / f"{process}.json"

    def log(self, process: str) -> Path:
        """Log of one process."""
        return self.logs / f"{process}.log"

    def process(self, name: str) -> Path:
        """Pid and ports of one live process."""
        return self.processes / f"{name}.json"

    def rollout_file(self, step: int) -> Path:
        """The rollouts trained in one step."""
        return rollout_file(self.rollouts, step)

    def checkpoint(self, step: int) -> Path:
        """The checkpoint of one step."""
        return self.checkpoints / f"step-{step:06d}"

    def unreachable(self, process: str) -> Path:
        """The file of one process about the peers that it cannot reach; of a `CONFINED` one, its name in its folder."""
        return self.events / f"{process}.unreachable"

    def unreachable_files(self) -> list[Path]:
        """These files of all processes."""
        folders = (self.events, *(self.own_events(name) for name in CONFINED if not self.own_events(name).is_symlink()))
        return sorted(path for folder in folders for path in folder.glob("*.unreachable"))

    @property
    def played_ids(self) -> Path:
        """As `kept_ids`, of episodes: below the folder to which a deployment lets their service write."""
        return self.own_events("environment") / "kept_ids"

    def own_events(self, service: str) -> Path:
        """The folder for event logs of one of the `CONFINED` services."""
        return self.events / service

    def event_files(self, service: str = "") -> list[Path]:
        """The event logs of a service, or of all processes, by name."""
        found = list(self.events.glob(f"{service}-*.jsonl" if service else "*.jsonl"))
        for name in (service,) if service else CONFINED:
            found += (path for path in self._of_confined(name) if _is_log(path, name))
        return sorted(found, key=lambda path: path.name)

    def odd_event_files(self) -> list[Path]:
        """Files in the folders of the `CONFINED` services that are not their logs: no reader opens them."""
        links = [self.own_events(name) for name in CONFINED if self.own_events(name).is_symlink()]
        return links + [path for name in CONFINED for path in self._of_confined(name) if not _is_log(path, name)]

    def _of_confined(self, service: str) -> list[Path]:
        folder = self.own_events(service)
        return [] if folder.is_symlink() else sorted(folder.glob("*.jsonl"))


def _is_log(path: Path, service: str) -> bool:
    """Named after its service, no link, which could lead to a file that the writer cannot read, and no pipe."""
    return path.name.startswith(f"{service}-") and path.is_file() and not path.is_symlink()


def rollout_file(folder: Path, step: int) -> Path:
    """The file of one step in a folder of rollouts."""
    return folder / f"step-{step:06d}.parquet"


def entries() -> Iterator[RunEntry]:
    """All entries, as declared."""
    return (value for value in vars(RunPaths).values() if isinstance(value, RunEntry))
