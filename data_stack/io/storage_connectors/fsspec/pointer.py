"""The pointer file of a resource in an object store.

It has a line with the format, a line of JSON, the digests of the blocks, the content if it is small, and a digest of all that,
which detects flipped bits and foreign files. Every field is checked for type and range, as an attacker can write valid digests.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from data_stack.exception import ChecksumMismatchError, DatasetFileCorruptError
from data_stack.io.integrity import ALGORITHM, BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.util.untrusted_text import parse_json

FORMAT: Final = b"data_stack resource 3\n"
OBJECTS: Final = ".data_stack/objects"
#: Content is stored in objects of this size; the last one is shorter.
PART_BYTES: Final = 4 << 20
MAX_POINTER_BYTES: Final = 4 << 20
#: The digests of a resource of this size just fit into a pointer.
MAX_RESOURCE_BYTES: Final = 512 << 30
#: Limit of inlined content when reading.
MAX_INLINE_BYTES: Final = 1 << 20
#: Longer resources get larger blocks, so that their digests fit into the pointer.
_MAX_BLOCKS: Final = 65_536
_MAX_JSON_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Pointer:
    """The description of a resource.

    Attributes:
        identifier: its name.
        size: length in bytes.
        sha256: digest of the whole, 64 hex digits.
        block_bytes: length of a block; a part is a whole number of them.
        blocks: the digests of all blocks (:mod:`data_stack.io.integrity`), 8 bytes each.
        version: 32 hex digits that name its parts; None if the content is inlined.
        inline: the content, if it is small.
    """

    identifier: str
    size: int
    sha256: str
    block_bytes: int
    blocks: bytes
    version: str | None
    inline: bytes = b""

    def to_bytes(self) -> bytes:
        """The pointer file."""
        names = ("identifier", "size", "sha256", "block_bytes", "version")
        line = json.dumps({name: getattr(self, name) for name in names}).encode("ascii")
        content = FORMAT + line + b"\n" + self.blocks + self.inline
        return content + block_digest(content)

    @classmethod
    def from_bytes(cls, document: bytes, identifier: str, source: str) -> Pointer:
        """Parse the pointer file of ``identifier``.

        Raises:
            ChecksumMismatchError: the document is damaged.
            DatasetFileCorruptError: it is not a valid pointer.
        """

        def refuse(why: str) -> NoReturn:
            raise DatasetFileCorruptError(
                f"the pointer of resource {identifier!r} in {source} {why}. Store the resource again from its source or a copy."
            )

        if not document.startswith(FORMAT):
            is_earlier = document.startswith(b'{"block_bytes":')
            refuse("is of the format of an earlier data_stack" if is_earlier else "is damaged: it begins with another format")
        content, recorded = document[:-DIGEST_BYTES], document[-DIGEST_BYTES:]
        actual = block_digest(content)
        if recorded != actual:
            raise ChecksumMismatchError(identifier, f"the pointer in {source}", recorded.hex(), actual.hex(), ALGORITHM)
        line, _, rest = content[len(FORMAT) :].partition(b"\n")
        try:
            fields = parse_json(line[:_MAX_JSON_BYTES])
            named, size, sha256, block_bytes, version = (
                fields[name] for name in ("identifier", "size", "sha256", "block_bytes", "version")
            )
        except (ValueError, TypeError, KeyError):
            refuse("does not have the fields of a pointer")
        if named != identifier:
            refuse(f"belongs to {str(named)[:80]!r}")
        is_size_right = type(size) is int and 0 <= size <= MAX_RESOURCE_BYTES
        is_block_right = type(block_bytes) is int and 1024 <= block_bytes <= PART_BYTES and PART_BYTES % block_bytes == 0
        is_version_right = _is_hexadecimal(sha256, 64) and (version is None or _is_hexadecimal(version, 32))
        if not (is_size_right and is_block_right and is_version_right):
            refuse("has an impossible size, digest or version")
        n_digests = -(-size // block_bytes) * DIGEST_BYTES
        blocks, inline = rest[:n_digests], rest[n_digests:]
        if len(blocks) != n_digests or len(inline) != (size if version is None else 0) or len(inline) > MAX_INLINE_BYTES:
            refuse("does not have one digest for each block, or holds content of another size")
        return cls(identifier, size, sha256, block_bytes, blocks, version, inline)


def part_path(version: str | None, number: int) -> str:
    """Path of a part."""
    return f"{OBJECTS}/{version}/{number}"


def version_of(path: str) -> str:
    """The version in the path of a part."""
    return path.removeprefix(OBJECTS + "/").partition("/")[0]


def block_bytes_for(size: int) -> int:
    """The block length for a resource: short for random reads, but with few enough digests."""
    block_bytes = BLOCK_BYTES
    while block_bytes < PART_BYTES and size > block_bytes * _MAX_BLOCKS:
        block_bytes *= 2
    return block_bytes


def _is_hexadecimal(value: object, n_digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{n_digits}}}", value, re.ASCII) is not None
