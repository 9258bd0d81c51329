"""The hooks that this plugin implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.exception import ConfigError
from data_stack.plugins import hookimpl


@hookimpl
def data_stack_engines() -> dict[str, Callable[..., Any]]:
    """Spark as an engine: ``data-stack prepare NAME --master URL``, ``prepare(engine="spark")`` in an active session."""
    return {"spark": engine_on}


def engine_on(master: str | None, *, attempts: int) -> Any:
    """Make a :class:`~data_stack_spark.engine.SparkEngine` for a cluster; None for the active session.

    Raises:
        ConfigError: ``master`` is None, and no session is active.
    """
    from pyspark.sql import SparkSession

    from data_stack_spark.engine import SparkEngine

    if master is None and SparkSession.getActiveSession() is None:
        masters = '"spark://host:7077", "yarn", or "local[4]" for this machine'
        raise ConfigError(
            f"the engine spark needs an active session, SparkEngine(master), or --master: {masters}"
        )
    return SparkEngine(master, attempts=attempts)
