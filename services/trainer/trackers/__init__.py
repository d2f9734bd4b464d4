"""Trackers: external services that receive the numbers of steps and evaluations. See docs/metrics.md.

The run directory's own files, `metrics.jsonl` and `evals.jsonl`, are the queue: a thread for each tracker reads them
behind the run. So a tracker that is slow, dead or hangs costs the run neither time nor memory, and one that comes back
gets what it has missed, even from a later life of the run.
"""

from headrace.services.trainer.trackers.tracker_set import Trackers, make_trackers

__all__ = ["Trackers", "make_trackers"]
