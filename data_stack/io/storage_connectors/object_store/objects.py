"""The objects of a resource in an object store: a pointer file, and parts that are read as verified blocks.

The pointer has a line with the format, a line of JSON, the digests of the blocks, the content if it is small, and a digest of all
that, which detects flipped bits and foreign files. Every field is checked for type and range, as an attacker can write valid
digests.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from data_stack.exception import (
    ChecksumMismatchError,
    DamagedBlockError,
    DatasetFileCorruptError,
    ResourceChangedError,
)
from data_stack.io.integrity import (
    ALGORITHM,
    BLOCK_BYTES,
    DIGEST_BYTES,
    block_digest,
    digest_of_block,
)
from data_stack.io.storage_connectors.blocks import Blocks, runs_of
from data_stack.io.storage_connectors.object_store.remote import RemoteFile, RemoteFiles
from data_stack.io.storage_connectors.object_store.s3 import OtherVersionError
from data_stack.util.untrusted_text import describe_format, parse_json

FORMAT: Final = b"data_stack resource 3\n"
OBJECTS: Final = ".data_stack/objects"
_PART_PATH: Final = re.compile(re.escape(OBJECTS) + r"/[0-9a-f]{32}/[0-9]{1,9}")
#: Content is stored in objects of this size; the last one is shorter.
PART_BYTES: Final = 4 << 20
MAX_POINTER_BYTES: Final = 4 << 20
#: The digests of a resource of this size just fit into a pointer.
MAX_RESOURCE_BYTES: Final = 512 << 30
_FIELDS: Final = ("identifier", "size", "sha256", "block_bytes", "version")


@dataclass(frozen=True, slots=True)
class Pointer:
    """The description of a resource.

    Attributes:
        identifier: its name.
        size: length in bytes.
        sha256: digest of the whole, 64 hex digits.
        block_bytes: length of a block; a part is a whole number of them.
        version: 32 hex digits that name its parts; None if the content is inlined.
        blocks: the digests of all blocks (:mod:`data_stack.io.integrity`), 8 bytes each.
        inline: the content, if it is small.
        file: the plain file of another tool that this describes, without parts and digests of blocks; else None.
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
        """The description of a plain file of another tool, with its ``sha256`` if known."""
        return cls(identifier, file.size, sha256 or "", 256 << 10, None, file=file)

    def to_bytes(self) -> bytes:
        """The pointer file."""
        line = json.dumps({name: getattr(self, name) for name in _FIELDS}).encode("ascii")
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
                f"the pointer of resource {identifier!r} in {source} {why}. Store the resource again."
            )

        if not document.startswith(FORMAT):
            refuse(describe_format(document[: len(FORMAT)], FORMAT.decode()))
        content, recorded = document[:-DIGEST_BYTES], document[-DIGEST_BYTES:]
        actual = block_digest(content)
        if recorded != actual:
            raise ChecksumMismatchError(
                identifier, f"the pointer in {source}", recorded.hex(), actual.hex(), ALGORITHM
            )
        line, _, rest = content[len(FORMAT) :].partition(b"\n")
        try:
            fields = parse_json(line[:4096])
            named, size, sha256, block_bytes, version = (fields[name] for name in _FIELDS)
        except (ValueError, TypeError, KeyError):
            refuse("does not have the fields of a pointer")
        is_size_right = type(size) is int and 0 <= size <= MAX_RESOURCE_BYTES
        is_block_right = (
            type(block_bytes) is int
            and 1024 <= block_bytes <= PART_BYTES
            and PART_BYTES % block_bytes == 0
        )
        is_version_right = _is_hexadecimal(sha256, 64) and (
            version is None or _is_hexadecimal(version, 32)
        )
        if not (named == identifier and is_size_right and is_block_right and is_version_right):
            refuse("belongs to another one, or has an impossible size, digest or version")
        n_digests = -(-size // block_bytes) * DIGEST_BYTES
        blocks, inline = rest[:n_digests], rest[n_digests:]
        if (
            len(blocks) != n_digests
            or len(inline) != (size if version is None else 0)
            or len(inline) > 1 << 20
        ):
            refuse("does not have one digest for each block, or holds content of another size")
        return cls(identifier, size, sha256, block_bytes, version, blocks, inline)


def part_path(version: str | None, number: int) -> str:
    """Path of a part."""
    return f"{OBJECTS}/{version}/{number}"


def is_part_path(path: str) -> bool:
    """Whether a path is that of a part, not something that another tool put among them."""
    return _PART_PATH.fullmatch(path) is not None


def block_bytes_for(size: int) -> int:
    """The block length for a resource: short for random reads, but with few enough digests."""
    # Up to 65,536 blocks, so that their digests fit into the pointer.
    return min(PART_BYTES, BLOCK_BYTES << (max(size - 1, 0) // (65_536 * BLOCK_BYTES)).bit_length())


def _is_hexadecimal(value: object, n_digits: int) -> bool:
    return (
        isinstance(value, str)
        and re.fullmatch(f"[0-9a-f]{{{n_digits}}}", value, re.ASCII) is not None
    )


class ObjectBlocks(Blocks):
    """Reads ranges of the parts of a pointer, or of a plain file, and verifies each block.

    Args:
        files: the store.
        pointer: describes the resource.
        current: reads the current pointer, for errors.
    """

    ahead_bytes = 2 * PART_BYTES

    def __init__(
        self, files: RemoteFiles, pointer: Pointer, current: Callable[[], Pointer | None]
    ) -> None:
        self._files, self._pointer, self._current, self._file = (
            files,
            pointer,
            current,
            pointer.file,
        )
        self.size, self.block_bytes, self.sha256 = (
            pointer.size,
            pointer.block_bytes,
            pointer.sha256 or None,
        )
        etag = (
            "" if pointer.file is None else pointer.file.tag.partition("|")[0]
        )  # the times behind it change with each copy
        self.tag = f"{etag}, {self.size} bytes" if etag else None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        if self._file is None and self._pointer.version is None:
            return [
                self._pointer.inline[number * self.block_bytes :][: self.block_bytes]
                for number in numbers
            ]
        found: list[bytes] = []
        runs = list(runs_of(numbers, PART_BYTES // self.block_bytes))
        pieces = self._read(runs)
        if self._file is not None and not self._files.checks_version(self._file):
            # If the file is unchanged afterwards, it did not change while it was read.
            self._check_unchanged(self._file)
        for index, (first, n_blocks) in enumerate(runs):
            piece, pieces[index] = pieces[index], None  # blocks are copies: free each piece early
            for number, block in enumerate(self.split(piece or b"", n_blocks), first):
                if not self._is_right(number, block):  # perhaps damaged on the way only
                    block = self._read([(number, 1)])[0] or b""
                    if not self._is_right(number, block):
                        self._raise_damaged(number, block)
                found.append(block)
        return found

    def _read(self, runs: Sequence[tuple[int, int]]) -> list[bytes | None]:
        ranges = []
        for start, end in itertools.starmap(self.range_of, runs):
            if self._file is None:
                part = start // PART_BYTES
                ranges.append(
                    (
                        part_path(self._pointer.version, part),
                        start - part * PART_BYTES,
                        end - part * PART_BYTES,
                    )
                )
            else:
                ranges.append((self._file.path, start, end))
        try:
            return self._files.read_ranges(ranges, version=self._file)
        except OtherVersionError as error:
            if self._file is not None:
                self._check_unchanged(self._file)
            self._raise_changed(f"tag {self._pointer.file and self._pointer.file.tag}", str(error))

    def _check_unchanged(self, file: RemoteFile) -> None:
        now = self._files.info(file.path)
        if now != file:
            self._raise_changed(f"tag {file.tag}", now and f"tag {now.tag}")

    def _is_right(self, number: int, data: bytes) -> bool:
        if self._file is not None:
            return len(data) == min(self.block_bytes, self.size - number * self.block_bytes)
        return block_digest(data) == digest_of_block(self._pointer.blocks, number)

    def _raise_damaged(self, number: int, data: bytes) -> NoReturn:
        facts = (
            digest_of_block(self._pointer.blocks, number).hex(),
            block_digest(data).hex(),
            ALGORITHM,
        )
        if self._file is not None:
            facts = str(self.size), str(number * self.block_bytes + len(data)), "size"
        elif not data:
            current = self._current()
            if current != self._pointer:
                self._raise_changed(f"sha256 {self.sha256}", current and f"sha256 {current.sha256}")
            facts = facts[0], "nothing: it is missing", ALGORITHM
        raise DamagedBlockError(
            self._pointer.identifier, self._files.place, number, self.block_bytes, *facts
        )

    def _raise_changed(self, before: str, now: Any) -> NoReturn:
        raise ResourceChangedError(
            self._pointer.identifier, f"{before}, {self.size:,} bytes", now or "nothing"
        )
