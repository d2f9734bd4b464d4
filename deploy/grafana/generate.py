"""Writes the dashboards: `python -m deploy.grafana.generate`."""

import json
from pathlib import Path

from deploy.grafana.panels.fleet import DASHBOARD as FLEET
from deploy.grafana.panels.infrastructure import DASHBOARD as INFRASTRUCTURE
from deploy.grafana.panels.run import DASHBOARD as RUN

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = {"run": RUN, "fleet": FLEET, "infrastructure": INFRASTRUCTURE}


def rendered() -> dict[str, str]:
    """File name -> its text."""
    return {f"{name}.json": json.dumps(board.as_json(), indent=2) + "\n" for name, board in DASHBOARDS.items()}


def main() -> None:
    """Writes all of them."""
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
