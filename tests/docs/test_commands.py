"""Every command that the documentation shows is one that this version understands."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import split_overrides
from headrace.cli.verbs import VERBS
from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from tests.docs.pages import KINDS, Block, blocks, commands, indented_commands


def of_pages() -> list[tuple[str, tuple[str, ...]]]:
    return sorted({(block.name, tuple(words)) for block in blocks("bash", "console") for words in commands(block.text)})


def test_every_code_block_declares_its_kind() -> None:
    strange = [(block.name, block.kind, block.text[:40]) for block in blocks() if block.kind not in KINDS]
    assert not strange


def test_no_command_hides_in_an_indented_block() -> None:
    assert not list(indented_commands()), "put these into a fence: ```bash (run by a test) or ```console (parsed)"


@pytest.mark.parametrize(("page", "words"), of_pages(), ids=lambda value: " ".join(value)[:60])
def test_a_command_parses(page: str, words: tuple[str, ...]) -> None:
    rest, overrides = split_overrides([word for word in words if word not in ("&", ">", "2>&1")])
    if not rest or rest[0] in ("--help", "--install-completion", "--show-completion", "--version"):
        return
    commands: dict[str, Any] = {one.name: one for one in VERBS}
    assert rest[0] in commands, f"{page}: there is no verb {rest[0]!r}"
    command = commands[rest.pop(0)].load()
    while rest and hasattr(command, "commands"):
        if rest[0] == "--help":
            return
        assert rest[0] in command.commands, f"{page}: there is no verb {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    for word in rest:
        if word.startswith("-") and not word.lstrip("-").replace(".", "").isdecimal():
            assert word.partition("=")[0].strip("[]") in known, f"{page}: {' '.join(words)}: no option {word}"
    keys = json.dumps(RunFile.model_json_schema())
    for word in overrides:
        if word.startswith("--"):
            last = word[2:].partition("=")[0].split(".")[-1].replace("-", "_").strip("[]")
            assert f'"{last}"' in keys, f"{page}: {word} is no key"


@pytest.mark.parametrize("block", [*blocks("toml")], ids=lambda block: f"{block.name}: {block.text[:30]}")
def test_a_config_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(block.text)
    resolve(file, arguments=[] if "[data]" in block.text else ["--data.path=rows.jsonl"])
