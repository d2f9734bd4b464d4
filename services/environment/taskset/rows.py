"""Reads the tasks of a taskset, in a process of its own: their data are the rows of a run."""

from headrace.services.environment.cast import child_config, taskset_config
from headrace.services.environment.child.errors import ChildLateError, EnvironmentFailedError
from headrace.services.environment.child.frames import Json
from headrace.services.environment.settings import EnvironmentTable
from headrace.services.environment.taskset.process import TasksetProcess
from headrace.wire.errors import DataError


async def taskset_rows(table: EnvironmentTable, most: int) -> list[Json]:
    """The data of the first tasks, 0 = of all. Raises DataError; ConfigError for a taskset that cannot be loaded."""
    config = child_config(table, None)
    child = TasksetProcess(config, taskset_config(table, context_length=1), plays=False)
    try:
        await child.start()
        return await child.rows(most, timeout_s=config.start_s)
    except ChildLateError as error:
        said = f"a page of its tasks was not read within environment.start_s = {config.start_s:g}"
        raise DataError(f"[data] environment: {table.taskset}: {said}") from error
    except EnvironmentFailedError as error:
        raise DataError(f"[data] environment: {table.taskset}: {error}") from error
    finally:
        await child.kill()
