"""Bounds on what an archive unpacks to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from data_stack.exception import ArchiveLimitError, ConfigError

#: What unpacks to at most this much is never refused as a bomb.
_HARMLESS_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds on the unpacked size, counted while unpacking.

    Sizes in headers can only make it fail earlier.

    Args:
        max_bytes: limit of the unpacked bytes of all members together.
        max_members: limit of the members, folders included. Memory holds their names, about 100
            bytes each.
        max_ratio: limit of the unpacked bytes per stored byte, checked beyond 16 MiB of unpacked
            bytes. Images reach 1, tables 10, sparse masks a few 100; a bomb of zeros has 1,000
            (gzip) to 1,000,000 (bzip2).

    Raises:
        ConfigError: a limit is not positive.
    """

    max_bytes: int = 1 << 40
    max_members: int = 1_000_000
    max_ratio: float = 200.0

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if not limit > 0:
                raise ConfigError(f"{field.name} of ArchiveLimits must be positive, got {limit!r}")

    def check_bytes(self, archive: str, n_bytes: int) -> None:
        """Refuse more than ``max_bytes``.

        Raises:
            ArchiveLimitError: there are more.
        """
        if n_bytes > self.max_bytes:
            raise _limit_error(
                archive, f"unpacks to more than {self.max_bytes:,} bytes", "max_bytes"
            )

    def check_count(self, archive: str, n_members: int) -> None:
        """Refuse more than ``max_members``.

        Raises:
            ArchiveLimitError: there are more.
        """
        if n_members > self.max_members:
            raise _limit_error(
                archive, f"has more than {self.max_members:,} members", "max_members"
            )

    def check_ratio(self, archive: str, n_bytes: int, n_stored_bytes: int) -> None:
        """Refuse a compression ratio above ``max_ratio``.

        Raises:
            ArchiveLimitError: it is higher.
        """
        if n_bytes > _HARMLESS_BYTES and n_bytes > self.max_ratio * n_stored_bytes:
            raise _limit_error(
                archive,
                f"unpacks {n_stored_bytes:,} bytes to {n_bytes:,}, "
                f"more than {self.max_ratio:g} fold",
                "max_ratio",
            )


def _limit_error(archive: str, problem: str, limit: str) -> ArchiveLimitError:
    return ArchiveLimitError(
        f"{archive!r} {problem}. If you trust it, read it with limits=ArchiveLimits({limit}=…)."
    )
