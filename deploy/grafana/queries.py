"""Expressions that several dashboards share. `RUN` and `REPLICA` are selectors by the variables at their heads."""

from deploy.grafana.dashboard import Query

RUN = 'run=~"$run"'
REPLICA = 'run=~"$run", replica=~"$replica"'


def of_run(metric: str, legend: str = "{{run}}") -> Query:
    """A gauge that one process of a run has."""
    return Query(expr=f"max by (run) ({metric}{{{RUN}}})", legend=legend)


def each(metric: str, legend: str = "{{replica}}", *, where: str = REPLICA) -> Query:
    """A gauge of every replica."""
    return Query(expr=f"max by (run, replica) ({metric}{{{where}}})", legend=legend)


def rate(metric: str, by: str, legend: str, *, where: str = REPLICA) -> Query:
    """A counter's rise in a second."""
    return Query(expr=f"sum by (run, {by}) (rate({metric}{{{where}}}[$__rate_interval]))", legend=legend)


def increase(metric: str, by: str, legend: str, *, where: str = REPLICA) -> Query:
    """A counter's rise within one step of the panel."""
    return Query(expr=f"sum by (run, {by}) (increase({metric}{{{where}}}[$__rate_interval]))", legend=legend)


def quantile(share: float, metric: str, by: str, legend: str, *, where: str = REPLICA) -> Query:
    """A quantile of a histogram."""
    buckets = f"sum by (run, {by}, le) (rate({metric}_bucket{{{where}}}[$__rate_interval]))"
    return Query(expr=f"histogram_quantile({share}, {buckets})", legend=legend)
