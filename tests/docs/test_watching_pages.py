"""What docs/metrics.md shows of traces and trackers is a valid config, and its spans are those of the code."""

import re
import tomllib

from headrace.config.schema import RunFile
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "metrics.md"


def test_the_configs_that_the_page_shows_are_valid() -> None:
    found = [tomllib.loads(block.text) for block in blocks("toml") if block.page == PAGE]
    assert found
    for tables in found:
        config = RunFile.model_validate({"data": {"path": "rows.jsonl"}} | tables)
        assert config.tracing.endpoint or config.trackers.use or config.rollout.sglang.extra_args


def test_the_page_names_every_span() -> None:
    text = PAGE.read_text()
    sources = [*(ROOT / "services").rglob("*.py")]
    opened = {
        name for path in sources for name in re.findall(r'tracing\.(?:span|record)\(\s*"([^"]+)"', path.read_text())
    }
    assert opened >= {"issue", "generate", "score", "train", "step", "publish", "publication"}
    assert not [name for name in opened if f"`{name}`" not in text]
