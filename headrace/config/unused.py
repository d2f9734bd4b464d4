"""Names the values of a config that its stage does not read: a run that ignores them would not do what they say."""

from headrace.config.resolve import Resolved
from headrace.config.schema import RunFile
from headrace.config.tables import RunTables
from headrace.services.trainer.config.stage import RUN_KEYS, STAGES
from headrace.services.trainer.settings import ProcessKeys

_OF_EXAMPLES = ("model", "data", "trackers", "supervisor")
"""Tables that the stages on given examples read, beside `[run]`, `[trainer]` and their own."""


def unused(resolved: Resolved) -> list[str]:
    """One line a table for the values that the user gave, other than the default, and that nothing reads."""
    config, stage = resolved.config, resolved.config.run.stage
    given, defaults = (
        tables.model_dump(mode="json", serialize_as_any=True) for tables in (config, RunTables(data=config.data))
    )
    found: dict[str, list[tuple[str, ...]]] = {}
    for keys in resolved.layer:
        if _value(given, keys) != _value(defaults, keys) and not _is_read(config, keys):
            found.setdefault(keys[0], []).append(keys)
    return [
        f"{resolved.layer[unread[0]].origin}: [{table}] {', '.join('.'.join(keys[1:]) for keys in unread)}: not used "
        f"by the stage {stage}" + (f", whose own table is [{stage}]" if table in ("run", "trainer") else "")
        for table, unread in found.items()
    ]


def _is_read(config: RunFile, keys: tuple[str, ...]) -> bool:
    stage, table, key = config.run.stage, keys[0], keys[-1]
    if stage == "rl":
        return table not in STAGES
    if table == "run":
        return key in RUN_KEYS
    if table == "trainer":
        return key in ProcessKeys.model_fields or key == "http_port"
    return table in _OF_EXAMPLES or table == stage or keys == ("rollout", "deterministic")


def _value(tables: object, keys: tuple[str, ...]) -> object:
    """The value of a key; of one in a table that may be a list of them, the list."""
    for key in keys:
        if not isinstance(tables, dict):
            break
        tables = tables.get(key)
    return tables
