"""The verb `k8s render`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.cluster.objects import Submission
from headrace.cluster.render import render

k8s = typer.Typer(no_args_is_help=True)


@k8s.callback()
def _group() -> None:
    pass


@k8s.command("render")
def render_run(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The config.", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="Name and id of the run.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", help="A namespace that exists.", show_default=False)],
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs of trainer and rollouts together.")] = 0,
    queue: Annotated[str, typer.Option("--queue", help="Kueue's LocalQueue for pods with GPUs.")] = "",
    registry: Annotated[str, typer.Option("--registry", help="Where the images are.")] = "",
    component: Annotated[list[str] | None, typer.Option("--component", help="One more: keda, environment...")] = None,
    priority_class: Annotated[str, typer.Option("--priority-class", help="One for rollouts, which exists.")] = "",
    storage: Annotated[str, typer.Option("--storage", help="Size of the volume.")] = "200Gi",
    broker: Annotated[Path | None, typer.Option("--broker-url-file", help="Of a Valkey or Redis outside.")] = None,
    json: Json = False,
) -> None:
    """Prints the manifests of one run: `| kubectl apply -f -` submits it, `| kubectl delete -f -` removes it."""
    with reported_errors(json=json) as output:
        import yaml

        asked = Submission(
            name=name,
            namespace=namespace,
            gpus=gpus,
            queue=queue,
            registry=registry,
            components=component or (),
            priority_class=priority_class,
            storage=storage,
            broker=broker.read_text(encoding="utf-8").strip() if broker else "",
        )
        objects = render(file, asked)
        output.in_json({"apiVersion": "v1", "kind": "List", "items": objects})
        if not output.json:
            yaml.safe_dump_all(objects, sys.stdout, sort_keys=False)
