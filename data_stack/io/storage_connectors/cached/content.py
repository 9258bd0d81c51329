"""The bytes of a resource, named by their digest."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Final

from data_stack.io.integrity import DIGEST_BYTES, block_digest, block_digest_at
from data_stack.io.storage_connectors.owners import this_machine

#: Resources up to this size are fetched in one request. Their files are not synced, but verified
#: again after the next boot.
WHOLE_BYTES: Final = 1 << 20

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SECOND_NS: Final = 1_000_000_000
#: Modification times that stand for something are before this time, in the year 1987. No file of a
#: cache was written then, so such a time is never that of a write.
_MAX_SECONDS: Final = 1 << 29


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a resource, by SHA-256 and length.

    Attributes:
        sha256: the SHA-256, 64 hex digits.
        size: the length in bytes.
    """

    sha256: str
    size: int

    @classmethod
    def of(cls, resource: Any) -> Content | None:
        """Return the content of a resource or of a ResourceInfo.

        Returns:
            None if its digest is unknown. As the digest becomes the name of a file, anything but a
            digest counts as unknown.
        """
        sha256 = resource.sha256
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            return None
        return cls(sha256, resource.size)

    @property
    def key(self) -> str:
        """The name of the files of this content."""
        return f"{self.sha256}-{self.size}"

    @property
    def verified_ns(self) -> int:
        """The modification time of a file that was verified to have these bytes, in nanoseconds.

        Any later write changes the modification time, and then the file is verified again. A mark
        in a second file could not be removed in one step with the write.

        The time is a digest of the content, so a file under the name of another content is not
        trusted. It has whole seconds, which all file systems keep. For small files, which are not
        synced, it is also a digest of the boot of the machine: they are verified after a restart.
        """
        boot = b"" if self.size > WHOLE_BYTES else this_machine().encode()
        digest = block_digest_at(boot, self.key.encode())
        seconds = 1 + int.from_bytes(digest, "big") % _MAX_SECONDS
        return seconds * _SECOND_NS

    def digests_size(self, block_bytes: int) -> int:
        """Return the length of the digests of all blocks."""
        n_blocks = -(-self.size // block_bytes)
        return n_blocks * DIGEST_BYTES


@functools.lru_cache(maxsize=1)
def boot_ns() -> int:
    """Return the modification time, in nanoseconds, that stands for the start of this boot.

    Monotonic times count from it. It is a digest of the boot, so the monotonic times of other boots
    and machines look too old or too new.
    """
    digest = block_digest(this_machine().encode())
    return int.from_bytes(digest, "big") % _MAX_SECONDS * _SECOND_NS
