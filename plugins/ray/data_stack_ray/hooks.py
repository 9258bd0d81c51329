"""The hook that this plugin implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_stack.plugins import hookimpl


@hookimpl
def data_stack_engines() -> dict[str, Callable[..., Any]]:
    """Ray as an engine: ``data-stack prepare NAME --engine ray --address ADDRESS``, ``prepare(engine="ray")``."""
    return {"ray": engine_at}


def engine_at(address: str | None, *, attempts: int) -> Any:
    """Make a :class:`~data_stack_ray.engine.RayEngine` for a cluster; None for a running or local Ray."""
    from data_stack_ray.engine import RayEngine

    return RayEngine(address, attempts=attempts)
