"""Uploads the parts of a resource."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from typing import Any, Final

from data_stack.exception import StorageError
from data_stack.io.integrity import Digest, digests_of_blocks
from data_stack.io.resources import Storable
from data_stack.io.storage_connectors.object_store.layout import part_path
from data_stack.io.storage_connectors.object_store.pointer import (
    MAX_RESOURCE_BYTES,
    PART_BYTES,
    Pointer,
    block_bytes_for,
)
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.storage_connectors.storable import binary_chunks, split_into_pieces
from data_stack.util.executor import waiting

#: Resources up to this size are stored in their pointer, in one request.
_INLINE_BYTES: Final = 65_536
#: How many parts are uploaded at once.
_PARTS_AT_ONCE: Final = 3


def size_of(resource: Storable) -> int | None:
    """Return the length of a resource, in bytes.

    A file is left at its end.

    Returns:
        None if the resource can be read only once.
    """
    if isinstance(resource, (bytes, bytearray, memoryview)):
        return memoryview(resource).nbytes
    file: Any = resource
    if hasattr(file, "read") and hasattr(file, "seekable") and file.seekable():
        file.seek(0, os.SEEK_END)
        return int(file.tell())
    return None


def upload(files: RemoteFiles, identifier: str, resource: Storable, size: int) -> Pointer:
    """Upload the parts of a resource, a few at a time.

    Args:
        files: the files of the store.
        identifier: the identifier of the resource.
        resource: its bytes.
        size: its length.

    Returns:
        The pointer, which is not published yet. A small resource has no parts.

    Raises:
        StorageError: the resource is too large, or could not be stored.
    """
    if size > MAX_RESOURCE_BYTES:
        raise StorageError(
            f"{identifier!r} is larger than {MAX_RESOURCE_BYTES >> 30} GiB, the limit of "
            f"{files.place}; split it"
        )
    block_bytes = block_bytes_for(size)
    parts = split_into_pieces(binary_chunks(resource), PART_BYTES)
    # Only the last part is shorter than the others. So a short first part is the whole resource.
    first_part = next(parts, b"")
    digest = Digest()
    if len(first_part) <= _INLINE_BYTES:
        digest.update(first_part)
        return Pointer(
            identifier,
            digest.size,
            digest.sha256,
            block_bytes,
            version=None,
            blocks=digests_of_blocks(first_part, block_bytes),
            inline=first_part,
        )

    version = secrets.token_hex(16)
    block_digests = bytearray()

    def hash_parts() -> Iterator[bytes]:
        for part in itertools.chain([first_part], parts):
            digest.update(part)
            # A part has a whole number of blocks.
            block_digests.extend(digests_of_blocks(part, block_bytes))
            yield part

    def store(numbered_part: tuple[int, bytes]) -> None:
        number, part = numbered_part
        files.put(part_path(version, number), part)

    for _ in waiting.map(store, enumerate(hash_parts()), at_once=_PARTS_AT_ONCE):
        pass
    return Pointer(
        identifier,
        digest.size,
        digest.sha256,
        block_bytes,
        version,
        blocks=bytes(block_digests),
    )
