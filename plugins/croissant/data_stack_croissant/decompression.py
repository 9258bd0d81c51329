"""Decompresses files of a document, which tell by their first bytes whether they are compressed."""

from __future__ import annotations

from typing import Any, Final

from data_stack.io.archives import compression_of, open_decompressed

#: Number of the first bytes of a file that tell its compression.
_HEAD_BYTES: Final = 6


def decompress_if_needed(stream: Any) -> Any:
    """Return a stream of the decompressed bytes; the stream itself if it is not compressed."""
    stream.seek(0)
    head = stream.read(_HEAD_BYTES)
    stream.seek(0)
    if compression_of(head) is None:
        return stream
    return open_decompressed(stream)
