"""The local folder of a cache.

::

    bytes/<sha256>-<size>           the bytes; a sparse file while blocks are missing
    blocks/<sha256>-<size>          while blocks are missing: their length, then the digest of each
                                    block, or zeros for a missing one; all 8 bytes
    pages/<sha256>-<size>           once the bytes are whole: the digest of each page of 4 KiB.
                                    Files up to 64 KiB have none
    notes/<remote>/a/b.gz~          the last answer of the remote about "a/b.gz"
    claims                          an empty file whose locks say what a process is fetching, so
                                    that others wait for it

No file is trusted. A verified whole file gets the modification time
:attr:`~.content.Content.verified_ns`. Any later write changes this time, and then the file is
verified again. A failing disk may change bytes without a write; the digests of the pages detect
that on every read. Damaged files are removed, and fetched again from the remote. The access time of
a file is the time of its last use.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from data_stack.io.byte_source import ByteSource
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, Digest, digests_of_blocks
from data_stack.io.storage_connectors.cached.checked_file import PAGE_BYTES, CheckedFile
from data_stack.io.storage_connectors.cached.content import WHOLE_BYTES, Content
from data_stack.io.storage_connectors.cached.health import FolderHealth
from data_stack.io.storage_connectors.cached.notes import AnswerNotes
from data_stack.io.storage_connectors.cached.room import (
    DISK_PAGE_BYTES,
    CacheRoom,
    remove_if_possible,
)
from data_stack.io.storage_connectors.cached.shared_work import SharedWork
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.io.storage_connectors.file.opened_file import OpenedFile
from data_stack.io.storage_connectors.file.publishing import replace_file
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.storable import COPY_BYTES
from data_stack.io.storage_errors import storage_error
from data_stack.util.interrupts import open_descriptor

#: Files up to this size are read whole when they are opened, and verified by their SHA-256.
IN_MEMORY_BYTES: Final = 1 << 16
#: Longer blocks of a remote are cached in parts.
MAX_BLOCK_BYTES: Final = 4 << 20
#: The digests of the pages of a file are read up to this size (those of 512 MiB), and longer ones
#: are mapped: those of 100 GB take 200 MB, of which a read needs a few bytes.
_MAX_READ_DIGEST_BYTES: Final = 1 << 20
#: How old the access time of a file may be where nothing is evicted.
_USE_INTERVAL_SECONDS: Final = 60.0

#: Not through a link, and without waiting if the name is that of a pipe.
_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class BlockFiles:
    """The open files of a content of which blocks are missing.

    Attributes:
        data: the descriptor of the bytes.
        digests: the descriptor of the digests of the blocks, which follow the length of a block.
        block_bytes: the length of a block.
    """

    data: int
    digests: int
    block_bytes: int

    def close(self) -> None:
        """Close the files."""
        os.close(self.data)
        os.close(self.digests)


class CacheFolder:
    """The files of a cache.

    If the folder is full, read-only, damaged or gone, this is logged once and nothing is stored.

    Args:
        path: the absolute path of the folder, which is created by the first write.
        remote: the name of the remote. Several remotes may share the folder; their notes are
            separate, and their bytes are shared.
        max_bytes: the limit of the size on the disk; None: no limit.

    Attributes:
        path: the absolute path of the folder.
        health: what is wrong with the folder.
        room: evicts the files that were not used for longest.
        notes: the last answers of the remote.
        work: shares work among processes, such as fetching a file.
    """

    path: str
    health: FolderHealth
    room: CacheRoom
    notes: AnswerNotes
    work: SharedWork
    #: How old the access time of a file may be before a use updates it.
    _use_interval_seconds: float

    def __init__(self, path: str, remote: str, max_bytes: int | None) -> None:
        self.path = path
        self.health = FolderHealth(path)
        self.room = CacheRoom(path, max_bytes, self.health)
        self.notes = AnswerNotes(path, remote, self.room, self.health)
        self.work = SharedWork(path, self.health)
        # Eviction needs the exact order of uses.
        self._use_interval_seconds = _USE_INTERVAL_SECONDS if max_bytes is None else 0.0

    # ------------------------------------------------------------------ whole files

    def has_bytes(self, content: Content) -> bool:
        """Return whether there is a file of the bytes, whole or in part."""
        return os.path.exists(self._path_of("bytes", content))

    def has_blocks(self, content: Content) -> bool:
        """Return whether there is a file of the bytes of which blocks are missing."""
        return os.path.exists(self._path_of("blocks", content))

    def open_whole(
        self, content: Content, read_again: Callable[[], ByteSource]
    ) -> ByteSource | None:
        """Open the whole file of a content, verified.

        Args:
            content: the bytes of the resource.
            read_again: opens the same bytes if a later read finds damage. The files are removed
                before it is called.

        Returns:
            None if the file, or a block of it, is missing; or if it was damaged, and is now
            removed.
        """
        try:
            handle = os.open(self._path_of("bytes", content), os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.health.report("read", error)
            return None

        source: ByteSource | None = None
        try:
            if content.size <= IN_MEMORY_BYTES:
                source = _read_small_file(content, handle)
            elif self._lacks_blocks(content, handle):
                return None
            else:
                source = self._open_large_file(content, handle, read_again)
            if source is not None:
                self._note_use(content, handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.health.report("read", error)
            return None
        finally:
            # A CheckedFile closes the file itself.
            if not isinstance(source, CheckedFile):
                os.close(handle)
        if source is None:
            self._drop_damaged(content)
        return source

    def store_whole(self, content: Content, data: bytes) -> None:
        """Keep verified bytes if there is room."""
        try:
            if not self.room.has_room(len(data) + content.digests_size(PAGE_BYTES)):
                return
            if content.size > IN_MEMORY_BYTES:
                pages = digests_of_blocks(data, PAGE_BYTES)
                replace_file(self._path_of("pages", content), pages)
            replace_file(self._path_of("bytes", content), data, content.verified_ns)
        except OSError as error:
            self.health.report("write to", error)

    def verify(self, content: Content) -> None:
        """Verify the whole file regardless of its modification time. Remove it if it is damaged."""
        with contextlib.suppress(OSError):
            os.utime(self._path_of("bytes", content), ns=(0, 0), follow_symlinks=False)
        source = self.open_whole(content, refuse_damaged)
        if source is not None:
            source.close()

    def verify_open_file(self, content: Content, handle: int) -> bool:
        """Verify an open file that has all bytes, and mark it as verified.

        One process does so, while the others wait for it.

        Args:
            content: the expected bytes.
            handle: the descriptor of the file.

        Returns:
            Whether the file has the expected bytes.

        Raises:
            OSError: the disk failed.
        """

        def find_result() -> bool | None:
            is_marked = os.fstat(handle).st_mtime_ns == content.verified_ns
            has_digests = content.size <= IN_MEMORY_BYTES or self._has_pages(content)
            return True if is_marked and has_digests else None

        def make_result() -> bool:
            return self._verify_and_mark(content, handle)

        return self.work.share_one(f"{content.key} whole", find_result, make_result)

    # ------------------------------------------------------------------ files with missing blocks

    def open_blocks(self, content: Content, block_bytes: int) -> BlockFiles:
        """Open or create the files of the blocks of a content.

        Args:
            content: the bytes of the resource.
            block_bytes: the length of a block, for new files.

        Raises:
            OSError: that is not possible.
        """
        if not self.room.has_room(2 * DISK_PAGE_BYTES):
            raise OSError(errno.ENOSPC, "the cache is full")
        # A file of bytes without a file of digests was whole. If it is no longer marked as
        # verified, a slow process has written to it since.
        was_whole = self.has_bytes(content) and not self.has_blocks(content)
        with contextlib.ExitStack() as on_error:
            digests = self._open_to_write("blocks", content)
            on_error.callback(os.close, digests)
            data = self._open_to_write("bytes", content)
            on_error.callback(os.close, data)

            if os.fstat(data).st_size != content.size:
                os.truncate(data, content.size)
            elif was_whole:
                # This marks the file if its bytes are right. If not, its blocks are fetched again.
                self.verify_open_file(content, data)

            noted_block_bytes = self._read_block_bytes(content, digests)
            if noted_block_bytes is not None:
                block_bytes = noted_block_bytes
            else:
                os.pwrite(digests, block_bytes.to_bytes(DIGEST_BYTES, "little"), 0)
                os.truncate(digests, DIGEST_BYTES + content.digests_size(block_bytes))

            # Another process may have completed the file meanwhile.
            if os.fstat(data).st_mtime_ns == content.verified_ns:
                remove_if_possible(self._path_of("blocks", content))
            on_error.pop_all()
            return BlockFiles(data, digests, block_bytes)

    def _open_to_write(self, folder: str, content: Content) -> int:
        os.makedirs(os.path.join(self.path, folder), exist_ok=True)
        return os.open(self._path_of(folder, content), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)

    def _read_block_bytes(self, content: Content, digests: int) -> int | None:
        """Return the length of a block from the file of the digests; None if that is malformed."""
        block_bytes = int.from_bytes(os.pread(digests, DIGEST_BYTES, 0), "little")
        if not BLOCK_BYTES <= block_bytes <= MAX_BLOCK_BYTES:
            return None
        if os.fstat(digests).st_size != DIGEST_BYTES + content.digests_size(block_bytes):
            return None
        return block_bytes

    # ------------------------------------------------------------------ verification

    def _lacks_blocks(self, content: Content, handle: int) -> bool:
        """Return whether blocks of an open file are missing."""
        # The process that completes the file marks it first, and then removes the digests of the
        # blocks. Here the order is reversed, so that a file completed in between lacks nothing.
        has_blocks = self.has_blocks(content)
        return has_blocks and not _is_marked(content, handle)

    def _open_large_file(
        self, content: Content, handle: int, read_again: Callable[[], ByteSource]
    ) -> CheckedFile | None:
        """Open a file that is verified page by page; None if it has other bytes.

        Raises:
            OSError: the disk failed.
        """
        if os.fstat(handle).st_size != content.size:
            return None
        is_verified = _is_marked(content, handle) and self._has_pages(content)
        if not is_verified and not self.verify_open_file(content, handle):
            return None

        def replace() -> ByteSource:
            self._drop_damaged(content)
            return read_again()

        problem = f"could not read {self._path_of('bytes', content)!r}"
        file = OpenedFile(handle, functools.partial(storage_error, problem))
        return CheckedFile(file, content.sha256, self._read_pages(content), replace)

    def _verify_and_mark(self, content: Content, handle: int) -> bool:
        """Hash an open file, write the digests of its pages, and mark it as verified.

        The file is not marked if it was written to meanwhile.

        Returns:
            Whether the file has the expected bytes.
        """
        os.utime(handle, ns=(0, 0))
        digest = Digest()
        pages = list[bytes]()
        while chunk := os.pread(handle, COPY_BYTES, digest.size):
            digest.update(chunk)
            pages.append(digests_of_blocks(chunk, PAGE_BYTES))
        if digest.sha256 != content.sha256 or digest.size != content.size:
            return False

        if content.size > IN_MEMORY_BYTES:
            replace_file(self._path_of("pages", content), b"".join(pages))
        if content.size > WHOLE_BYTES:
            os.fsync(handle)
        was_written_to = os.fstat(handle).st_mtime_ns != 0
        if not was_written_to:
            os.utime(handle, ns=(time.time_ns(), content.verified_ns))
            remove_if_possible(self._path_of("blocks", content))
        return True

    def _has_pages(self, content: Content) -> bool:
        """Return whether there is a digest of each page of the whole file."""
        try:
            status = os.stat(self._path_of("pages", content), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return status.st_size == content.digests_size(PAGE_BYTES)

    def _read_pages(self, content: Content) -> Any:
        """Return the digests of the pages, mapped if there are many.

        Raises:
            OSError: the file is gone or damaged.
        """
        with open_descriptor(self._path_of("pages", content), _FLAGS) as handle:
            n_bytes = content.digests_size(PAGE_BYTES)
            if os.fstat(handle).st_size != n_bytes:
                raise OSError(errno.EIO, "the digests of the pages are incomplete")
            if n_bytes > _MAX_READ_DIGEST_BYTES:
                return mmap.mmap(handle, n_bytes, access=mmap.ACCESS_READ)
            # An error of the disk is an OSError here. In a map, it would be a signal.
            digests = os.pread(handle, n_bytes, 0)
        if len(digests) != n_bytes:
            raise OSError(errno.EIO, "the digests of the pages are incomplete")
        return digests

    def _note_use(self, content: Content, handle: int) -> None:
        """Update the access time of a verified file, if that is due."""
        if time.time() - os.fstat(handle).st_atime < self._use_interval_seconds:
            return
        with contextlib.suppress(OSError):
            os.utime(handle, ns=(time.time_ns(), content.verified_ns))

    def _drop_damaged(self, content: Content) -> None:
        self.health.warn(
            f"{content.key!r} is damaged; it is removed and read from the remote again", once=False
        )
        self.room.drop(content.key)

    def _path_of(self, folder: str, content: Content) -> str:
        return f"{self.path}/{folder}/{content.key}"


def refuse_damaged() -> ByteSource:
    """Raise an error, in place of reading a damaged file again.

    This is the ``read_again`` of a caller that handles the error itself.

    Raises:
        OSError: always.
    """
    raise OSError(errno.EIO, "a cached file is damaged")


def _is_marked(content: Content, handle: int) -> bool:
    """Return whether an open file was verified to have these bytes, and not written to since."""
    status = os.fstat(handle)
    return status.st_size == content.size and status.st_mtime_ns == content.verified_ns


def _read_small_file(content: Content, handle: int) -> BytesSource | None:
    """Read an open file whole; return None if it has other bytes than expected."""
    data = os.pread(handle, content.size + 1, 0)
    if len(data) != content.size or hashlib.sha256(data).hexdigest() != content.sha256:
        return None
    return BytesSource(data, ResourceInfo(content.key, content.size, content.sha256))
