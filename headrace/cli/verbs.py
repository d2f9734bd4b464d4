"""The verbs that have modules of their own, in the order in which `headrace --help` lists them."""

import typer

from headrace.cli.annotate import annotate
from headrace.cli.certs import certs
from headrace.cli.completion import DottedCommand
from headrace.cli.config import config
from headrace.cli.dashboard import dashboard
from headrace.cli.dead import dead
from headrace.cli.doctor import doctor
from headrace.cli.eval import evaluate
from headrace.cli.explain import explain
from headrace.cli.export import export
from headrace.cli.generate import generate
from headrace.cli.join import join
from headrace.cli.operate import checkpoint, drain, pause, resume, scale, stop
from headrace.cli.plot import plot
from headrace.cli.prepare import prepare
from headrace.cli.replay import replay
from headrace.cli.runs import runs
from headrace.cli.score import score
from headrace.cli.status import status, watch


def add_verbs(app: typer.Typer) -> None:
    """Registers them."""
    app.command()(status)
    app.command()(watch)
    app.command()(explain)
    app.command()(dashboard)
    app.command(cls=DottedCommand)(doctor)
    app.command()(plot)
    app.add_typer(config, name="config")
    app.add_typer(runs, name="runs")
    app.add_typer(certs, name="certs")
    app.command()(prepare)
    app.command()(join)
    for act in (pause, resume, checkpoint, stop, drain, dead):
        app.command()(act)
    # A negative number is refused in words of its own.
    app.command(context_settings={"ignore_unknown_options": True})(scale)
    app.command()(export)
    app.command()(replay)
    app.command()(generate)
    app.command("eval", cls=DottedCommand)(evaluate)
    app.command()(score)
    app.command()(annotate)
