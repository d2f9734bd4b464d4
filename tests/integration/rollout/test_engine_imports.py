"""What a replica of the torch engine imports, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from tests.rollout_models import make_model, save_folder

CHILD = """
import sys
from pathlib import Path
from headrace.services.rollout.engines.torch.engine import TorchEngine
engine = TorchEngine(Path(sys.argv[1]), max_rows=2)
print(*{"transformers.modeling_utils", "torch._dynamo", "torch.distributed.tensor"} & set(sys.modules))
engine.close(10)
"""


def test_an_engine_starts_without_importing_training_libraries(tmp_path: Path) -> None:
    folder = save_folder(make_model(), tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, folder], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "\n"
