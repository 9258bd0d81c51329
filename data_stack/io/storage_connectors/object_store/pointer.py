"""The pointer of a resource: a small object that describes it.

A pointer has a line with the format, a line of JSON, the digests of the blocks, the content if it
is small, and a digest of all that, which detects flipped bits and foreign files. Every field is
checked for type and range, as an attacker can write valid digests.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from data_stack.exception import ChecksumMismatchError, DatasetFileCorruptError
from data_stack.io.integrity import ALGORITHM, BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.util.untrusted_text import describe_format, parse_json

FORMAT: Final = b"data_stack resource 3\n"
#: Content is stored in objects of this size, its parts. The last one is shorter.
PART_BYTES: Final = 4 << 20
MAX_POINTER_BYTES: Final = 4 << 20
#: The digests of a larger resource would not fit into a pointer.
MAX_RESOURCE_BYTES: Final = 512 << 30

_FIELDS: Final = ("identifier", "size", "sha256", "block_bytes", "version")
_MAX_LINE_BYTES: Final = 4096
_MAX_INLINE_BYTES: Final = 1 << 20
_MIN_BLOCK_BYTES: Final = 1024
#: Resources are stored with at most this many blocks, whose digests take 512 KiB of a pointer.
_MAX_BLOCKS: Final = 65_536
#: The length of the blocks by which a plain file is read.
_PLAIN_BLOCK_BYTES: Final = 256 << 10

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VERSION: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The description of a resource.

    Attributes:
        identifier: the identifier of the resource.
        size: its length in bytes.
        sha256: the SHA-256 of all bytes, 64 hex digits; empty for a plain file of which it is
            unknown.
        block_bytes: the length of a block. A part is a whole number of blocks.
        version: 32 hex digits that name its parts; None if the content is in the pointer.
        blocks: the digests of all blocks (:mod:`data_stack.io.integrity`), 8 bytes each.
        inline: the content, if it is small.
        file: the plain file of another tool that this describes, without parts and digests of
            blocks; otherwise None.
    """

    identifier: str
    size: int
    sha256: str
    block_bytes: int
    version: str | None
    blocks: bytes = b""
    inline: bytes = b""
    file: RemoteFile | None = None

    @classmethod
    def adopt(cls, identifier: str, file: RemoteFile, sha256: str | None) -> Pointer:
        """Return a description of a plain file of another tool.

        Args:
            identifier: its identifier, or its key.
            file: the file.
            sha256: its SHA-256; None if unknown.
        """
        return cls(
            identifier,
            file.size,
            sha256 or "",
            _PLAIN_BLOCK_BYTES,
            version=None,
            file=file,
        )

    def to_bytes(self) -> bytes:
        """Return the content of the pointer object."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        line = json.dumps(fields).encode("ascii")
        content = FORMAT + line + b"\n" + self.blocks + self.inline
        return content + block_digest(content)

    @classmethod
    def from_bytes(cls, document: bytes, identifier: str, source: str) -> Pointer:
        """Parse the content of a pointer object.

        Args:
            document: the content.
            identifier: the identifier of the resource.
            source: the store, for messages.

        Raises:
            ChecksumMismatchError: the content is damaged.
            DatasetFileCorruptError: it is not a valid pointer.
        """
        if not document.startswith(FORMAT):
            problem = describe_format(document[: len(FORMAT)], FORMAT.decode())
            _refuse(identifier, source, problem)

        content = document[:-DIGEST_BYTES]
        recorded = document[-DIGEST_BYTES:]
        actual = block_digest(content)
        if recorded != actual:
            raise ChecksumMismatchError(
                identifier, f"the pointer in {source}", recorded.hex(), actual.hex(), ALGORITHM
            )

        line, _, payload = content[len(FORMAT) :].partition(b"\n")
        try:
            # A longer line is malformed. Cut short, it is not parsed at length.
            fields = parse_json(line[:_MAX_LINE_BYTES])
            values = {name: fields[name] for name in _FIELDS}
        except (ValueError, TypeError, KeyError):
            _refuse(identifier, source, "does not have the fields of a pointer")
        if not _are_fields_valid(values, identifier):
            problem = "belongs to another one, or has an impossible size, digest or version"
            _refuse(identifier, source, problem)

        size = values["size"]
        block_bytes = values["block_bytes"]
        digests_size = -(-size // block_bytes) * DIGEST_BYTES
        blocks = payload[:digests_size]
        inline = payload[digests_size:]
        inline_size = size if values["version"] is None else 0
        if (
            len(blocks) != digests_size
            or len(inline) != inline_size
            or len(inline) > _MAX_INLINE_BYTES
        ):
            problem = "does not have one digest for each block, or holds content of another size"
            _refuse(identifier, source, problem)
        return cls(
            identifier,
            size,
            values["sha256"],
            block_bytes,
            values["version"],
            blocks,
            inline,
        )


def block_bytes_for(size: int) -> int:
    """Return the length of the blocks of a resource.

    Short blocks are good for random reads, but their digests must fit into the pointer.
    """
    block_bytes = BLOCK_BYTES
    while block_bytes < PART_BYTES and size > _MAX_BLOCKS * block_bytes:
        block_bytes *= 2
    return block_bytes


def _are_fields_valid(values: dict[str, Any], identifier: str) -> bool:
    """Return whether the fields of a pointer have the right types and ranges."""
    size = values["size"]
    block_bytes = values["block_bytes"]
    version = values["version"]
    is_size_valid = type(size) is int and 0 <= size <= MAX_RESOURCE_BYTES
    is_block_valid = (
        type(block_bytes) is int
        and _MIN_BLOCK_BYTES <= block_bytes <= PART_BYTES
        and PART_BYTES % block_bytes == 0
    )
    is_digest_valid = _matches(_SHA256, values["sha256"])
    is_version_valid = version is None or _matches(_VERSION, version)
    return (
        values["identifier"] == identifier
        and is_size_valid
        and is_block_valid
        and is_digest_valid
        and is_version_valid
    )


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _refuse(identifier: str, source: str, problem: str) -> NoReturn:
    raise DatasetFileCorruptError(
        f"the pointer of resource {identifier!r} in {source} {problem}. Store the resource again."
    )
