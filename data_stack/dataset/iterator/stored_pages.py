"""The bytes of a stored resource, each block of which is held against its digest before it is used."""

from __future__ import annotations

import io
import mmap
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError, ResourceChangedError
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, BlockDigests, block_digest, digest_of_block
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector

__all__ = ["PAGE_BYTES", "FetchedPages", "MappedPages", "PageWriter", "Pages", "mapped_resource", "read_at"]

#: A page is a block of :mod:`data_stack.io.integrity`.
PAGE_BYTES = BLOCK_BYTES
_MOST_FETCHED = (32 << 20) // PAGE_BYTES

_Integers = npt.NDArray[np.int64]
Damaged = Callable[[str], DatasetFileCorruptError]
"""Makes the error that says what is damaged, of what is wrong with it."""


class PageWriter:
    """Writes, and takes the digest of each page as it passes."""

    def __init__(self, file: Any) -> None:
        self.position = 0
        self._file = file
        self._digests = BlockDigests()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self._digests.update(memoryview(data))
        self.position += len(data)

    def pad_to(self, multiple: int) -> None:
        """Append zeros, so that what comes next begins at a multiple."""
        self.write(bytes(-self.position % multiple))

    def digests(self) -> bytes:
        """The digests of all pages, the last of which may be shorter."""
        return self._digests.digests()


class Pages(ABC):
    """The bytes of a resource from 0 to its index."""

    def __init__(self, damaged: Damaged, end: int, digests: bytes) -> None:
        self._damaged, self._end, self._digests = damaged, end, digests

    @abstractmethod
    def buffer(self, offset: int, size: int) -> memoryview:
        """A range, not to be written to.

        Raises:
            DatasetFileCorruptError: it is damaged.
        """

    @abstractmethod
    def prefetch(self, ranges: Callable[[], list[tuple[int, int]]]) -> None:
        """Fetch in one request what is going to be asked for, where that is of use."""

    @abstractmethod
    def rows_at(self, numbers: _Integers, row_bytes: int) -> npt.NDArray[np.uint8] | None:
        """Copies of rows, shape ``(n, row_bytes)``, if the resource is in memory as an array of such rows."""

    def _is_right(self, page: int, data: memoryview | bytes) -> bool:
        return block_digest(data) == digest_of_block(self._digests, page)


