"""The bytes of one resource, out of the local disk as far as they are there, else out of the remote and onto the disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence

from data_stack.exception import ChecksumMismatchError, DataStackError, ResourceChangedError
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.cached.folder import Content
from data_stack.io.storage_connectors.cached.parts import PartialContent
from data_stack.io.storage_connectors.cached.remote import Remote

__all__ = ["CachedSource"]

#: What is shorter comes in one request, and is held against its digest before a byte of it is handed out.
WHOLE_BYTES = 1 << 20
#: The most that is asked for and held in memory at once.
_AT_ONCE_BLOCKS = (4 << 20) // BLOCK_BYTES
#: A lock of each process, for the first moments of a child; that of its parent may be held by a thread that is not there.
_after_fork: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)


class CachedSource(ByteSource):
    """Reads a resource by position. It is opened, and from then on stays the same bytes, at the first need.

    Args:
        remote: where it comes from, and the folder that it is kept in.
        identifier: the resource.
        content: its bytes, as the remote said.
    """

    def __init__(self, remote: Remote, identifier: str, content: Content) -> None:
        self._remote, self._identifier, self._content = remote, identifier, content
        self._handle = -1
        self._is_open = False
        self._is_pinned = True
        self._parts: PartialContent | None = None
        self._keeps = True
        self._resource: StreamedResource | None = None
        self._data: bytes | None = None
        self._retired: list[int] = []
        self._end_of_last, self._run_bytes = 0, 0
        self._pid, self._lock = os.getpid(), threading.RLock()

    # ------------------------------------------------------------------ what ByteSource asks for

    @property
    def size(self) -> int:
        self._opened()
        return self._content.size

    @property
    def sha256(self) -> str | None:
        self._opened()
        return self._content.sha256 if self._is_pinned else None

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        if self._handle >= 0:
            try:
                n_read = os.preadv(self._handle, [buffer], offset)
            except OSError:
                n_read = -1
            if n_read == len(buffer) or (n_read >= 0 and offset + n_read >= self._content.size):
                return n_read
        return self._read_elsewhere(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._opened()
        if self._handle >= 0 or self._data is not None or self._filled(ranges):
            return super().read_ranges(ranges)
        resource = self._open_remote()
        parts = self._remote.ask(self._identifier, lambda: resource.read_ranges(ranges))
        self._remote.count(fetched_bytes=sum(map(len, parts)))
        return parts

    @property
    def prefetches(self) -> bool:
        self._opened()
        return self._handle < 0 and self._data is None

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        if self.prefetches:
            self._filled(ranges)
        return len(ranges)

    def fill(self) -> None:
        """Bring everything to the local disk, as far as there is room."""
        self._opened()
        parts = self._parts
        with self._local_trouble():
            first = 0
            while parts is not None and self._keeps and self._handle < 0 and first < parts.n_blocks:
                end = min(first + _AT_ONCE_BLOCKS, parts.n_blocks)
                if missing := parts.missing(first, end):
                    self._fill(missing)
                first = end
            if parts is not None and self._handle < 0 and parts.seems_complete():
                self._complete(parts)

    def fileno(self) -> int:
        self._opened()
        if self._handle < 0:
            raise io.UnsupportedOperation(
                f"resource {self._identifier!r} is not whole in the cache yet: read it to its end, or fetch() it first"
            )
        return self._handle

    def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            if self._pid == os.getpid():
                with contextlib.suppress(OSError):
                    if parts.seems_complete():
                        parts.complete()
            parts.close()
        for handle in [*self._retired, self._handle]:
            if handle >= 0:
                os.close(handle)
        self._handle, self._retired = -1, []
        resource, self._resource = self._resource, None
        if resource is not None:
            resource.close()

    # ------------------------------------------------------------------ opening

    def _opened(self) -> None:
        if self._handle >= 0:
            return
        if self._pid != os.getpid():
            self._begin_in_child()
        if not self._is_open:
            with self._lock:
                if not self._is_open:
                    self._open()
                    self._is_open = True

    def _begin_in_child(self) -> None:
        """After a fork, share no lock with the parent: neither one that a thread there holds, nor one of the file system."""
        with _after_fork[os.getpid()]:
            if self._pid != os.getpid():
                self._lock = threading.RLock()
                if self._parts is not None:
                    self._parts.close()
                    self._parts = self._open_parts()
                self._pid = os.getpid()

    def _open(self) -> None:
        folder = self._remote.folder
        if self._open_whole():
            self._remote.count(hits=1)
            return
        self._remote.count(misses=1)
        here = os.path.exists(folder.parts_path(self._content))
        if not (here and self._remote.is_silent()):
            try:
                self._open_remote()
            except OSError:
                if not here:  # blocks that are here serve while the remote is away
                    raise
            if self._open_whole():  # the remote had been given other bytes in between
                return
        if self._content.size <= WHOLE_BYTES:
            self._fetch_whole()
        elif folder.limit.admits(self._content.size) and self._is_pinned:
            # What is not pinned may have been replaced since the digest was told: blocks of two versions could meet.
            self._parts = self._open_parts()

    def _open_whole(self) -> bool:
        handle = self._remote.folder.open_whole(self._content)
        if handle is None:
            return False
        self._handle = handle
        return True

    def _open_parts(self) -> PartialContent | None:
        try:
            parts = PartialContent(self._remote.folder, self._content)
            parts.touch()
            return parts
        except OSError as error:
            self._remote.folder.cannot("write to", error)
            return None

    def _open_remote(self) -> StreamedResource:
        """The resource in the remote, kept open, so that this reader finishes with the bytes that it began with."""
        with self._lock:
            if self._resource is None:
                resource = self._remote.resource(self._identifier)
                try:
                    size, sha256 = self._remote.ask(self._identifier, lambda: (resource.size, resource.sha256))
                    pinned = Content.of(sha256, size)
                    content = pinned or Content(self._content.sha256, size)
                    if self._is_open and pinned != self._content:
                        raise ResourceChangedError(
                            self._identifier, f"sha256 {self._content.sha256}", f"sha256 {sha256}, {size:,} bytes"
                        )
                except BaseException:
                    resource.close()
                    raise
                self._resource, self._content, self._is_pinned = resource, content, pinned is not None
            return self._resource

    def _fetch_whole(self) -> None:
        resource, content = self._open_remote(), self._content
        data = self._remote.ask(self._identifier, lambda: resource.read_at(0, content.size))
        self._remote.count(fetched_bytes=len(data))
        actual = hashlib.sha256(data).hexdigest()
        if actual != content.sha256:
            if self._is_pinned or self._remote.still_says(self._identifier, content):
                raise ChecksumMismatchError(self._identifier, repr(self._remote.store), content.sha256, actual)
            # Replaced after the digest was told, in a store whose resources do not tell theirs.
            self._content = content = Content(actual, len(data))
        self._is_pinned = True
        handle = self._remote.folder.store_whole(content, data) if self._remote.folder.limit.admits(content.size) else None
        if handle is None:
            self._data = data
        else:
            self._handle = handle
        self._resource = None
        resource.close()

    # ------------------------------------------------------------------ reading what is not whole

    def _read_elsewhere(self, offset: int, buffer: memoryview) -> int:
        if self._pid != os.getpid():
            self._begin_in_child()
        if self._handle >= 0:
            with self._lock:
                if self._handle >= 0:
                    # Cut short, or the disk fails. Other threads may be reading from the descriptor: closed later.
                    self._remote.folder.say(f"{self._content.key} is damaged; the remote is read instead", once=False)
                    self._retired.append(self._handle)
                    self._handle = -1
                    self._remote.folder.drop(self._content)
        self._opened()
        if self._handle >= 0:
            # Opened just now, by this thread or another one.
            return self.readinto_at(offset, buffer)
        if self._data is not None:
            part = memoryview(self._data)[offset : offset + len(buffer)]
            buffer[: len(part)] = part
            return len(part)
        size = max(0, min(len(buffer), self._content.size - offset))
        if size and not (self._parts is not None and self._read_parts(offset, buffer[:size])):
            self._read_remote(offset, buffer[:size])
        return size

    def _filled(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Fetch all blocks that these ranges miss, in as few requests as memory allows; False: the disk takes no more."""
        parts = self._parts
        if parts is None:
            return False
        touched = sorted({number for offset, size in ranges for number in self._blocks(offset, size)})
        missing = touched
        with self._local_trouble():
            missing = [number for number in touched if parts.missing(number, number + 1)]
            for start in range(0, len(missing), _AT_ONCE_BLOCKS):
                if self._keeps:
                    self._fill(missing[start : start + _AT_ONCE_BLOCKS])
        return self._keeps or not missing

    def _read_parts(self, offset: int, buffer: memoryview) -> bool:
        """Read from blocks, filling in those that are missing; False: the remote has to be read directly."""
        parts, done = self._parts, 0
        follows, self._end_of_last = offset == self._end_of_last, offset + len(buffer)
        self._run_bytes = self._run_bytes + len(buffer) if follows else 0
        with self._local_trouble():
            while parts is not None and done < len(buffer):
                numbers = self._blocks(offset + done, len(buffer) - done)[:_AT_ONCE_BLOCKS]
                piece = buffer[done : min(len(buffer), numbers.stop * BLOCK_BYTES - offset)]
                if not parts.has_checked(numbers.start, numbers.stop) and (missing := parts.missing(numbers.start, numbers.stop)):
                    if not self._keeps:
                        return False
                    fetched = self._fill([*missing, *self._ahead(numbers.stop, _AT_ONCE_BLOCKS - len(missing))])
                    if not parts.has_checked(numbers.start, numbers.stop):
                        self._copy(fetched, offset + done, piece)
                        done += len(piece)
                        continue
                if parts.readinto(offset + done, piece) != len(piece):
                    raise OSError("cut short")
                done += len(piece)
        return done == len(buffer)

    def _copy(self, fetched: dict[int, bytes], offset: int, piece: memoryview) -> None:
        """Fill ``piece`` from blocks that could not be kept, and from those that are here."""
        for number in self._blocks(offset, len(piece)):
            start, end = max(offset, number * BLOCK_BYTES), min(offset + len(piece), (number + 1) * BLOCK_BYTES)
            part = piece[start - offset : end - offset]
            if number in fetched:
                part[:] = memoryview(fetched[number])[start - number * BLOCK_BYTES : end - number * BLOCK_BYTES]
            elif self._parts is None or self._parts.readinto(start, part) != len(part):
                raise OSError("cut short")

    def _fill(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Fetch blocks and keep them; they are returned in case they could not be kept."""
        parts, resource = self._parts, self._open_remote()
        ranges = [(number * BLOCK_BYTES, min(BLOCK_BYTES, self._content.size - number * BLOCK_BYTES)) for number in numbers]
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            start, size = ranges[0][0], ranges[-1][0] + ranges[-1][1] - ranges[0][0]
            # In one piece, which a remote with a read-ahead of its own takes for what it is.
            data = memoryview(self._remote.ask(self._identifier, lambda: resource.read_at(start, size)))
            blocks = [bytes(data[offset - start : offset - start + length]) for offset, length in ranges]
        else:
            blocks = self._remote.ask(self._identifier, lambda: resource.read_ranges(ranges))
        fetched = dict(zip(numbers, blocks, strict=True))
        self._remote.count(fetched_bytes=sum(map(len, blocks)))
        for (offset, length), block in zip(ranges, blocks, strict=True):
            if len(block) != length:
                raise ChecksumMismatchError(
                    self._identifier, repr(self._remote.store), str(self._content.size), str(offset + len(block)), "size"
                )
        if parts is not None:
            with self._local_trouble():
                if parts.put(fetched) is False:
                    # No room, or evicted; or completed by somebody else.
                    self._keeps = self._open_whole()
                elif parts.seems_complete():
                    self._complete(parts)
        return fetched

    def _complete(self, parts: PartialContent) -> None:
        actual = parts.complete()
        if actual is not None:
            raise ChecksumMismatchError(self._identifier, repr(self._remote.store), self._content.sha256, actual)
        with self._lock:
            if self._handle < 0:
                self._open_whole()

    def _ahead(self, first: int, most: int) -> Iterator[int]:
        """The next blocks, for who reads on and on: as much as was read in one go, but no block that seems to be here."""
        parts = self._parts
        if parts is not None:
            end = first + min(most, self._run_bytes // BLOCK_BYTES)
            # To where pages and blocks begin together: a file written in pieces of whole pages is read faster later.
            end = end - end % _AT_ONCE_BLOCKS if end - end % _AT_ONCE_BLOCKS > first else end
            for number in range(first, min(end, parts.n_blocks)):
                if parts.is_noted(number):
                    return
                yield number

    def _read_remote(self, offset: int, buffer: memoryview) -> None:
        resource = self._open_remote()
        for start in range(0, len(buffer), _AT_ONCE_BLOCKS * BLOCK_BYTES):
            piece = buffer[start : start + _AT_ONCE_BLOCKS * BLOCK_BYTES]
            data = self._remote.ask(self._identifier, functools.partial(resource.read_at, offset + start, len(piece)))
            self._remote.count(fetched_bytes=len(data))
            if len(data) != len(piece):
                raise ChecksumMismatchError(
                    self._identifier, repr(self._remote.store), str(self._content.size), str(offset + start + len(data)), "size"
                )
            piece[:] = data

    def _blocks(self, offset: int, size: int) -> range:
        end = min(offset + size, self._content.size)
        return range(offset // BLOCK_BYTES, -(-end // BLOCK_BYTES)) if offset < end else range(0)

    @contextlib.contextmanager
    def _local_trouble(self) -> Iterator[None]:
        """What goes wrong with the local disk ends the caching of this resource, not the reading."""
        try:
            yield
        except OSError as error:
            if isinstance(error, DataStackError):
                raise  # what the remote said
            self._keeps = False
            self._remote.folder.cannot("use", error)
