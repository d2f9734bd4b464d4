"""Prints what pyproject.toml asks for under the named extras, one requirement a line, without headrace itself.

So that dependencies are a layer of their own, which a change of our code does not build anew.
"""

import re
import sys
import tomllib
from pathlib import Path

_OWN = re.compile(r"headrace\[([a-z, ]+)\]")


def requirements(project: dict, extras: list[str]) -> list[str]:
    """Those of the project and its extras, also of extras that name other extras."""
    found, waiting, seen = list(project["dependencies"]), list(extras), set()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            own = _OWN.fullmatch(line)
            if own:
                waiting += [name.strip() for name in own.group(1).split(",")]
            else:
                found.append(line)
    return sorted(set(found))


if __name__ == "__main__":
    table = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    sys.stdout.write("".join(f"{line}\n" for line in requirements(table, sys.argv[2:])))
