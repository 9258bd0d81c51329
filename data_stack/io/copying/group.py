"""What is to be copied: resources in groups, of which each is complete or not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyItem:
    """A resource to copy.

    Attributes:
        identifier: its name in both stores.
        size: expected length in bytes; None for that of the source.
        sha256: expected digest, 64 hex digits; None for that of the source.
    """

    identifier: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A resource whose bytes are in memory.

    Attributes:
        identifier: its name.
        data: its bytes.
    """

    identifier: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Resources that belong together, such as those of a dataset.

    Attributes:
        name: the name of the dataset; ``""`` for loose resources.
        items: the resources.
        manifest: the file that says that the group is complete; None for loose resources. It is
            stored last, and deleted before a resource of the group is replaced.
        incomplete_marker: the file that exists during the copy, and says that the group is
            incomplete; None for loose resources.
    """

    name: str
    items: tuple[CopyItem, ...]
    manifest: SmallFile | None = None
    incomplete_marker: SmallFile | None = None
