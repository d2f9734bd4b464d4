"""Checks of the config itself: its keys, its model and its data."""

from headrace.doctor.findings import Finding, fail, ok
from headrace.doctor.placement import check_overlap, placement
from headrace.doctor.sizes import model_parameters
from headrace.doctor.wants import Wants
from headrace.run.nodes import check_nodes
from headrace.run.preparation.input_checks import check_data_files, check_dtype, check_model_folder
from headrace.wire.errors import ConfigError, DataError


def keys(wants: Wants) -> Finding:
    """Fails on settings that no machine could run."""
    assert wants.resolved is not None
    try:
        check_nodes(wants.resolved)
        check_dtype(wants.resolved)
        if wants.resolved.config.run.stage == "rl":
            check_overlap(wants.resolved)
    except ConfigError as error:
        return fail("config", str(error), f"correct {wants.resolved.file}")
    taken = placement(wants.resolved.config).in_words()
    return ok("config", f"{wants.resolved.config.model.dtype}" + (f"; {taken}" if taken else ""))


def model(wants: Wants) -> Finding:
    """Checks the model folder, and that the engine can decode it."""
    assert wants.resolved is not None
    config = wants.resolved.config
    try:
        facts = check_model_folder(wants.resolved)
    except ConfigError as error:
        return fail("model", str(error), f"correct {wants.resolved.place('model', 'path')}")
    if wants.resolved.to_make:
        return ok("model", "made for the run")
    if facts is None:
        return ok("model", f"{config.model.hub_id}: no folder, so `headrace train` downloads it from the Hub")
    millions = model_parameters(config.model.path) / 1e6
    return ok("model", f"{facts.family}, {millions:,.1f} M parameters, context {facts.context_length}")


def data(wants: Wants) -> Finding:
    """Checks that the files exist; `headrace train --dry-run` reads their content."""
    assert wants.resolved is not None
    try:
        check_data_files(wants.resolved)
    except DataError as error:
        return fail("data", str(error), f"correct {wants.resolved.place('data', 'path')}")
    table = wants.resolved.config.data
    return ok("data", table.path or f"the taskset {table.environment}")
