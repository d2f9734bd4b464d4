"""Writes what pyproject.toml asks for, headrace itself left out: `core.txt`, and `EXTRA.txt` for each extra.

    requirements.py pyproject.toml FOLDER

So dependencies are layers of their own, which neither a change of our code nor one of other extras builds anew.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

_OWN = re.compile(r"headrace\[([a-z, ]+)\]")


def of_extra(extras: dict[str, list[str]], name: str) -> set[str]:
    """Those of an extra, and of the extras that it names."""
    found: set[str] = set()
    for line in extras[name]:
        own = _OWN.fullmatch(line)
        if own:
            found.update(*(of_extra(extras, other.strip()) for other in own.group(1).split(",")))
        else:
            found.add(line)
    return found


def files_of(project: dict[str, Any]) -> dict[str, str]:
    """File name -> its text, one requirement a line."""
    extras = project["optional-dependencies"]
    lists = {"core": set(project["dependencies"]), **{name: of_extra(extras, name) for name in extras}}
    return {f"{name}.txt": "".join(f"{line}\n" for line in sorted(lines)) for name, lines in lists.items()}


if __name__ == "__main__":
    table = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    for name, text in files_of(table).items():
        (Path(sys.argv[2]) / name).write_text(text, encoding="utf-8")
