"""The schema of the dashboard's API, from which the page's types are made: `ui/openapi.json`."""

import json
import tempfile
from pathlib import Path

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.serve import page_app
from headrace.wire.rundir.layout import RunPaths


def as_json() -> str:
    """What `/openapi.json` answers, indented; the routes need a run directory, which the schema leaves out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        RunPaths(folder).config.mkdir()
        RunPaths(folder).run_toml.write_text("[run]\n")
        files = Files.of(folder, folder)
        app = page_app(Board(files, EndedRun(files)), AnnotationService(folder), lambda _: frozenset())
        return json.dumps(app.openapi(), indent=1) + "\n"
