"""The dashboards as JSON, which the `generate.py` of the repository writes."""

import json
from pathlib import Path

from deploy.grafana.panels.fleet import DASHBOARD as FLEET
from deploy.grafana.panels.run import DASHBOARD as RUN

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = {"run": RUN, "fleet": FLEET}


def rendered() -> dict[str, str]:
    """File name -> its text."""
    return {f"{name}.json": json.dumps(board.as_json(), indent=2) + "\n" for name, board in DASHBOARDS.items()}
