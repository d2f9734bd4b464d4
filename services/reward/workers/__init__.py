"""Worker processes for code that may hang or crash; only their killing bounds it."""

from headrace.services.reward.workers.errors import (
    JobDiedError,
    JobError,
    JobLostError,
    JobStarvedError,
    JobTimeoutError,
    WorkerError,
)
from headrace.services.reward.workers.pool import WorkerPool

__all__ = [
    "JobDiedError",
    "JobError",
    "JobLostError",
    "JobStarvedError",
    "JobTimeoutError",
    "WorkerError",
    "WorkerPool",
]
