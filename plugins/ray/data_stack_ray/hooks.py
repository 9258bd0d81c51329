"""The hook that this plugin implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from data_stack.plugins import hookimpl

if TYPE_CHECKING:
    from data_stack.engines import PreparationEngine


@hookimpl
def data_stack_engines() -> dict[str, Callable[..., PreparationEngine]]:
    """Name the engine ``ray``.

    Users select it by ``data-stack prepare NAME --engine ray --address ADDRESS``, or by
    ``prepare(engine="ray")``.
    """
    return {"ray": make_engine}


def make_engine(address: str | None, *, attempts: int) -> PreparationEngine:
    """Make a :class:`~data_stack_ray.engine.RayEngine` for a cluster.

    Args:
        address: the address of the cluster; None for a running or local Ray.
        attempts: maximum number of attempts at a task.
    """
    from data_stack_ray.engine import RayEngine

    return RayEngine(address, attempts=attempts)
