"""A run that an older version has stopped is in order for this one, resumes, and ends.

`golden_run.tar.xz` was written at commit 71035ad2 by `TinyRun(Path("/tmp/headrace-golden"), steps=40, replicas=1)`,
stopped after step 4; its broker's folder, logs and the files of its processes are left out. After a release that
changes what a run directory holds, one that this release has written joins it; the older ones stay.
"""

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.journal import StepDoneRecord, read_journal
from tests.e2e.harness import TinyRun
from tests.verbs import result

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ARCHIVE = Path(__file__).with_name("golden_run.tar.xz")
WRITTEN_AT = Path("/tmp/headrace-golden")
"""Its settings name model and data below this folder."""


class OlderRun(TinyRun):
    """The unpacked run."""

    def __init__(self, folder: Path) -> None:
        """Makes nothing: `folder` is what the archive held."""
        self.folder, self.run_dir, self.process = folder, folder / "run", None


@pytest.fixture
def older() -> Iterator[OlderRun]:
    shutil.rmtree(WRITTEN_AT, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(WRITTEN_AT, filter="data")
    run = OlderRun(WRITTEN_AT)
    try:
        yield run
    finally:
        run.close()
        shutil.rmtree(WRITTEN_AT)


def test_it_is_in_order_resumes_and_ends(older: OlderRun) -> None:
    before = result("check", older.run_dir)
    assert before["ok"] and before["steps"] == 4
    assert result("check", older.run_dir, "--receipt", before["receipt"])["ok"]
    older.start("--resume", "--run.max-steps", "8")
    line = older.finish()
    assert line["steps"] == 8
    after = older.check()
    assert after["groups"]["trained"] == 32
    records = [one.record for one in read_journal(older.run_dir / "journal")]
    assert [record.step for record in records if isinstance(record, StepDoneRecord)] == list(range(1, 9))
