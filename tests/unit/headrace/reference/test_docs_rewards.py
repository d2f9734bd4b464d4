"""What the docs about rewards show can be used as it stands: config, commands, options, names, links."""

import ast
import importlib.util
import itertools
import json
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from headrace.cli.app import app
from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from headrace.services.reward import metrics
from headrace.services.reward.judge.settings import JudgeOptions
from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.scorers.registry import BUILT_IN, USER

ROOT = Path(__file__).parents[4]
NAMES = ("rewards", "judges", "sandbox")
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


def test_every_block_is_looked_at() -> None:
    count = {kind: len(blocks(kind)) for kind in KINDS}
    tables = sum(text.count("[[reward.scorers]]\n") for text in DOCS.values())
    shown = sum(block.values[0].count("[[reward.scorers]]\n") for block in blocks("toml"))
    assert shown == tables and count["toml"] >= 10 and count["shell"] >= 2 and count["python"] >= 3


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


@pytest.mark.parametrize("block", blocks("shell"))
def test_a_command_exists_with_its_options(block: str) -> None:
    verbs: Any = typer.main.get_command(app)
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["headrace"]:
            verb = verbs.commands[words[1]]
            known = {option for one in verb.params for option in (*one.opts, *one.secondary_opts)}
            assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("block", blocks("python"))
def test_python_is_python(block: str) -> None:
    ast.parse(block)


def test_every_scorer_is_in_the_table() -> None:
    (table,) = re.findall(r"^\| scorer \|.*\n((?:\|.*\n)+)", DOCS["rewards"], re.MULTILINE)
    named = {name for row in table.splitlines() for name in re.findall(r"`([\w:]+)", row.split("|")[1])}
    assert named == {*BUILT_IN, "ensemble", "module:function", *(f"{prefix}:" for prefix in USER if prefix)}


def test_the_judges_options_are_those_of_the_table_with_their_defaults() -> None:
    (table,) = re.findall(r"^\| Option \|.*\n\|---.*\n((?:\|.*\n)+)", DOCS["judges"], re.MULTILINE)
    defaults = JudgeOptions(url="https://one.example/v1", model="m").model_dump(mode="json")
    for row in table.splitlines():
        named, given = row.split("|")[1:3]
        keys = re.findall(r"`(\w+)`", named)
        assert keys and set(keys) <= defaults.keys()
        plain = given.replace("`", "")
        # Several keys have their defaults side by side; a comma in a single one's is its own.
        for key, value in zip(keys, plain.split(", ") if len(keys) > 1 else [plain], strict=False):
            if re.fullmatch(r"[\d.]+|\[.*\]|true|false", value.strip()):
                assert json.loads(value) == defaults[key], key


def test_keys_that_are_named_exist() -> None:
    tables = "|".join(RunFile.model_fields)
    for name, text in DOCS.items():
        for table, key in re.findall(rf"`({tables})\.([a-z_]+)", text):
            kind = RunFile.model_fields[table].annotation
            assert isinstance(kind, type) and issubclass(kind, BaseModel)
            # The rows of verl have a table of that name.
            assert key in kind.model_fields or (table, key) == ("reward_model", "ground_truth"), (
                f"{name}: {table}.{key}"
            )


def test_metrics_that_are_named_exist() -> None:
    real = {one._name for one in vars(metrics).values() if hasattr(one, "_name")}
    assert set(re.findall(r"headrace_reward_\w+", "".join(DOCS.values()))) <= real


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
