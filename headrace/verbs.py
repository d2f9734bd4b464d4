"""The verbs that have modules of their own, in the order in which `headrace --help` lists them."""

import typer

from headrace.annotate import annotate
from headrace.prepare_verb import prepare
from headrace.score_verb import score


def add_verbs(app: typer.Typer) -> None:
    """Registers them."""
    app.command()(prepare)
    app.command()(score)
    app.command()(annotate)
