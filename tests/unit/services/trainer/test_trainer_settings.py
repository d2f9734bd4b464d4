import subprocess
import sys

import pytest
from pydantic import ValidationError

from headrace.services.trainer.settings import TrainerSettings, TrainerTable


def test_defaults_are_valid_and_unknown_keys_are_errors():
    assert TrainerSettings().algorithm.name == "grpo"
    with pytest.raises(ValidationError, match="learnin_rate"):
        TrainerTable.model_validate({"learnin_rate": 1})


def test_settings_and_journal_import_without_torch():
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import headrace.services.trainer.settings, headrace.wire.journal\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)
