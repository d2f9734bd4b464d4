"""The verbs that have modules of their own, in the order in which `headrace --help` lists them."""

import typer

from headrace.annotate import annotate
from headrace.completion import DottedCommand
from headrace.config_verb import config
from headrace.dashboard import dashboard
from headrace.dead_verb import dead
from headrace.doctor.verb import doctor
from headrace.explain_verb import explain
from headrace.export_verb import export
from headrace.generate_verb import generate
from headrace.join_verb import join
from headrace.operate_verbs import checkpoint, drain, pause, resume, scale, stop
from headrace.plot.verb import plot
from headrace.prepare_verb import prepare
from headrace.replay_verb import replay
from headrace.runs.verb import runs
from headrace.score_verb import score
from headrace.status_verb import status, watch


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
    app.command()(prepare)
    app.command()(join)
    for act in (pause, resume, checkpoint, stop, drain, dead):
        app.command()(act)
    # A negative number is refused in words of its own.
    app.command(context_settings={"ignore_unknown_options": True})(scale)
    app.command()(export)
    app.command()(replay)
    app.command()(generate)
    app.command()(score)
    app.command()(annotate)
