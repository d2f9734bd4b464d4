"""The demo's supervised stage fails: one line says why and names a log that is there."""

import os
from pathlib import Path

import pytest

from headrace.config.run_dir import check_fresh
from headrace.demo.demo import prepare_demo
from headrace.supervisor.once import ChildFailedError

_DIES = """
import sys
if "headrace.services.trainer" in sys.orig_argv:
    sys.stderr.write("there is no memory for it\\n")
    sys.stderr.flush()
    import os
    os._exit(7)
"""


def test_its_log_outlives_it(tmp_path: Path) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / "sitecustomize.py").write_text(_DIES)
    run_dir = tmp_path / "runs" / "one"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(faults), os.environ.get("PYTHONPATH", "")])}
    with pytest.raises(ChildFailedError) as caught:
        prepare_demo(run_dir, [], environment, lambda said: None)
    log = run_dir / "logs" / "sft.log"
    said = f"the supervised stage failed (status 7): there is no memory for it; its log is {log}"
    assert str(caught.value) == said
    assert log.read_text() == "there is no memory for it\n"
    # What it had made is gone, and a second try may begin.
    assert sorted(run_dir.iterdir()) == [run_dir / "logs", run_dir / "run"]
    check_fresh(run_dir)
