"""A file as its file system describes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

#: What file systems call the version of a file.
_TAG_NAMES: Final = ("ETag", "etag", "generation")
#: What file systems call the time of the last change.
_TIME_NAMES: Final = (
    "LastModified",
    "last_modified",
    "mtime",
    "updated",
    "modified",
    "created",
)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file.

    Attributes:
        path: its path relative to the root.
        size: its length in bytes.
        modified: when it was changed, in seconds since 1970 by the clock of the file system; None
            if that is unknown.
        tag: ``ETAG|SIZE|TIME|INODE``, a text that changes with the content as far as the file
            system can tell. Parts that the file system does not know are empty.
        generation: the number that Google gives to each version of a file; empty elsewhere.
    """

    path: str
    size: int
    modified: float | None
    tag: str
    generation: str = ""

    @classmethod
    def of(cls, path: str, info: Mapping[str, Any]) -> RemoteFile:
        """Make the description of a file from that of fsspec.

        Args:
            path: the path relative to the root.
            info: the description, as file systems of fsspec return it.
        """
        modified = _first_value(info, _TIME_NAMES)
        etag = _first_value(info, _TAG_NAMES) or ""
        size = int(info.get("size") or 0)
        tag = f"{etag}|{size}|{modified}|{info.get('ino', '')}"
        generation = str(info.get("generation") or "")
        return cls(path, size, _parse_seconds(modified), tag, generation)

    @property
    def etag(self) -> str:
        """What the store itself calls the version; empty if it has no name for it."""
        return self.tag.partition("|")[0]


def _first_value(info: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first value of these names that is known; None if none is."""
    for name in names:
        value = info.get(name)
        if value not in (None, ""):
            return value
    return None


def _parse_seconds(modified: Any) -> float | None:
    """Return seconds since 1970 of what file systems return: ISO text, datetimes or numbers."""
    if isinstance(modified, str):
        with contextlib.suppress(ValueError):
            modified = datetime.fromisoformat(modified.replace("Z", "+00:00"))
    if isinstance(modified, datetime):
        if modified.tzinfo is None:
            modified = modified.replace(tzinfo=timezone.utc)
        seconds: float = modified.timestamp()
        return seconds
    if isinstance(modified, (int, float)):
        return float(modified)
    return None
