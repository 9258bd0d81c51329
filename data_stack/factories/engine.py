"""The old path of :class:`data_stack.engines.PreparationEngine`."""

from __future__ import annotations

from typing import Any

from data_stack.util.program_lines import warn_deprecated


def __getattr__(name: str) -> Any:
    if name != "PreparationEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_deprecated(
        "data_stack.factories.engine.PreparationEngine",
        instead="data_stack.engines.PreparationEngine",
        since="0.2",
        removed_in="1.0",
    )
    from data_stack.engines import PreparationEngine

    return PreparationEngine
