"""The layout of a run directory: each file and folder, what it is, what writes it, and what its loss costs.

`RunPaths(path).metrics` is a path; `RunPaths.metrics` is what is known about it. Other modules know no name of a file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import overload

_LAUNCH = "`headrace train`, `prepare`"
_DEMO = "`headrace demo`, `prepare --demo`"
CONFINED = ("environment", "reward")
"""Services that run code of users and programs of the policy: the run directory is read-only to them in a deployment,
but for `events/SERVICE/`."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A file or folder of a run directory."""

    name: str
    """Path inside the run directory; a folder's ends with a slash."""
    what: str
    writer: str
    """The process that writes it; several may add files to a folder, each its own."""
    lost: str
    """What its loss costs."""
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

    run_toml = RunEntry(
        "config/run.toml",
        "the resolved config; its presence makes a folder a run directory",
        _LAUNCH,
        lost="the run cannot be resumed, nor found",
        before=True,
    )
    config = RunEntry(
        "config/",
        "the resolved config, and `NAME.json` with that of each process",
        _LAUNCH,
        lost="those of the processes are written again at each start",
        before=True,
    )
    data_summary = RunEntry(
        "config/data.json", "counts of the prepared data", _LAUNCH, lost="the data is prepared again", before=True
    )
    model_files = RunEntry(
        "config/model_files.json",
        "SHA-256 of config, tokenizer and weights in `model.path` at the first start; large files are sampled",
        _LAUNCH,
        lost="a resume notices no other model, and records the one that it finds",
        before=True,
    )
    code_digests = RunEntry(
        "config/algorithm.json",
        "SHA-256 of each file in `algorithm/`",
        _LAUNCH,
        lost="a run with functions of its own cannot be resumed",
        before=True,
    )
    environment_digests = RunEntry(
        "config/environment_code.json",
        "SHA-256 of each file in `environment/`",
        _LAUNCH,
        lost="made again with `environment/`",
        before=True,
    )
    prompts = RunEntry(
        "prompts.parquet",
        "tokenized prompts",
        _LAUNCH,
        lost="prepared again: another run, if the data has changed",
        before=True,
    )
    eval_prompts = RunEntry(
        "eval.parquet", "tokenized held-out prompts", _LAUNCH, lost="as `prompts.parquet`", before=True
    )
    examples = RunEntry(
        "examples.parquet",
        "tokenized examples or pairs of an offline stage",
        "`headrace train`",
        lost="prepared again: another run, if the data has changed",
        before=True,
    )
    eval_examples = RunEntry(
        "eval_examples.parquet", "those held out", "`headrace train`", lost="as `examples.parquet`", before=True
    )
    tokenizer = RunEntry(
        "tokenizer.json",
        "the model's, for a dashboard that cannot see the model",
        "`headrace prepare`",
        lost="the dashboard shows no text of single tokens",
        before=True,
    )
    model = RunEntry(
        "model/", "the model of `[model.make]`", _LAUNCH, lost="the same table makes the same model", before=True
    )
    base = RunEntry(
        "base/",
        "QLoRA: the rounded weights, for the engines",
        "`headrace train`",
        lost="written again at the next start",
        before=True,
    )
    code = RunEntry(
        "algorithm/",
        "the copy of `algorithm.path` that the run trains with",
        _LAUNCH,
        lost="copied again from `algorithm.path`, if that is unchanged",
        before=True,
    )
    environment = RunEntry(
        "environment/",
        "the copy of `environment.path` that the run plays",
        _LAUNCH,
        lost="copied again from `environment.path`, if that is unchanged",
        before=True,
    )
    demo = RunEntry(
        "demo/",
        "model, data and config that `headrace demo` has made",
        _DEMO,
        lost="made again in a new run directory",
        before=True,
    )
    demo_toml = RunEntry("demo/run.toml", "config of the demo", _DEMO, lost="as `demo/`", before=True)
    demo_model = RunEntry(
        "demo/model/",
        "model of the demo, after its supervised stage",
        _DEMO,
        lost="as `demo/`",
        before=True,
    )
    logs = RunEntry("logs/", "one log a process", "the processes", lost="costs only the log", before=True)
    processes = RunEntry(
        "run/",
        "pids, ports, locks and sockets of what runs now",
        "supervisor, trainer, replicas",
        lost="the live run cannot be controlled; the next start writes it again",
        before=True,
    )
    supervisor = RunEntry(
        "run/supervisor.json",
        "lock of the live supervisor, with its pid and control socket",
        "supervisor",
        lost="as `run/`",
        before=True,
    )
    control_socket = RunEntry(
        "run/control.sock", "control socket of the supervisor", "supervisor", lost="as `run/`", before=True
    )
    broker_socket = RunEntry(
        "run/socket/", "the folder of the embedded broker's socket", "supervisor", lost="as `run/`", before=True
    )
    rpc_sockets = RunEntry(
        "run/rpc/",
        "the sockets at which gRPC is served, unless the config fixes a port or there are certificates",
        "the services",
        lost="as `run/`",
        before=True,
    )
    tokens = RunEntry(
        "run/tokens/",
        "the token of each role, and the digests of those that services accept",
        "whatever starts first",
        lost="made again once all processes have ended; live ones keep theirs",
        before=True,
    )
    journal = RunEntry(
        "journal/",
        "the truth: which groups were trained or dropped, in which order; the batches since the last checkpoint",
        "trainer",
        lost="the run cannot be resumed or proven",
    )
    checkpoints = RunEntry(
        "checkpoints/",
        "the newest `trainer.keep_checkpoints` states to go on from",
        "trainer",
        lost="the run cannot be resumed, unless the journal still has all its batches",
    )
    metrics = RunEntry("metrics.jsonl", "one line a step", "trainer", lost="costs the curves")
    evals = RunEntry(
        "evals.jsonl",
        "one line an evaluation",
        "orchestrator; in an offline stage the trainer",
        lost="costs the curve; the current version may be evaluated once more",
    )
    rollouts = RunEntry(
        "rollouts/",
        "every trained rollout with reward and advantage, one parquet file a step",
        "trainer",
        lost="costs pages and annotations",
    )
    events = RunEntry(
        "events/",
        "what each process did, one file a life; those of reward and environment in a folder each; `headrace check` "
        "reads them",
        "each process its own file",
        lost="costs the proofs of `headrace check` that need it",
    )
    unreachable_peers = RunEntry(
        "events/NAME.unreachable",
        "the peers that a process has not reached for some seconds, while that lasts: `headrace status` shows them",
        "each process its own file",
        lost="nothing",
    )
    receipts = RunEntry(
        "receipts.jsonl",
        "the hash chain over journal, events, metrics and evaluations; a receipt is the SHA-256 of a line",
        "trainer; `headrace train` at the end",
        lost="receipts that were given out can no longer be checked",
    )
    state = RunEntry(
        "state.sqlite",
        "issued groups, their fates, evaluations under way",
        "orchestrator",
        lost="built again from the journal, without prompts issued again by hand; a damaged one: `state.damaged-N`",
    )
    broker = RunEntry(
        "broker/", "the embedded broker's streams", "the broker", lost="groups under way are issued again"
    )
    weights = RunEntry(
        "weights/",
        "the newest published versions, for engines that read them from disk",
        "trainer",
        lost="written again on request",
    )
    discriminator = RunEntry(
        "discriminator/",
        "the newest versions of the discriminator; `current` names one",
        "trainer",
        lost="published again by a resumed run",
    )
    reference_logprobs = RunEntry(
        "reference_logprobs.safetensors",
        "DPO: logprobs of the policy before its first step",
        "trainer",
        lost="computed again",
    )
    annotations = RunEntry(
        "annotations/", "votes of annotators", "the page of `headrace annotate`", lost="the votes are lost"
    )
    votes = RunEntry(
        "annotations/votes.jsonl",
        "every act of an annotator",
        "the page of `headrace annotate`",
        lost="the votes are lost",
    )
    ranked_pairs = RunEntry(
        "annotations/pairs.jsonl",
        'the ranked pairs, as `run.stage = "reward_model"` and `"dpo"` read them',
        "the page of `headrace annotate`",
        lost="made again from the votes",
    )
    trackers = RunEntry(
        "trackers/",
        "how far each tracker has been given the metrics; its own offline files",
        "trainer",
        lost="all steps are handed over again",
    )
    export = RunEntry("export/", "the trained model", "trainer", lost="`headrace export` makes it from a checkpoint")
    exports = RunEntry("exports/", "models of single checkpoints", "`headrace export`", lost="as `export/`")
    replay_source = RunEntry(
        ".source/",
        "while a replay runs: the batches and the checkpoint that it reads",
        "trainer of `headrace replay`",
        lost="the replay begins again",
    )
    staging = RunEntry(
        ".preparing/",
        "prepared files that are not yet published; left by a killed start",
        _LAUNCH,
        lost="the next start empties it",
        before=True,
    )

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
        """What is no log of theirs in the folders of the `CONFINED` services: no reader opens it."""
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
