"""The verb `init`."""

import json as json_
import re
from itertools import islice, product
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.cli.init_files import AGENT, CONFIG, ENVIRONMENT, MADE, OWN, REWARD, RL, SCORERS, STAGE
from headrace.cli.init_guess import Guess, Kind, guess
from headrace.config.resolve import DATA_SUFFIXES
from headrace.data.rows import DataRow, parse_rows, raise_all, read_rows
from headrace.wire.errors import ConfigError

_LOOKED_AT, _MOST = 100, 10_000
_RATES = {"sft": "1e-5", "dpo": "5e-7"}
"""Learning rates of a real model, beside 1e-6 for RL."""


def init(
    data: Annotated[str, typer.Argument(help="Data file, or id of a dataset. Default: a small file is made.")] = "",
    kind: Annotated[Kind | None, typer.Option("--kind", help="Default: by the columns.")] = None,
    model: Annotated[str, typer.Option("--model", help="Folder, or id of the Hub. Default: a tiny model.")] = "",
    out: Annotated[Path, typer.Option("--out", help="Folder to write into.")] = Path(),
    json: Json = False,
) -> None:
    with reported_errors(json=json, place=out) as output:
        texts, rows = {}, _sample(kind or "reward")
        if data:
            read = islice(read_rows(data, subset="", split="train"), _MOST)
            rows, errors = parse_rows(read, lambda row: row)
            raise_all(errors if rows else [*errors, f"{data}: there are no rows"])
        else:
            data = str(out / "data.jsonl")
            texts["data.jsonl"] = "".join(json_.dumps(row.values) + "\n" for row in rows)
        found = guess(rows[:_LOOKED_AT], kind)
        if not found.prompt and found.kind != "dpo":
            names = ", ".join(rows[0].values)
            raise ConfigError(f"{data}: which of its columns is the prompt? It has {names}: name that one prompt")
        texts["run.toml"] = _config(found, rows, data, model, out)
        if found.kind == "reward":
            texts["reward.py"] = REWARD
        elif found.kind == "tools":
            texts["agent/agent.py"] = AGENT.format(prompt=_quoted(found.prompt), answer=_quoted(found.answer))
        files = {out / name: text for name, text in texts.items()}
        if there := [path for path in files if path.exists()]:
            raise ConfigError(f"{there[0]} is there already: move it away, or choose another folder with --out")
        try:
            for path, text in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise ConfigError(f"{out} takes no files ({error.strerror}): choose another folder with --out") from None
        output.say(f"{data}: {_count(rows)} rows for the kind {found.kind}; the first: {str(rows[0].values)[:300]}")
        output.say(f"written: {', '.join(map(str, files))}; next:")
        output.say(f"  headrace train {out / 'run.toml'} --dry-run\n  headrace train {out / 'run.toml'}")
        output.in_json({"kind": found.kind, "rows": len(rows), "files": [str(path) for path in files]})


def _config(found: Guess, rows: list[DataRow], data: str, model: str, out: Path) -> str:
    """The text of run.toml. Raises ConfigError."""
    if not model and not data.endswith(DATA_SUFFIXES):
        raise ConfigError(f"a tiny model cannot be made from {data}: give --model")
    kind, path = found.kind, _seen_from(out, data)
    is_rl, rate, held_out = kind in SCORERS, _RATES.get(kind, "1e-6"), min(64, len(rows) // 10)
    # A task is the row as it is.
    columns = {} if kind == "tools" else found.table.columns
    return (CONFIG + (RL if is_rl else STAGE)).format(
        rows=_count(rows),
        names="".join(one for one in ", ".join(rows[0].values) if one.isprintable()),
        table="trainer" if is_rl else kind,
        id=_quoted(re.sub(r"[^a-z0-9_-]+", "-", out.resolve().name.lower()).strip("-") or "run"),
        run=f"max_steps = {200 if model else 20}" if is_rl else f'stage = "{kind}"',
        model=f"[model]\npath = {_seen_from(out, model)}" if model else MADE.format(path=path),
        path=path,
        preset="" if found.table.preset == "plain" else f'preset = "{found.table.preset}"\n',
        columns="\n[data.columns]\n" * bool(columns) + "".join(f"{k} = {_quoted(v)}\n" for k, v in columns.items()),
        eval_size=held_out,
        groups=min(8, len(rows) - held_out),
        tokens=512 if model else 64 if kind == "tools" else 16,
        environment={"tools": ENVIRONMENT, "reward": OWN}.get(kind, ""),
        scorer=SCORERS.get(kind),
        rate=rate if model else f"1e-3          # {rate} for a real model",
    )


def _count(rows: list[DataRow]) -> str:
    return f"{len(rows)} or more" if len(rows) == _MOST else str(len(rows))


def _seen_from(folder: Path, path: str) -> str:
    """What a config in the folder calls a path, in quotes; the id of a model or dataset as it is."""
    found, base = Path(path).resolve(), folder.resolve()
    is_file = found.exists() or path.endswith(DATA_SUFFIXES)
    return _quoted(str(found.relative_to(base) if found.is_relative_to(base) else found) if is_file else path)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return json_.dumps(text, ensure_ascii=False)


def _sample(kind: Kind) -> list[DataRow]:
    """Sums of two numbers."""
    role = {"sft": "completion", "dpo": "chosen"}.get(kind, "answer")
    sums = product(range(10, 26), repeat=2)
    rows = [{"prompt": f"How much is {a}+{b}?", role: str(a + b), "rejected": str(a)} for a, b in sums]
    return [DataRow("", {key: row[key] for key in row if key != "rejected" or kind == "dpo"}) for row in rows]
