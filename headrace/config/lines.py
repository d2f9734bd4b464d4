"""Finds the line of each key in a TOML file. `tomllib` reads the values but does not report their lines.

Works on text that `tomllib` has accepted, so it only has to find keys, not to judge them.
"""

import re

KeyPath = tuple[str | int, ...]

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_TOKEN = re.compile(r'"""|\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#.*|[\[\]{}]')


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line (from 1) of each table header and key; entries of arrays of tables carry their index."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if depth == 0 and not quote:
            header, key = _HEADER.match(line), _KEY.match(line)
            if header:
                prefix = _table_path(_parts(header[2]), header[1] == "[[", counts)
                lines.setdefault(prefix, number)
                continue
            if not key:
                continue
            path = prefix + _parts(key[1])
            for length in range(len(prefix) + 1, len(path) + 1):
                lines.setdefault(path[:length], number)
            line = line[key.end() :]
        depth, quote = _advance(line, depth, quote)
    return lines


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """Line of the key, or of the nearest table above it; 0 for none."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 0


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))


def _table_path(parts: tuple[str, ...], is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    path: KeyPath = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        if is_array and position == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _advance(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Bracket depth and open multi-line quote after one more line of a value."""
    position = 0
    while position < len(line):
        if quote:
            end = line.find(quote, position)
            if end < 0:
                return depth, quote
            position, quote = end + 3, ""
            continue
        token = _TOKEN.search(line, position)
        if token is None:
            break
        position = token.end()
        if token[0] in ('"""', "'''"):
            quote = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
    return depth, quote
