"""Every key of the config says what it means."""

from typing import Any

from headrace.config.schema import RunFile


def test_every_key_has_a_description() -> None:
    schema = RunFile.model_json_schema()
    tables: dict[str, Any] = {"run.toml": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, table in tables.items()
        for key, value in table.get("properties", {}).items()
        if "description" not in value and "$ref" not in value
    ]
    assert silent == []
