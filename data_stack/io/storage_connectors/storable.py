"""The bytes of what a caller passes to ``set_resource``: bytes, a file or an iterable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from data_stack.io.resources import Storable

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

#: Bytes are copied in pieces of this size.
COPY_BYTES = 1 << 20
#: The size of the buffer of files that are written.
BUFFER_BYTES = 1 << 17


def binary_chunks(resource: Storable) -> Iterator[Buffer]:
    """Yield the bytes of what was passed to ``set_resource``, from its start, in pieces.

    Raises:
        TypeError: ``resource`` yields something else than bytes.
    """
    source: Any = resource
    if isinstance(source, (bytes, bytearray, memoryview)):
        chunks: Iterable[Any] = [source]
    elif hasattr(source, "read"):
        if can_seek(source):
            source.seek(0)
        chunks = _read_chunks(source)
    else:
        chunks = source
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            raise TypeError(
                "a resource is stored from bytes, but its source returned "
                f"{type(chunk).__name__}; open text files in binary mode"
            )
        yield chunk


def split_into_pieces(chunks: Iterable[Buffer], piece_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of all chunks in pieces of one length.

    Args:
        chunks: bytes of any lengths.
        piece_bytes: the length of each piece. The last piece may be shorter.
    """
    pending = bytearray()
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        # A long chunk is copied piece by piece, so that it is not held twice.
        for start in range(0, len(view), piece_bytes):
            pending += view[start : start + piece_bytes]
            if len(pending) >= piece_bytes:
                yield bytes(memoryview(pending)[:piece_bytes])
                del pending[:piece_bytes]
    if pending:
        yield bytes(pending)


def can_seek(file: Any) -> bool:
    """Return whether a file-like object is seekable."""
    if hasattr(file, "seekable"):
        return bool(file.seekable())
    return hasattr(file, "seek")


def _read_chunks(file: Any) -> Iterator[Any]:
    """Yield what ``file.read`` returns until it is empty."""
    # The chunk of a text file is a str, which the caller refuses.
    while chunk := file.read(COPY_BYTES):
        yield chunk
