"""The verified blocks of a resource in an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from data_stack.exception import DamagedBlockError, ResourceChangedError
from data_stack.io.integrity import (
    ALGORITHM,
    DIGEST_BYTES,
    block_digest,
    digest_of_block,
    digests_of_blocks,
)
from data_stack.io.storage_connectors.blocks import Blocks, Run, runs_of
from data_stack.io.storage_connectors.object_store.layout import part_path
from data_stack.io.storage_connectors.object_store.object_client import FileRange
from data_stack.io.storage_connectors.object_store.pointer import PART_BYTES, Pointer
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.storage_connectors.object_store.s3 import OtherVersionError
from data_stack.io.storage_connectors.recent_pieces import Piece


class ObjectBlocks(Blocks):
    """Reads ranges of the parts of a pointer, or of a plain file, and verifies each block.

    Args:
        files: the files of the store.
        pointer: describes the resource.
        read_pointer: reads the current pointer, to tell a replaced resource from a damaged one.
    """

    ahead_bytes = 2 * PART_BYTES
    _files: RemoteFiles
    _pointer: Pointer
    _read_pointer: Callable[[], Pointer | None]
    #: The plain file of another tool; None for a resource of ours.
    _file: RemoteFile | None

    def __init__(
        self, files: RemoteFiles, pointer: Pointer, read_pointer: Callable[[], Pointer | None]
    ) -> None:
        self.size = pointer.size
        self.block_bytes = pointer.block_bytes
        self.sha256 = pointer.sha256 or None
        self._files = files
        self._pointer = pointer
        self._read_pointer = read_pointer
        self._file = pointer.file
        # Not the whole tag of the file: its time changes with each copy.
        if pointer.file is not None and pointer.file.etag:
            self.tag = f"{pointer.file.etag}, {self.size} bytes"

    def fetch(self, numbers: Sequence[int]) -> list[Piece]:
        if self._file is None and self._pointer.version is None:
            return [self._inline_piece(run) for run in runs_of(numbers)]

        runs = list(runs_of(numbers, PART_BYTES // self.block_bytes))
        data_of_runs = self._read(runs)
        if self._file is not None and not self._files.checks_version(self._file):
            # If the file is unchanged afterwards, it did not change while it was read.
            self._check_unchanged(self._file)

        pieces = []
        for run, data in zip(runs, data_of_runs, strict=True):
            pieces.append(Piece(run.first, run.n_blocks, self._verify_run(run, data or b"")))
        return pieces

    def _inline_piece(self, run: Run) -> Piece:
        """Return blocks of the content in the pointer, which was verified with it."""
        start, stop = self.range_of(run.first, run.n_blocks)
        return Piece(run.first, run.n_blocks, self._pointer.inline[start:stop])

    def _read(self, runs: Sequence[Run]) -> list[bytes | None]:
        """Read neighbouring blocks, each run in one request.

        Returns:
            The bytes of each run; None if the part is missing.

        Raises:
            ResourceChangedError: the file has another version now.
        """
        ranges = [self._range_of_run(run) for run in runs]
        try:
            return self._files.read_ranges(ranges, version=self._file)
        except OtherVersionError as error:
            # Parts never change, so only a plain file can have another version.
            if self._file is None:
                raise
            self._check_unchanged(self._file)
            self._raise_changed(f"tag {self._file.tag}", str(error))

    def _range_of_run(self, run: Run) -> FileRange:
        """Return where the bytes of neighbouring blocks are."""
        start, stop = self.range_of(run.first, run.n_blocks)
        if self._file is not None:
            return FileRange(self._file.path, start, stop)
        # A run lies in one part.
        part = start // PART_BYTES
        part_start = part * PART_BYTES
        path = part_path(str(self._pointer.version), part)
        return FileRange(path, start - part_start, stop - part_start)

    def _verify_run(self, run: Run, data: bytes) -> bytes:
        """Return neighbouring blocks that are intact.

        Raises:
            DamagedBlockError: a block is damaged.
        """
        start, stop = self.range_of(run.first, run.n_blocks)
        if self._file is not None:
            # A plain file has no digests of its blocks.
            is_intact = len(data) == stop - start
        else:
            digests_start = run.first * DIGEST_BYTES
            digests_stop = digests_start + run.n_blocks * DIGEST_BYTES
            expected = self._pointer.blocks[digests_start:digests_stop]
            is_intact = digests_of_blocks(data, self.block_bytes) == expected
        if is_intact:
            return data

        blocks = []
        for number in range(run.first, run.first + run.n_blocks):
            block_start = (number - run.first) * self.block_bytes
            block = data[block_start : block_start + self.block_bytes]
            blocks.append(self._verify_block(number, block))
        return b"".join(blocks)

    def _verify_block(self, number: int, block: bytes) -> bytes:
        """Return a block that is intact.

        Raises:
            DamagedBlockError: it is damaged.
        """
        if self._is_intact(number, block):
            return block
        # Perhaps it was damaged only on the way, so it is read a second time.
        block = self._read([Run(number, 1)])[0] or b""
        if not self._is_intact(number, block):
            self._raise_damaged(number, block)
        return block

    def _is_intact(self, number: int, block: bytes) -> bool:
        if self._file is not None:
            # A plain file has no digests of its blocks.
            return len(block) == min(self.block_bytes, self.size - number * self.block_bytes)
        return block_digest(block) == digest_of_block(self._pointer.blocks, number)

    def _check_unchanged(self, file: RemoteFile) -> None:
        """Check that a plain file is as it was described.

        Raises:
            ResourceChangedError: it is not.
        """
        current = self._files.info(file.path)
        if current != file:
            now = "nothing" if current is None else f"tag {current.tag}"
            self._raise_changed(f"tag {file.tag}", now)

    def _raise_damaged(self, number: int, block: bytes) -> NoReturn:
        """Raise the error for a block that is not intact.

        Raises:
            ResourceChangedError: the resource was replaced, and its parts were removed since.
            DamagedBlockError: otherwise.
        """
        if self._file is not None:
            # Only the length of a plain file is known.
            expected = str(self.size)
            actual = str(number * self.block_bytes + len(block))
            what = "size"
        else:
            if not block:
                self._check_not_replaced()
            expected = digest_of_block(self._pointer.blocks, number).hex()
            actual = block_digest(block).hex() if block else "nothing: it is missing"
            what = ALGORITHM
        raise DamagedBlockError(
            self._pointer.identifier,
            self._files.place,
            number,
            self.block_bytes,
            expected,
            actual,
            what,
        )

    def _check_not_replaced(self) -> None:
        """Check that the pointer, of which a part is missing, is still the current one.

        Raises:
            ResourceChangedError: the resource was replaced or deleted.
        """
        current = self._read_pointer()
        if current != self._pointer:
            now = "nothing" if current is None else f"sha256 {current.sha256}"
            self._raise_changed(f"sha256 {self.sha256}", now)

    def _raise_changed(self, before: str, now: str) -> NoReturn:
        raise ResourceChangedError(self._pointer.identifier, f"{before}, {self.size:,} bytes", now)
