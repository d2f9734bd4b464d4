"""What the docs about rewards show can be used as it stands: config, commands, options, names, links."""

import importlib.util
import itertools
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headrace.config.resolve import resolve
from headrace.services.reward.rubric.rubrics import Rubrics, context_of

ROOT = Path(__file__).parents[4]
NAMES = ("rewards", "rewards-yours", "annotation", "judges", "sandbox", "discriminator")
DOCS = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+", re.MULTILINE)
KINDS = {"toml": r"\[", "shell": r"(headrace|curl|pip) ", "python": r"def "}
"""How an indented block begins."""
SHELLS = {"console": "shell", "bash": "shell"}
"""Fences of commands."""


def blocks(kind: str) -> list[Any]:
    """Blocks of one language, of all docs."""
    found = []
    for name, text in DOCS.items():
        these = [one[2] for one in FENCED.finditer(text) if SHELLS.get(one[1], one[1]) == kind]
        for one in INDENTED.finditer(FENCED.sub("\n", text)):
            # A command and the config that goes with it may stand in one block.
            paragraphs = textwrap.dedent(one[0]).split("\n\n")
            parts = ["\n\n".join(some) for of, some in itertools.groupby(paragraphs, _kind) if of == kind]
            these += parts
        found += [pytest.param(block, id=f"{name}-{number}") for number, block in enumerate(these, start=1)]
    return found


def _kind(paragraph: str) -> str:
    return next((kind for kind, start in KINDS.items() if re.match(start, paragraph)), "")


@pytest.mark.parametrize("block", blocks("toml"))
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
