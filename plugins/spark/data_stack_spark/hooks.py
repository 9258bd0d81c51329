"""The hooks that this plugin implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from data_stack.exception import ConfigError
from data_stack.plugins import hookimpl

if TYPE_CHECKING:
    from data_stack.engines import PreparationEngine


@hookimpl
def data_stack_engines() -> dict[str, Callable[..., PreparationEngine]]:
    """Name the engine ``spark``.

    Users select it by ``data-stack prepare NAME --master URL``, or by ``prepare(engine="spark")``
    in an active session.
    """
    return {"spark": make_engine}


def make_engine(master: str | None, *, attempts: int) -> PreparationEngine:
    """Make a :class:`~data_stack_spark.engine.SparkEngine` for a cluster.

    Args:
        master: the cluster; None for that of the active session.
        attempts: maximum number of attempts at a task.

    Raises:
        ConfigError: ``master`` is None, and no session is active.
    """
    from pyspark.sql import SparkSession

    from data_stack_spark.engine import SparkEngine

    if master is None and SparkSession.getActiveSession() is None:
        raise ConfigError(
            "the engine spark needs an active session, SparkEngine(master), or --master: "
            '"spark://host:7077", "yarn", or "local[4]" for this machine'
        )
    return SparkEngine(master, attempts=attempts)
