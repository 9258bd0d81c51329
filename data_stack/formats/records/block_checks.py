"""Checks the blocks of a file against the digests in a manifest."""

from __future__ import annotations

from collections.abc import Sequence

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import MANIFEST
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest, digest_of_block
from data_stack.util.executor import computing, n_threads_here

#: ``offset >> _SHIFT`` is the number of the block that has the byte at an offset.
_SHIFT = BLOCK_BYTES.bit_length() - 1

#: A thread checks at least this many blocks, which takes 60 µs: a thread wakes up in about as long.
_MIN_BLOCKS_OF_THREAD = 8


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

    #: The number of checked blocks before the first unchecked one.
    _n_checked_at_start: int

    def __init__(self, name: str, size: int, digests: bytes | None) -> None:
        self.name = name
        self.size = size
        self._digests = digests
        n_blocks = 0 if digests is None else len(digests) // DIGEST_BYTES
        self._checked = bytearray(n_blocks)
        self._n_checked_at_start = 0
        self.is_done = n_blocks == 0

    def check(self, data: memoryview, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Check the unchecked blocks of some ranges.

        Args:
            data: the bytes of the whole file.
            starts: the first byte of each range.
            ends: the end of each range, exclusive.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        checked = self._checked
        size = self.size
        unchecked: dict[int, None] = {}
        for start, end in zip(starts, ends, strict=True):
            covered_end = end if end < size else size
            if covered_end <= start:
                continue
            first = start >> _SHIFT
            last = (covered_end - 1) >> _SHIFT
            # Nearly always, a range lies in one checked block.
            if first == last and checked[first]:
                continue
            for block in range(first, last + 1):
                if not checked[block]:
                    unchecked[block] = None
        if unchecked:
            self._check_in_threads(data, list(unchecked))

    def _check_in_threads(self, data: memoryview, blocks: Sequence[int]) -> None:
        """Check blocks, many of them in several threads, as hashing releases the GIL.

        Args:
            data: the bytes of the whole file.
            blocks: the numbers of the blocks, in the order in which damage is reported.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        n_threads = choose_threads(len(blocks), n_threads_here())
        n_of_part = -(-len(blocks) // n_threads)
        own_blocks = blocks[:n_of_part]
        others = []
        for start in range(n_of_part, len(blocks), n_of_part):
            part = blocks[start : start + n_of_part]
            others.append((part, computing.submit(self._check_some, data, part)))
        try:
            self._check_some(data, own_blocks)
            for part, outcome in others:
                # A thread of the same pool that waited for another one could wait for itself.
                if outcome.cancel():
                    self._check_some(data, part)
                else:
                    outcome.result()
        finally:
            for _, outcome in others:
                outcome.cancel()

    def _check_some(self, data: memoryview, blocks: Sequence[int]) -> None:
        """Check blocks of the whole file, one after the other."""
        for block in blocks:
            block_start = block << _SHIFT
            self._check_block(block, data[block_start : block_start + BLOCK_BYTES])

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
            self._check_block(block, data[offset : offset + BLOCK_BYTES])

    def _check_block(self, block: int, content: memoryview) -> None:
        """Compare a block with its digest.

        Args:
            block: the number of the block.
            content: its bytes; those of the last block may be followed by bytes that no digest
                covers, which were appended later.
        """
        covered_content = content[: self.size - (block << _SHIFT)]
        if self._digests is not None:
            digest = digest_of_block(self._digests, block)
            if block_digest(covered_content) != digest:
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


def choose_threads(n_blocks: int, n_available: int) -> int:
    """Choose in how many threads to check blocks.

    Args:
        n_blocks: the number of blocks.
        n_available: how many threads should compute for the caller, itself included.
    """
    return max(1, min(n_available, n_blocks // _MIN_BLOCKS_OF_THREAD))


def block_damage(file: str, block: int) -> DatasetFileCorruptError:
    """Return the error to raise for a block that differs from its digest."""
    return DatasetFileCorruptError(
        f"{file} is damaged: the block of {BLOCK_BYTES:,} bytes "
        f"from byte {block * BLOCK_BYTES:,} on differs from its checksum in {MANIFEST}. "
        "Restore the file from a copy, or write the dataset again; verify() checks all files"
    )
