"""What the docs about rewards show can be used as it stands: config and links."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.config.resolve import resolve
from headrace.services.reward.rubric.rubrics import Rubrics, context_of

ROOT = Path(__file__).parents[4]
NAMES = ("rewards", "judges", "sandbox")
DOCS = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
FENCED = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[Any]:
    """Blocks of TOML, of all docs."""
    return [
        pytest.param(block, id=f"{name}-{number}")
        for name, text in DOCS.items()
        for number, block in enumerate(FENCED.findall(text), start=1)
    ]


@pytest.mark.parametrize("block", blocks())
def test_a_config_is_valid_down_to_the_scorers_options(block: str, tmp_path: Path) -> None:
    _make_what_it_names(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text(block.replace("/opt/for-programs", str(tmp_path)), encoding="utf-8")
    needed = [] if "[data]" in block else ["--data.path=rows.jsonl"]
    config = resolve(file, arguments=needed).config
    if config.run.stage == "rl":
        rubrics = Rubrics(config.reward, context_of(config.reward, run_dir=tmp_path))
        assert rubrics.names


def _make_what_it_names(folder: Path) -> None:
    """Scorers look for their files when they are built."""
    for name in ("secrets", "models/a", "models/b"):
        (folder / name).mkdir(parents=True)
    (folder / "secrets" / "judge").write_text("a-key\n")
    model = {"vocab_size": 8, "architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "score"}}
    for name in ("a", "b"):
        (folder / "models" / name / "config.json").write_text(json.dumps(model))


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.stem
)
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)", text):
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, anchor
    for place in re.findall(r"`((?:tests|benchmarks|examples|docs|services|deploy)/[\w./-]+)`", text):
        assert (ROOT / place).exists(), place
    for module in re.findall(r"python -m ((?:benchmarks|services|headrace)[\w.]*)", text):
        assert importlib.util.find_spec(module) is not None, module
