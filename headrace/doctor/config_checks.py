"""Checks of the config itself: its keys, its model and its data."""

from headrace.config.resolve import Resolved
from headrace.doctor.findings import Finding, fail, ok
from headrace.doctor.placement import check_overlap, placement
from headrace.doctor.sizes import model_parameters
from headrace.run.joining.nodes import check_nodes
from headrace.run.preparation.input_checks import check_data_files, check_dtype, check_model_folder
from headrace.wire.errors import ConfigError, DataError


def keys(resolved: Resolved) -> Finding:
    """Fails on settings that no machine could run."""
    try:
        check_nodes(resolved)
        check_dtype(resolved)
        if resolved.config.run.stage == "rl":
            check_overlap(resolved)
    except ConfigError as error:
        return fail("config", str(error), f"correct {resolved.file}")
    taken = placement(resolved.config).in_words()
    return ok("config", f"{resolved.config.model.dtype}" + (f"; {taken}" if taken else ""))


def model(resolved: Resolved) -> Finding:
    """Checks the model folder, and that the engine can decode it."""
    config = resolved.config
    try:
        facts = check_model_folder(resolved)
    except ConfigError as error:
        return fail("model", str(error), f"correct {resolved.place('model', 'path')}")
    if resolved.to_make:
        return ok("model", "made for the run")
    if facts is None:
        return ok("model", f"{config.model.hub_id}: no folder, so `headrace train` downloads it from the Hub")
    millions = model_parameters(config.model.path) / 1e6
    return ok("model", f"{facts.family}, {millions:,.1f} M parameters, context {facts.context_length}")


def data(resolved: Resolved) -> Finding:
    """Checks that the files exist; `headrace train --dry-run` reads their content."""
    try:
        check_data_files(resolved)
    except DataError as error:
        return fail("data", str(error), f"correct {resolved.place('data', 'path')}")
    table = resolved.config.data
    return ok("data", table.path or f"the taskset {table.environment}")