class MappedPages(Pages):
    """Of a file that is mapped into memory."""

    def __init__(self, damaged: Damaged, mapped: mmap.mmap, end: int, digests: bytes) -> None:
        super().__init__(damaged, end, digests)
        self._view = memoryview(mapped)
        self._bytes = np.frombuffer(mapped, dtype=np.uint8)
        self._checked = bytearray(len(digests) // DIGEST_BYTES)  # 1: has its digest
        self._checked_array = np.frombuffer(self._checked, dtype=np.uint8)

    def buffer(self, offset: int, size: int) -> memoryview:
        first, last = offset // PAGE_BYTES, (offset + size - 1) // PAGE_BYTES
        if size and 0 in self._checked[first : last + 1]:
            self._check(range(first, last + 1))
        return self._view[offset : offset + size]

    def prefetch(self, ranges: Callable[[], list[tuple[int, int]]]) -> None:
        pass  # the operating system has read it, or does when it is touched

    def rows_at(self, numbers: _Integers, row_bytes: int) -> npt.NDArray[np.uint8]:
        offsets = numbers * row_bytes
        # a row has at most the size of a page, so that it touches at most two
        for pages in (offsets // PAGE_BYTES, (offsets + (row_bytes - 1)) // PAGE_BYTES):
            unchecked = pages[self._checked_array[pages] == 0]
            if len(unchecked):
                self._check(np.unique(unchecked).tolist())
        n_rows = self._end // row_bytes
        rows: npt.NDArray[np.uint8] = self._bytes[: n_rows * row_bytes].reshape(n_rows, row_bytes).take(numbers, axis=0)
        return rows

    def _check(self, pages: Iterable[int]) -> None:
        for page in pages:
            if not self._checked[page]:
                if not self._is_right(page, self._view[page * PAGE_BYTES : min((page + 1) * PAGE_BYTES, self._end)]):
                    raise self._damaged(f"the {PAGE_BYTES} bytes from {page * PAGE_BYTES} on differ from their digest")
                self._checked[page] = 1


class FetchedPages(Pages):
    """Of a resource that is read by range; the pages read last are kept.

    There is no lock: what another thread, or the parent of a fork, does meanwhile costs at most another request.
    """

    def __init__(
        self,
        damaged: Damaged,
        storage: StorageConnector,
        identifier: str,
        trailer: bytes,
        end: int,
        digests: bytes,
    ) -> None:
        super().__init__(damaged, end, digests)
        self._storage, self._identifier, self._trailer = storage, identifier, trailer
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def buffer(self, offset: int, size: int) -> memoryview:
        if size == 0:
            return memoryview(b"")
        first, last = offset // PAGE_BYTES, (offset + size - 1) // PAGE_BYTES
        pages = [self._kept.get(page) for page in range(first, last + 1)]
        missing = [page for page, data in zip(range(first, last + 1), pages, strict=True) if data is None]
        fetched = self._fetched(missing) if missing else {}
        data = b"".join(fetched[page] if kept is None else kept for page, kept in zip(range(first, last + 1), pages, strict=True))
        return memoryview(data)[offset - first * PAGE_BYTES :][:size]

    def prefetch(self, ranges: Callable[[], list[tuple[int, int]]]) -> None:
        wanted = {
            page
            for offset, size in ranges()
            if size
            for page in range(offset // PAGE_BYTES, (offset + size - 1) // PAGE_BYTES + 1)
        }
        missing = sorted(page for page in wanted if page not in self._kept)
        if missing:
            self._fetched(missing, at_least=len(wanted))

    def rows_at(self, numbers: _Integers, row_bytes: int) -> None:
        return None

    def _fetched(self, pages: Sequence[int], at_least: int = 0) -> dict[int, bytes]:
        """Pages in ascending order, in one request; kept until others take their place."""
        breaks = [number for number in range(1, len(pages)) if pages[number] != pages[number - 1] + 1]
        runs = [pages[start:stop] for start, stop in zip([0, *breaks], [*breaks, len(pages)], strict=True)]
        ranges = [(run[0] * PAGE_BYTES, min((run[-1] + 1) * PAGE_BYTES, self._end) - run[0] * PAGE_BYTES) for run in runs]
        fetched = {}
        for run, data in zip(runs, self._storage.read_ranges(self._identifier, ranges), strict=True):
            view = memoryview(data)
            for number, page in enumerate(run):
                content = bytes(view[number * PAGE_BYTES : (number + 1) * PAGE_BYTES])
                if not self._is_right(page, content):
                    raise self._wrong(page)
                fetched[page] = content
        while self._kept and len(self._kept) + len(fetched) > max(_MOST_FETCHED, at_least):
            try:
                self._kept.popitem(last=False)
            except KeyError:  # another thread took the last one
                break
        self._kept.update(fetched)
        return fetched

    def _wrong(self, page: int) -> DatasetFileCorruptError:
        with self._storage.get_resource(self._identifier) as resource:
            trailer = read_at(resource, max(0, resource.size - len(self._trailer)), len(self._trailer))
        if trailer != self._trailer:
            return ResourceChangedError(self._identifier, f"the end {self._trailer.hex()}", f"the end {trailer.hex()}")
        return self._damaged(f"the {PAGE_BYTES} bytes from {page * PAGE_BYTES} on differ from their digest")


def read_at(resource: StreamedResource, offset: int, size: int) -> bytes:
    """A range of a resource, also of a third party's that can only seek."""
    if hasattr(resource, "read_at"):
        return resource.read_at(offset, size)
    resource.seek(offset)
    return resource.read(size)


def mapped_resource(resource: StreamedResource, size: int, head: bytes, trailer: bytes) -> mmap.mmap | None:
    """The whole resource in memory, as far as the operating system gives it; None where it is no file."""
    try:
        handle = resource.fileno()
        if os.fstat(handle).st_size != size:
            return None
        mapped = mmap.mmap(handle, size, access=mmap.ACCESS_READ)
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None
    # a third party's resource may be what it reads out of a file, such as a compressed one
    return mapped if mapped[: len(head)] == head and mapped[-len(trailer) :] == trailer else None
