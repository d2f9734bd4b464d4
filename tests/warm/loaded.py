"""Imported by the fork server of a worker: what it was loaded under. By its title no test takes it for a run's."""

import os

import setproctitle

setproctitle.setproctitle("pytest's fork server")
ENVIRONMENT = dict(os.environ)
