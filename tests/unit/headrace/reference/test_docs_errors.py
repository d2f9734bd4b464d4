"""docs/runbook.md and docs/config.md say what the code has, no more and no less."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from headrace.config.schema import RunFile
from headrace.services.trainer.reporter import FENCED_EXIT
from headrace.wire.contracts import DropReason, Header, PromptGroup, Rollout, Tombstone
from headrace.wire.entry import GIVEN_UP, REFUSED

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
CODE = re.compile(r"[a-z]+(_[a-z]+)*")


def sources() -> Iterator[Path]:
    for name in ("wire", "services", "headrace"):
        yield from (path for path in (ROOT / name).rglob("*.py") if "wire/v1/" not in str(path))


def raised() -> set[str]:
    """The codes of all ContractErrors: constants, also by a name of their module."""
    found = set()
    for path in sources():
        text = path.read_text(encoding="utf-8")
        if "ContractError" not in text:
            continue
        tree = ast.parse(text)
        named = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ContractError") and node.args:
                leaves = list(ast.walk(node.args[0]))
                found |= {one.value for one in leaves if isinstance(one, ast.Constant) and isinstance(one.value, str)}
                found |= {str(named[one.id]) for one in leaves if isinstance(one, ast.Name) and one.id in named}
    return found


def listed(heading: str) -> list[str]:
    """What the first cells of the rows below a heading name."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ((?:`?[\w.]+`?(?:, )?)+) \|", part, re.MULTILINE)
    return [name.strip("`") for cell in cells for name in cell.split(", ")]


def test_every_code_of_a_refused_message_is_told() -> None:
    codes = listed("Codes of refused messages")[1:]
    of_fields = {f"bad_{field.name}" for kind in (Header, PromptGroup, Rollout, Tombstone) for field in fields(kind)}
    assert raised() - {"bad_"} <= set(codes) <= raised() | of_fields and len(codes) == len(set(codes))
    assert all(CODE.fullmatch(code) for code in codes) and len(codes) > 30


def test_every_reason_of_a_drop_is_told() -> None:
    assert listed("Why a group was never trained")[1:] == [str(reason) for reason in DropReason]


def test_every_exit_status_is_told() -> None:
    assert {str(REFUSED), str(GIVEN_UP), str(FENCED_EXIT), "0", "1", "130"} <= set(listed("Exit statuses"))


def test_every_key_that_a_wait_names_is_one() -> None:
    for cell in re.findall(r"`([a-z_]+(?:\.[a-z_*]+)+)`", PAGE.split("\n## Waits\n")[1].split("\n## ")[0]):
        table: object = RunFile
        *path, last = cell.split(".")
        for name in path:
            table = table.model_fields[name].annotation  # type: ignore[attr-defined]
        assert last == "*" or last in table.model_fields, cell  # type: ignore[attr-defined]
