"""Memory for records on their way to a file, used again and again: memory that is fresh costs more than the copy into it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

__all__ = ["BLOCK_BYTES", "MemoryBlocks"]

#: The largest piece that has room in one block; a block may grow to twice that.
BLOCK_BYTES = 1 << 20
#: What is smaller comes from where malloc has it at hand.
_LEAST_BYTES = 1 << 17
_MOST_BLOCKS = 12


class MemoryBlocks:
    """Blocks of about 1 MiB, each lent as long as anybody has a view of it.

    Nobody gives a block back: a BytesIO says itself whether there is a view of its memory, whichever thread has it, and however
    it came to forget it. Where no block is free, or what is asked for is small or large, the memory is fresh.
    """

    def __init__(self) -> None:
        self._blocks: list[io.BytesIO] = []

    def room(self, n_bytes: int) -> Buffer:
        """So many bytes to be written into, whatever they were before."""
        block = self._free() if _LEAST_BYTES <= n_bytes <= BLOCK_BYTES else None
        return bytearray(n_bytes) if block is None else block.getbuffer()[:n_bytes]

    def joined(self, records: Sequence[bytes]) -> Buffer:
        """Records end to end."""
        if len(records) == 1:
            return records[0]
        n_bytes = sum(map(len, records))
        block = self._free() if _LEAST_BYTES <= n_bytes <= 2 * BLOCK_BYTES else None
        if block is None:
            return b"".join(records)
        block.seek(0)
        block.writelines(records)
        return block.getbuffer()[:n_bytes]

    def _free(self) -> io.BytesIO | None:
        for number, block in enumerate(self._blocks):
            try:
                block.write(b"")
            except BufferError:
                continue
            # The one that is lent now is looked at last next time.
            self._blocks.append(self._blocks.pop(number))
            return block
        if len(self._blocks) == _MOST_BLOCKS:
            return None
        self._blocks.append(io.BytesIO(bytes(BLOCK_BYTES)))
        return self._blocks[-1]
