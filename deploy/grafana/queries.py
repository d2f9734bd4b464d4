"""Expressions that several dashboards share. `RUN` and `REPLICA` are selectors by the variables at their heads."""

from deploy.grafana.dashboard import Query, Variable

RUN = 'run=~"$run"'
RUN_VARIABLE = Variable(name="run", label="Run", query="label_values(headrace_build_info, run)")
REPLICA = 'run=~"$run", replica=~"$replica"'


def of_run(metric: str, legend: str = "{{run}}") -> Query:
    """A gauge that one process of a run has."""
    return Query(f"max by (run) ({metric}{{{RUN}}})", legend)


def largest(metric: str, by: str, legend: str) -> Query:
    """A gauge of a run by one of its labels."""
    return Query(f"max by (run, {by}) ({metric}{{{RUN}}})", legend)


def recorded(rule: str, legend: str) -> Query:
    """What a rule of `deploy/prometheus/rules` has computed for each run."""
    return Query(f"{rule}{{{RUN}}}", legend)


def each(metric: str, legend: str = "{{replica}}", *, where: str = REPLICA) -> Query:
    """A gauge of every replica."""
    return Query(f"max by (run, replica) ({metric}{{{where}}})", legend)


def rate(metric: str, by: str, legend: str, *, where: str = REPLICA) -> Query:
    """A counter's rise in a second."""
    return Query(f"sum by (run, {by}) (rate({metric}{{{where}}}[$__rate_interval]))", legend)


def increase(metric: str, by: str, legend: str, *, where: str = REPLICA) -> Query:
    """A counter's rise within one step of the panel."""
    return Query(f"sum by (run, {by}) (increase({metric}{{{where}}}[$__rate_interval]))", legend)


def quantile(share: float, metric: str, by: str, legend: str, *, where: str = REPLICA) -> Query:
    """A quantile of a histogram."""
    buckets = f"sum by (run, {by}, le) (rate({metric}_bucket{{{where}}}[$__rate_interval]))"
    return Query(f"histogram_quantile({share}, {buckets})", legend)
