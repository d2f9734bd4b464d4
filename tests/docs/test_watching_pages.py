"""What docs/tracing.md and docs/trackers.md show is a valid config, and the names they tell are those of the code."""

import re
import tomllib
from pathlib import Path

import pytest

from headrace.config.schema import RunFile
from headrace.services.trainer.metrics import TRACKER_DROPPED, TRACKER_ERRORS
from headrace.wire.tracing.metrics import DROPPED
from tests.docs.pages import ROOT, blocks

PAGES = [ROOT / "docs" / name for name in ("tracing.md", "trackers.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_config_that_the_page_shows_is_one(page: Path) -> None:
    found = [tomllib.loads(block.text) for block in blocks("toml") if block.page == page]
    assert found
    for tables in found:
        config = RunFile.model_validate({"data": {"path": "rows.jsonl"}} | tables)
        assert config.tracing.endpoint or config.trackers.use or config.rollout.sglang.extra_args


def test_the_pages_tell_the_metrics_by_their_names() -> None:
    text = "".join(page.read_text() for page in PAGES)
    told = set(re.findall(r"headrace_\w+_total", text))
    assert told == {f"{metric._name}_total" for metric in (DROPPED, TRACKER_DROPPED, TRACKER_ERRORS)}


def test_the_page_names_every_span() -> None:
    text = (ROOT / "docs" / "tracing.md").read_text()
    sources = [*(ROOT / "services").rglob("*.py")]
    opened = {
        name for path in sources for name in re.findall(r'tracing\.(?:span|record)\(\s*"([^"]+)"', path.read_text())
    }
    assert opened >= {"issue", "generate", "score", "train", "step", "publish", "publication"}
    assert not [name for name in opened if f"`{name}`" not in text]
