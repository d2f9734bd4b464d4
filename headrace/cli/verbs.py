"""The verbs of `headrace`, in the order in which `--help` lists them; a verb's module is imported when it is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headrace.cli.completion import DottedCommand
from headrace.cli.importing import importing


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, or a group of verbs."""

    name: str
    target: str
    """Module of `headrace.cli` and name in it: of a function, or of the `Typer` of a group."""
    help: str
    """Its first paragraph is the summary in `headrace --help`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of its command, as Typer takes them."""

    def load(self) -> Any:
        """Imports the verb's module and returns its command."""
        with importing():
            found = resolve_name(f"headrace.cli.{self.target}")
        app = typer.Typer()
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name, help=self.help)
        else:
            app.command(self.name, help=self.help, **self.options)(found)
        return typer.main.get_group(app).commands[self.name]


_DOTTED = {"cls": DottedCommand}
# fmt: off
VERBS = (
    Verb("init", "init:init",
        "Writes a run.toml, and code where it needs some, for a data file; without one, for a small one that it makes."
        "\n\nKinds: RL by checked answers (`math`), your own function (`reward`) or an agent (`tools`); `sft`, `dpo`."),
    Verb("train", "train:train",
        "Trains as configured in RUN.toml; `--resume` and `--fork` need only a run directory.", _DOTTED),
    Verb("check", "check:check",
        "Proves from journal and events that nothing was lost, trained twice, or trained under unverified weights."),
    Verb("algorithms", "algorithms:algorithms", "Lists the algorithms: parts, defaults, source, and when to use them."),
    Verb("demo", "demo:demo",
        "Teaches a tiny model to add, on two CPU cores in about three minutes: nothing to download, nothing to set up.",
        _DOTTED),
    Verb("status", "status:status", "Shows what a run is doing and what waits for what, or its results."),
    Verb("watch", "status:watch",
        "Shows a run live until it ends; Ctrl-C quits, the run continues. Without a terminal: a line at each refresh."),
    Verb("logs", "logs:logs",
        "Shows the logs of a run's services, by time: of all, or of one; `--follow` until it ends."),
    Verb("explain", "explain:explain",
        "Shows the life of a group or rollout from prompt to step: times, versions, scores, or its current place."),
    Verb("why", "why:why",
        "Ranks what moved most in a step against the steps before: reward components, data sources, lengths, metrics."),
    Verb("dashboard", "dashboard:dashboard",
        "Prints the link to a live run's dashboard, or serves the dashboard of an ended run until Ctrl-C."
        "\n\nThe link has a token: it is for the owner of the run. With `--json` it is the address, "
        "and the file of the token."),
    Verb("doctor", "doctor:doctor",
        "Checks whether this machine can run Headrace, or a RUN.toml; each failure comes with its fix."
        "\n\nExit status 1 if anything fails; warnings do not count.", _DOTTED),
    Verb("plot", "plot:plot",
        "Draws curves of runs as PNG and SVG: reward, accuracy, loss, KL, entropy, length, staleness, step time."),
    Verb("prepare", "prepare:prepare",
        "Prepares a run for services that Compose or Kubernetes starts; an existing run is resumed."),
    Verb("join", "join:join", 
        "Runs replicas of services on one more machine until the run ends (`--rollout --gpus 0-3`), or a part of its "
        "trainer (`--node 1`)."),
    Verb("pause", "operate:pause",
        "Stops issuing prompts: prompts in flight are trained, then the trainer waits for `resume`."),
    Verb("resume", "operate:resume", "Ends a pause: prompts are issued again."),
    Verb("checkpoint", "operate:checkpoint", "Requests a checkpoint after the trainer's current step."),
    Verb("stop", "operate:stop",
        "Stops a run after its step, with a checkpoint; `headrace train --resume` continues it."),
    Verb("drain", "operate:drain",
        "Drains a rollout replica: it finishes its prompts and takes no new ones, but stays alive."),
    Verb("dead", "dead:dead",
        "Lists the groups of a live run that were given up (dead letters), or issues their prompts again."),
    Verb("scale", "operate:scale",
        "Changes the number of replicas of a live run: `headrace scale rollout 4`; at 0 the trainer waits."
        "\n\nThose that go hand their work back at once. A later --resume starts with the number "
        "in the config again.", {"context_settings": {"ignore_unknown_options": True}}),
    Verb("export", "export:export",
        "Writes the model of a checkpoint as a Hugging Face folder; the run may be alive. Adapters are merged."),
    Verb("replay", "replay:replay",
        "Trains a run's journaled batches again, with the trainer alone: equal settings give equal weights."
        "\n\nOther hyper-parameters (--trainer.learning-rate 1e-6) show what would have come of the same rollouts."),
    Verb("generate", "generate:generate",
        "Generates an answer with the current policy of a live run, its newest checkpoint, or a model."),
    Verb("chat", "generate:chat",
        "Converses with the current policy of a live run, its newest checkpoint, or a model, until Ctrl-D."
        "\n\nWithout a terminal each line of stdin is a turn."),
    Verb("eval", "eval:evaluate",
        "Evaluates a model as a run does: by its services, scorers and `[[eval]]`, without training.", _DOTTED),
    Verb("score", "score:score",
        "Runs a scorer over a file of completions: "
        "`headrace score --reward math --input IN.jsonl --output OUT.jsonl`."),
    Verb("annotate", "annotate:annotate", "Serves the page on which people judge pairs of completions, until Ctrl-C."),
    Verb("make-model", "make_model:make_model",
        "Creates a tiny Qwen3 model with random weights and a BPE tokenizer, to try a config before the real model."),
    Verb("config", "config:config", "Checks, shows and compares configs."),
    Verb("runs", "runs:runs", "Lists and compares run directories."),
    Verb("k8s", "k8s:k8s", "Prints the Kubernetes manifests of a run."),
    Verb("certs", "certs:certs", "Makes and rotates the certificates and the tokens of gRPC."),
)
# fmt: on


class VerbGroup(TyperGroup):
    """Lists the verbs by their summaries alone, and loads one that is called or completed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({one.name: TyperCommand(one.name, help=one.help) for one in VERBS})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As Typer, with the command itself in place of its summary."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, next((one.load() for one in VERBS if one.name == name), command), rest
