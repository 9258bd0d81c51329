"""Checks the blocks of a file against the digests in a manifest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import MANIFEST
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest, digest_of_block

#: ``offset >> _SHIFT`` is the number of the block that has the byte at an offset.
_SHIFT = BLOCK_BYTES.bit_length() - 1

_Integers = npt.NDArray[np.int64]


class BlockChecks:
    """Checks the blocks of a file, and remembers which are checked.

    There is no lock: two threads may check a block twice.

    Args:
        name: the name of the file, for messages.
        size: the number of bytes that the digests cover. Bytes after them are not checked.
        digests: the digests of the blocks, 8 bytes each; None to check nothing.

    Attributes:
        name: the name of the file, for messages.
        size: the number of bytes that the digests cover.
        is_done: whether all blocks are checked.
    """

    #: 1 for each checked block, 0 for the others.
    _checked: bytearray

    #: The same memory as an array, uint8, shape ``(n_blocks,)``.
    _flags: npt.NDArray[np.uint8]

    #: The number of checked blocks before the first unchecked one.
    _n_checked_at_start: int

    def __init__(self, name: str, size: int, digests: bytes | None) -> None:
        self.name = name
        self.size = size
        self._digests = digests
        n_blocks = 0 if digests is None else len(digests) // DIGEST_BYTES
        self._checked = bytearray(n_blocks)
        self._flags = np.ndarray((n_blocks,), np.uint8, self._checked)
        self._n_checked_at_start = 0
        self.is_done = n_blocks == 0

    def check(self, data: memoryview, starts: _Integers, ends: _Integers) -> None:
        """Check the unchecked blocks of some ranges.

        Args:
            data: the bytes of the whole file.
            starts: the first byte of each range, shape ``(n,)``.
            ends: the end of each range, exclusive, shape ``(n,)``.

        Raises:
            DatasetFileCorruptError: a block is damaged; the first one of the file, if several are.
        """
        covered_ends = np.minimum(ends, self.size)
        is_covered = starts < covered_ends
        first_blocks = starts[is_covered] >> _SHIFT
        end_blocks = ((covered_ends[is_covered] - 1) >> _SHIFT) + 1

        blocks = _concatenate_ranges(first_blocks, end_blocks)
        unchecked = blocks[self._flags[blocks] == 0]
        if len(unchecked):
            # Not np.unique, which imports numpy.ma: 50 ms and 2.5 MiB in each process.
            # Threads would take longer: xxhash keeps the GIL for blocks of this size.
            for block in sorted(set(unchecked.tolist())):
                self._check_block_of_file(block, data)

    def check_range(self, data: memoryview, start: int, end: int) -> None:
        """Check the unchecked blocks of one range, as :meth:`check` does, in less time."""
        covered_end = min(end, self.size)
        if covered_end <= start:
            return
        end_block = ((covered_end - 1) >> _SHIFT) + 1
        block = self._checked.find(0, start >> _SHIFT, end_block)
        while block != -1:
            self._check_block_of_file(block, data)
            block = self._checked.find(0, block + 1, end_block)

    def check_blocks(self, start: int, data: memoryview) -> None:
        """Check blocks that were read together.

        Args:
            start: the offset of the first block.
            data: the bytes from there on, at least to the end of the last covered block among them.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        n_covered_bytes = min(len(data), self.size - start)
        for offset in range(0, n_covered_bytes, BLOCK_BYTES):
            block = (start + offset) >> _SHIFT
            end = min(offset + BLOCK_BYTES, n_covered_bytes)
            self._check_block(block, data[offset:end])

    def _check_block_of_file(self, block: int, data: memoryview) -> None:
        """Compare a block with its digest, as :meth:`_check_block` does.

        Args:
            block: the number of the block.
            data: the bytes of the whole file. Bytes that no digest covers may follow the last
                block: they were appended later.
        """
        start = block << _SHIFT
        end = min(start + BLOCK_BYTES, self.size)
        self._check_block(block, data[start:end])

    def _check_block(self, block: int, content: memoryview) -> None:
        """Compare a block with its digest.

        Args:
            block: the number of the block.
            content: its bytes.

        Raises:
            DatasetFileCorruptError: the block is damaged.
        """
        digests = self._digests
        if digests is not None and block_digest(content) != digest_of_block(digests, block):
            raise block_damage(self.name, block)
        self._checked[block] = 1
        first_unchecked = self._checked.find(0, self._n_checked_at_start)
        if first_unchecked == -1:
            self.is_done = True
        else:
            self._n_checked_at_start = first_unchecked

    def widen(self, offset: int, size: int) -> tuple[int, int] | None:
        """Widen a range so that its unchecked blocks can be checked.

        Args:
            offset: the first byte of the range.
            size: the size of the range in bytes.

        Returns:
            Offset and size of the smallest range of whole blocks that has the bytes; None if all
            blocks of the range are checked.
        """
        end = offset + size
        covered_end = min(end, self.size)
        if self.is_done or covered_end <= offset:
            return None
        first = offset >> _SHIFT
        last = (covered_end - 1) >> _SHIFT
        if 0 not in self._checked[first : last + 1]:
            return None
        wide_start = first << _SHIFT
        end_of_last_block = min((last + 1) << _SHIFT, self.size)
        wide_end = max(end, end_of_last_block)
        return wide_start, wide_end - wide_start


def _concatenate_ranges(starts: _Integers, ends: _Integers) -> _Integers:
    """Return the numbers of all ranges, none of which is empty, one range after the other."""
    sizes = ends - starts
    n_numbers = int(sizes.sum())
    if n_numbers == len(starts):  # as nearly always
        return starts
    numbers_before = np.cumsum(sizes) - sizes
    return np.repeat(starts - numbers_before, sizes) + np.arange(n_numbers)


def block_damage(file: str, block: int) -> DatasetFileCorruptError:
    """Return the error to raise for a block that differs from its digest."""
    return DatasetFileCorruptError(
        f"{file} is damaged: the block of {BLOCK_BYTES:,} bytes "
        f"from byte {block * BLOCK_BYTES:,} on differs from its checksum in {MANIFEST}. "
        "Restore the file from a copy, or write the dataset again; verify() checks all files"
    )
