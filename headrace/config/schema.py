"""The whole `run.toml`: every service's tables side by side."""

from headrace.data.settings import DataTable
from wire.settings import BatchTable, BrokerTable, ModelTable, RunTable, Table


class RunFile(Table):
    """All tables of a `run.toml`; the one place where they are seen together."""

    run: RunTable = RunTable()
    model: ModelTable = ModelTable()
    data: DataTable
    batch: BatchTable = BatchTable()
    broker: BrokerTable = BrokerTable()
