"""Every verb can be read by a script."""

from collections.abc import Iterator
from typing import Any

from headrace.cli.verbs import VERBS


def verbs(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from verbs(one, f"{name} {word}".strip())


def test_every_verb_takes_json() -> None:
    found = dict(pair for one in VERBS for pair in verbs(one.load(), one.name))
    assert {"status", "watch", "explain", "doctor", "plot", "config show", "config diff", "runs list"} <= set(found)
    without = {name for name, verb in found.items() if not any("--json" in parameter.opts for parameter in verb.params)}
    assert not without
