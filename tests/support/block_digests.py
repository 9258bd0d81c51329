"""The digests that a store keeps of a resource, made the plain way."""

from __future__ import annotations

from data_stack.io.integrity import BLOCK_BYTES, block_digest


def digests_of_blocks(data: bytes | bytearray, block_bytes: int = BLOCK_BYTES) -> bytes:
    """The digests of all blocks of ``data``, one after the other."""
    return b"".join(block_digest(data[start : start + block_bytes]) for start in range(0, len(data), block_bytes))
