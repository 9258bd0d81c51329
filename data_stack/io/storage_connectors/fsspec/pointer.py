"""The small document that says what a resource in an object store consists of.

It is strict JSON with a digest of itself, so neither a flipped bit nor a document of somebody else is taken for one of
ours. Whoever can write to the store can also write a consistent lie; every field is therefore checked for type and range
before it is used, and what it costs to read is bounded by :data:`MAX_POINTER_BYTES`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from data_stack.exception import ChecksumMismatchError, DatasetFileCorruptError
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES

FORMAT: Final = "data_stack resource 2"
#: Content is stored in objects of this size, named by their SHA-256; the last one is shorter.
PART_BYTES: Final = 4 << 20
MAX_POINTER_BYTES: Final = 16 << 20
#: The digests of a resource of this size just fit into a pointer.
MAX_RESOURCE_BYTES: Final = 512 << 30
#: The most that is ever inlined, whatever a pointer says.
MAX_INLINE_BYTES: Final = 1 << 20
#: A resource with more gets blocks twice as long, so that their digests fit into its pointer.
_MOST_BLOCKS: Final = 65_536
_SHA256_BYTES: Final = 32
#: More of them than any pointer has, whatever its identifier is.
_MOST_SEPARATORS: Final = 5_000
_FIELDS: Final = {"format", "identifier", "size", "sha256", "block_bytes", "blocks", "parts", "inline", "pointer_sha256"}


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a resource consists of.

    Attributes:
        identifier: its name.
        size: length in bytes.
        sha256: digest of the whole, 64 hex digits.
        block_bytes: length of a block; a part is a whole number of them.
        blocks: the digests of all blocks (:mod:`data_stack.io.integrity`), 8 bytes each.
        parts: SHA-256 of each part of 4 MiB, likewise; empty if the content is inlined.
        inline: the content, if it is small.
    """

    identifier: str
    size: int
    sha256: str
    block_bytes: int
    blocks: bytes
    parts: bytes
    inline: bytes | None

    @property
    def part_names(self) -> list[str]:
        """The hex digests by which the parts are stored, in order."""
        return [self.parts[i : i + _SHA256_BYTES].hex() for i in range(0, len(self.parts), _SHA256_BYTES)]

    def part_size(self, number: int) -> int:
        """Length of a part in bytes."""
        return min(PART_BYTES, self.size - number * PART_BYTES)

    def encoded(self) -> bytes:
        """The document. Equal resources give equal documents, so storing twice what is there changes nothing."""
        fields: dict[str, Any] = {
            "format": FORMAT,
            "identifier": self.identifier,
            "size": self.size,
            "sha256": self.sha256,
            "block_bytes": self.block_bytes,
            "blocks": _to_text(self.blocks),
            "parts": _to_text(self.parts),
            "inline": None if self.inline is None else _to_text(self.inline),
        }
        return _canonical({**fields, "pointer_sha256": hashlib.sha256(_canonical(fields)).hexdigest()})

    @classmethod
    def decoded(cls, document: bytes, identifier: str, source: str) -> Pointer:
        """The pointer in ``document``, which must be the one of ``identifier``.

        Raises:
            ChecksumMismatchError: the document is not what was written.
            DatasetFileCorruptError: it is no pointer, or not a possible one.
        """

        def refuse(why: str) -> NoReturn:
            raise DatasetFileCorruptError(
                f"the pointer of resource {identifier!r} in {source} {why}. Store the resource again from its source or a copy."
            )

        if len(document) > MAX_POINTER_BYTES:
            refuse(f"has more than {MAX_POINTER_BYTES:,} bytes")
        if document.count(b",") + document.count(b"[") > _MOST_SEPARATORS:
            # As objects of Python, 16 MiB of empty lists take half a gigabyte.
            refuse("does not have the fields of a pointer")
        try:
            fields = json.loads(document.decode("ascii"))
        except (ValueError, RecursionError):
            refuse("is not JSON")
        if type(fields) is not dict or set(fields) != _FIELDS:
            refuse("does not have the fields of a pointer")
        recorded = fields.pop("pointer_sha256")
        try:
            actual = hashlib.sha256(_canonical(fields)).hexdigest()
        except (ValueError, RecursionError):
            refuse("holds what cannot be written as JSON")
        if recorded != actual:
            raise ChecksumMismatchError(identifier, f"the pointer in {source}", str(recorded)[:64], actual)
        if fields["format"] != FORMAT:
            refuse(f"has the format {str(fields['format'])[:40]!r}, not {FORMAT!r}")
        if fields["identifier"] != identifier:
            refuse(f"belongs to {str(fields['identifier'])[:80]!r}")
        size, block_bytes = fields["size"], fields["block_bytes"]
        if type(size) is not int or not 0 <= size <= MAX_RESOURCE_BYTES:
            refuse("has an impossible size")
        if type(block_bytes) is not int or not 1024 <= block_bytes <= PART_BYTES or PART_BYTES % block_bytes:
            refuse("has an impossible block_bytes")
        sha256 = fields["sha256"]
        if type(sha256) is not str or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
            refuse("has an impossible sha256")
        try:
            blocks, parts = _from_text(fields["blocks"]), _from_text(fields["parts"])
            inline = None if fields["inline"] is None else _from_text(fields["inline"])
        except (ValueError, TypeError, binascii.Error):
            refuse("holds what is not base64")
        if len(blocks) != -(-size // block_bytes) * DIGEST_BYTES:
            refuse("does not have one digest for each block")
        if len(parts) != (0 if inline is not None else -(-size // PART_BYTES) * _SHA256_BYTES):
            refuse("does not have one digest for each part")
        if inline is not None and (len(inline) != size or size > MAX_INLINE_BYTES):
            refuse("holds content of another size")
        return cls(identifier, size, sha256, block_bytes, blocks, parts, inline)


def block_bytes_for(size: int) -> int:
    """The length of blocks for a resource: short, as a random read fetches one whole, but few enough for their digests."""
    block_bytes = BLOCK_BYTES
    while block_bytes < PART_BYTES and size > block_bytes * _MOST_BLOCKS:
        block_bytes *= 2
    return block_bytes


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_text(text: Any) -> bytes:
    if type(text) is not str:
        raise TypeError("base64 is text")
    return base64.b64decode(text, validate=True)
