"""A process that is killed while it replaces a file and a folder."""

import os
import subprocess
import sys

from headrace.wire.rundir import atomic


def test_a_killed_writer_leaves_the_old_content_and_the_next_one_goes_on(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text("old")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("old")
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom headrace.wire.rundir import atomic\n"
        "run = Path(sys.argv[1])\n"
        "with atomic.replaced_file(run / 'a.jsonl', durable=True) as one:\n"
        "    with atomic.replaced_folder(run / 'model', durable=True) as two:\n"
        "        one.write_text('ne'); (two / 'half').write_text('ne')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)
    assert done.returncode == -9
    assert (tmp_path / "a.jsonl").read_text() == "old" and os.listdir(tmp_path / "model") == ["weights"]
    left = sorted(name for name in os.listdir(tmp_path) if name.startswith(atomic.ASIDE))
    assert len(left) == 2 and [path.name for path in tmp_path.glob("*.jsonl")] == ["a.jsonl"]
    with atomic.replaced_folder(tmp_path / "model", durable=True) as aside:
        (aside / "weights").write_text("new")
    assert os.listdir(tmp_path / "model") == ["weights"] and (tmp_path / "model" / "weights").read_text() == "new"
