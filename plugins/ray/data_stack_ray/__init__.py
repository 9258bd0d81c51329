"""Ray: preparations in its actors, datasets that Ray Data reads and writes, a loader for Ray Train."""

import importlib
from typing import Any

#: Module of each public name; importing Ray takes a second.
_MODULES = {
    "RayEngine": "engine",
    "RayLoader": "loader",
    "from_data_stack": "reading",
    "write": "writing",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
