"""MLflow: a tracking server, or a database in the run directory."""

import json
from collections.abc import Mapping

from headrace.services.trainer.trackers.completions import COLUMNS, Rows
from headrace.services.trainer.trackers.tracker import Kind, TrackedRun

_LONGEST = 500
"""Characters of a parameter's value."""
_AT_ONCE = 100


class ToMlflow:
    """One MLflow run in the experiment that `trackers.project` names."""

    def __init__(self, place: TrackedRun) -> None:
        self._place = place

    def start(self, config: Mapping[str, object], previous: str) -> str:
        """Creates the run with the config as parameters, or sets `previous` to running; returns its id."""
        from mlflow.tracking import MlflowClient

        place = self._place
        uri = place.table.mlflow.uri or f"sqlite:///{place.folder / 'mlflow.db'}"
        # No separate model registry: one in a database would need more packages.
        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._run = previous
        if previous:
            self._client.update_run(previous, status="RUNNING")
            return previous
        known = self._client.get_experiment_by_name(place.table.project)
        experiment = known.experiment_id if known else self._create_experiment()
        run = self._client.create_run(experiment, run_name=place.name, tags={"headrace.run_id": place.run_id})
        self._run = run.info.run_id
        self._log_config(config)
        return self._run

    def _create_experiment(self) -> str:
        # Without a server, MLflow would keep the artifacts in the working directory.
        place = None if self._place.table.mlflow.uri else (self._place.folder / "mlflow").absolute().as_uri()
        return str(self._client.create_experiment(self._place.table.project, artifact_location=place))

    def log(self, kind: Kind, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Logs a batch of `train/` or `eval/` metrics."""
        from mlflow.entities import Metric

        self._client.log_batch(
            self._run,
            metrics=[Metric(f"{kind}/{name}", value, int(at * 1000), step) for name, value in numbers.items()],
        )

    def log_completions(self, step: int, rows: Rows) -> None:
        """Logs the artifact `completions/step-000001.json`, a table."""
        table = {"columns": COLUMNS, "data": [[row[name] for name in COLUMNS] for row in rows]}
        self._client.log_dict(self._run, table, f"completions/step-{step:06d}.json")

    def log_receipt(self, step: int, receipt: str) -> None:
        """Sets the tags `headrace.receipt` and `headrace.receipt_step`."""
        self._client.set_tag(self._run, "headrace.receipt", receipt)
        self._client.set_tag(self._run, "headrace.receipt_step", str(step))

    def finish(self) -> None:
        """Marks the run as finished."""
        self._client.set_terminated(self._run, "FINISHED")

    def _log_config(self, config: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        params = [Param(name, value[:_LONGEST]) for name, value in _flat(config).items() if value]
        for first in range(0, len(params), _AT_ONCE):
            self._client.log_batch(self._run, params=params[first : first + _AT_ONCE])


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """`{"run": {"seed": 1}}` as `{"run.seed": "1"}`."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return found
