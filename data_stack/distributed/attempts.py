"""The old path of :mod:`data_stack.engines.attempts`."""

from __future__ import annotations

from typing import Any

from data_stack.engines import attempts, process_engine
from data_stack.util.program_lines import warn_deprecated

#: The old names, each with the module that has it now.
_MODULES = {
    "Failure": attempts,
    "attempt": attempts,
    "pack": attempts,
    "unpack": attempts,
    "ProcessEngine": process_engine,
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    warn_deprecated(
        f"data_stack.distributed.attempts.{name}",
        instead=f"{module.__name__}.{name}",
        since="0.2",
        removed_in="1.0",
    )
    return getattr(module, name)
