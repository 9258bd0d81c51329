"""The path of FsspecStorageConnector before version 0.2."""

from __future__ import annotations

from typing import Any

from data_stack.util.program_lines import warn_deprecated


def __getattr__(name: str) -> Any:
    """Return ``FsspecStorageConnector``, and warn."""
    if name != "FsspecStorageConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    warn_deprecated(
        f"{__name__}.{name}",
        instead=f"data_stack.{name}",
        since="0.2",
        removed_in="1.0",
    )
    from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

    return FsspecStorageConnector
