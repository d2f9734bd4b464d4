"""The verbs `config check`, `config show` and `config diff`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli.common import Json, json_line, reported_errors
from headrace.cli.completion import DottedCommand
from headrace.config.common import common_schema
from headrace.config.resolve import resolve, resolved_tables, settle
from headrace.config.schema import RunFile
from headrace.config.toml import to_toml
from headrace.inspect.differences import difference_table, differences
from headrace.inspect.output import BAD_INPUT, Output
from headrace.inspect.tables import show_table
from headrace.run.preparation.input_checks import check_data_files, check_model_folder
from headrace.wire.config.kept import config_file
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.process.environment import inherited


class _Config(TyperGroup):
    """`headrace config RUN.toml` and `headrace config --schema` are those of `config show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts `show` before what is neither a verb nor a wish for help."""
        known = {*self.commands, "--help"}
        if (args and args[0] not in known) or (not args and ctx.obj):
            args = ["show", *args]
        return super().parse_args(ctx, args)


config = typer.Typer(cls=_Config, no_args_is_help=True)
File = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The config, or a run directory.", show_default=False)]


@config.command("check", cls=DottedCommand)
def check(context: typer.Context, file: File, json: Json = False) -> None:
    """Checks every key, the model folder and the data files; writes and starts nothing."""
    output = Output.choose(json=json)
    errors = problems(file, context.obj or [])
    for error in errors:
        output.complain(error)
    if not errors:
        output.say(f"{file}: in order")
    output.in_json({"ok": not errors, "file": str(file), "errors": errors})
    raise typer.Exit(BAD_INPUT if errors else 0)


def problems(file: Path, arguments: list[str]) -> list[str]:
    """All that is wrong with it, each naming its place; empty if it is in order."""
    try:
        resolved = resolve(config_file(file), arguments=arguments, environment=inherited())
    except ConfigError as error:
        return str(error).splitlines()
    found = []
    for look in (check_model_folder, check_data_files):
        try:
            look(resolved)
        except (ConfigError, DataError) as error:
            found.append(str(error))
    return found


@config.command("show", cls=DottedCommand)
def show(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="RUN.toml", help="The config, or a run directory.", show_default=False)
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="All keys, types, defaults and meanings, as JSON.")] = False,
    common: Annotated[bool, typer.Option("--common", help="With --schema: the keys that most runs set.")] = False,
    json: Json = False,
) -> None:
    """Prints the resolved config as TOML, or the schema of all keys. `config RUN.toml` is the same."""
    with reported_errors(json=True) as output:
        if schema:
            output.result(json_line(common_schema() if common else RunFile.model_json_schema()))
            return
        place = config_file(file) if file else None
        resolved = settle(resolve(place, arguments=context.obj or [], environment=inherited()))
        tables = resolved.config.model_dump(mode="json", serialize_as_any=True)
        output.result(json_line(tables) if json else to_toml(tables).rstrip())


@config.command("diff")
def diff(
    one: Annotated[Path, typer.Argument(metavar="A", help="A RUN.toml or a run directory.", show_default=False)],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    json: Json = False,
) -> None:
    """Shows the keys in which two resolved configs differ, defaults included."""
    with reported_errors(json=json) as output:
        found = differences([resolved_tables(one), resolved_tables(other)])
        if output.json:
            rows = [{"key": each.key, "a": each.values[0], "b": each.values[1]} for each in found]
            output.result(json_line({"a": str(one), "b": str(other), "equal": not found, "differences": rows}))
        elif not found:
            output.say("no difference")
        else:
            show_table(output.console, difference_table([str(one), str(other)], found))
