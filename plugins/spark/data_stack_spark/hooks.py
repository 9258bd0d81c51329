"""The hooks that this plugin implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.exception import ConfigError
from data_stack.plugins import hookimpl


@hookimpl
def data_stack_engines() -> dict[str, Callable[..., Any]]:
    """Spark as an engine: ``data-stack prepare NAME --engine spark --master URL``."""
    return {"spark": engine_on}


def engine_on(master: str | None, *, attempts: int) -> Any:
    """Make a :class:`~data_stack_spark.engine.SparkEngine` for a cluster.

    Raises:
        ConfigError: ``master`` is None.
    """
    if master is None:
        raise ConfigError('--engine spark requires --master, e.g. "spark://host:7077", "yarn", or "local[4]" for this machine')
    from data_stack_spark.engine import SparkEngine

    return SparkEngine(master, attempts=attempts)
