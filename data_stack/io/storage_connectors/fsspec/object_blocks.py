"""Verified blocks of a resource in an object store: of the parts of a pointer, or of a plain file of another tool."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from data_stack.exception import DamagedBlockError, ResourceChangedError
from data_stack.io.integrity import ALGORITHM, block_digest, digest_of_block
from data_stack.io.storage_connectors.blocks import Blocks, runs_of
from data_stack.io.storage_connectors.fsspec.pointer import PART_BYTES, Pointer, part_path
from data_stack.io.storage_connectors.fsspec.remote import RemoteFile, RemoteFiles

_ADOPTED_BLOCK_BYTES = 256 << 10


class ObjectBlocks(Blocks):
    """Reads ranges of parts, and verifies each block.

    Args:
        files: the store.
        pointer: describes the resource.
        current: reads the current pointer, for errors.
        file: the plain file of another tool, which has no parts and no digests.
    """

    ahead_bytes = 2 * PART_BYTES

    def __init__(
        self, files: RemoteFiles, pointer: Pointer, current: Callable[[], Pointer | None], file: RemoteFile | None = None
    ) -> None:
        self._files, self._pointer, self._current, self._file = files, pointer, current, file
        self.size, self.block_bytes, self.sha256 = pointer.size, pointer.block_bytes, pointer.sha256 or None
        etag = "" if file is None else file.tag.partition("|")[0]  # the times behind it change with each copy
        self.tag = f"{etag}, {self.size} bytes" if etag else None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        if self._file is None and self._pointer.version is None:
            return [self._pointer.inline[number * self.block_bytes :][: self.block_bytes] for number in numbers]
        found: list[bytes] = []
        runs = list(runs_of(numbers, PART_BYTES // self.block_bytes))
        pieces = self._read(runs)
        if self._file is not None:
            # If the file is unchanged afterwards, it did not change while it was read.
            now = self._files.info(self._file.path)
            if now != self._file:
                self._raise_changed(f"tag {self._file.tag}", None if now is None else f"tag {now.tag}")
        for index, (first, n_blocks) in enumerate(runs):
            piece, pieces[index] = pieces[index], None  # blocks are copies: free each piece early
            view = memoryview(piece or b"")
            for i in range(n_blocks):
                data = bytes(view[i * self.block_bytes : (i + 1) * self.block_bytes])
                if not self._is_right(first + i, data):  # perhaps damaged on the way only
                    data = self._read([(first + i, 1)])[0] or b""
                    if not self._is_right(first + i, data):
                        self._raise_damaged(first + i, data)
                found.append(data)
        return found

    def _read(self, runs: Sequence[tuple[int, int]]) -> list[bytes | None]:
        ranges = []
        for start, end in itertools.starmap(self.range_of, runs):
            if self._file is None:
                part = start // PART_BYTES
                ranges.append((part_path(self._pointer.version, part), start - part * PART_BYTES, end - part * PART_BYTES))
            else:
                ranges.append((self._file.path, start, end))
        return self._files.read_ranges(ranges)

    def _is_right(self, number: int, data: bytes) -> bool:
        if self._file is not None:
            return len(data) == min(self.block_bytes, self.size - number * self.block_bytes)
        return block_digest(data) == digest_of_block(self._pointer.blocks, number)

    def _raise_damaged(self, number: int, data: bytes) -> None:
        pointer = self._pointer
        expected, actual, algorithm = digest_of_block(pointer.blocks, number).hex(), block_digest(data).hex(), ALGORITHM
        if self._file is not None:
            expected, actual, algorithm = str(self.size), str(number * self.block_bytes + len(data)), "size"
        elif not data:
            current = self._current()
            if current != pointer:
                self._raise_changed(f"sha256 {self.sha256}", None if current is None else f"sha256 {current.sha256}")
            actual = "nothing: it is missing"
        raise DamagedBlockError(pointer.identifier, self._files.place, number, self.block_bytes, expected, actual, algorithm)

    def _raise_changed(self, before: str, now: str | None) -> None:
        raise ResourceChangedError(self._pointer.identifier, f"{before}, {self.size:,} bytes", now or "nothing")


def adopt_blocks(files: RemoteFiles, identifier: str, file: RemoteFile, sha256: str | None) -> ObjectBlocks:
    """The blocks of a plain file of another tool, with its ``sha256`` if known."""
    described = Pointer(identifier, file.size, sha256 or "", _ADOPTED_BLOCK_BYTES, b"", None)
    return ObjectBlocks(files, described, lambda: None, file)
