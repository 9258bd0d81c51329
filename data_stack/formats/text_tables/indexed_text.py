"""A text file whose rows are read at random."""

from __future__ import annotations

import codecs
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import UnpicklableResourceError
from data_stack.formats.text_tables.kept_indexes import MIN_BYTES_TO_KEEP, KeptIndex
from data_stack.formats.text_tables.pinned_file import PinnedFile
from data_stack.formats.text_tables.row_index import RowIndex, RowIndexBuilder, RowScanner
from data_stack.formats.text_tables.row_text import RowText, TextInFile
from data_stack.formats.text_tables.text_copy import find_text, read_text
from data_stack.formats.text_tables.text_file import PIECE_BYTES, TextFile
from data_stack.util.forks import fork_lock

#: A smaller file is read into memory. That takes less time than it takes to open the file later,
#: and a folder of many such files takes no descriptors.
MAX_BYTES_IN_MEMORY: Final = 1 << 20


class IndexedText:
    """A text file whose rows are read at random.

    The first complete iteration over :meth:`pieces` makes the index of the rows, so that a text
    from afar is read once. A text in UTF-8 that is not compressed, and can be opened again, is read
    by ranges. Of any other file that can be opened again, the constructor makes a copy as text in
    UTF-8; a text up to 16 MiB, and one of an open file of the caller, is kept in memory.

    The index and the copy of a large file are kept on this machine for the next opening
    (:class:`KeptIndex`, :class:`KeptText`).

    It is pickled with the path of its index, if that is stored. Without the index, another process
    makes its own.

    Args:
        file: a path or URL, a resource, or an open binary file. It may be closed later.
        make_scanner: makes what finds the rows; a class or function of a module.
        encoding: the encoding of the file.

    Attributes:
        name: the name of the file for messages.
        encoding: as given.
        sha256: the digest of the file's bytes, hexadecimal; None before it was read to its end.
        index: where the rows begin; None before the first iteration.
        kept: what is kept of the file; None if nothing is.
    """

    name: str
    encoding: str
    sha256: str | None
    index: RowIndex | None
    kept: KeptIndex | None

    #: Makes what finds the rows.
    _make_scanner: Callable[[], RowScanner]

    #: The text.
    _text: RowText

    #: Held by the thread that makes the index in another process.
    _lock: threading.Lock

    def __init__(
        self, file: Any, make_scanner: Callable[[], RowScanner], encoding: str = "utf-8"
    ) -> None:
        stored_file = TextFile(file, encoding)
        self.name = stored_file.name
        self.encoding = encoding
        self.sha256 = None
        self.index = None
        self._make_scanner = make_scanner
        self._text = _open_text(stored_file)
        self._lock = fork_lock()
        self.kept = None
        if self._text.n_bytes >= MIN_BYTES_TO_KEEP:
            kind_of_rows = f"{make_scanner().kind} of {codecs.lookup(encoding).name}"
            self.kept = KeptIndex.of(self._text.pinned, kind_of_rows)
        if self.kept is not None:
            self.index = self.kept.load_rows()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = fork_lock()

    # ------------------------------------------------------------------ the whole text

    def pieces(self, n_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the text in pieces, as :meth:`TextFile.pieces` does."""
        text = self._text
        if self.index is not None:
            yield from text.pieces(n_bytes)
            self.sha256 = text.sha256
            return

        builder = RowIndexBuilder(self._make_scanner())
        yield from builder.watch(text.pieces(n_bytes))
        self.sha256 = text.sha256
        index = builder.finish()
        if self.kept is not None:
            index = self.kept.store_rows(index)
        self.index = index

    def check_unchanged(self, sha256: str | None) -> None:
        """Do nothing: the text is checked while it is read, or is in memory."""

    # ------------------------------------------------------------------ rows

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self._open_index().n_rows

    @property
    def n_bytes(self) -> int:
        """The size of the text in UTF-8."""
        return self._open_index().n_bytes

    def read_rows(self, positions: IndexArrayOfInts) -> list[bytes]:
        """Return the text of some rows, with the line breaks behind them.

        Args:
            positions: the positions of the rows, shape ``(n,)``.

        Raises:
            ResourceChangedError: the file has changed since it was opened.
        """
        starts, ends = self._open_index().ranges(positions)
        return self._text.read(starts, ends)

    def block_ends(self, positions: IndexArrayOfInts, n_bytes: int) -> list[int]:
        """Return where to split positions so that their rows are read in parts of a size.

        Args:
            positions: the positions of rows, shape ``(n,)``.
            n_bytes: the size that the rows of a part have together. A larger row is a part.

        Returns:
            The end of each part, ascending; the last is n. Nothing if n is 0.
        """
        starts, ends = self._open_index().ranges(positions)
        sizes_so_far = np.cumsum(ends - starts)
        split_at: list[int] = []
        start = 0
        n_bytes_before = 0
        while start < len(positions):
            end = int(sizes_so_far.searchsorted(n_bytes_before + n_bytes, side="right"))
            start = max(end, start + 1)
            n_bytes_before = int(sizes_so_far[start - 1])
            split_at.append(start)
        return split_at

    @property
    def remote_bytes(self) -> int:
        """The mean size of a row in bytes, if rows are read by range from a store; otherwise 0."""
        if not self._text.prefetches or not self.n_rows:
            return 0
        return max(1, self._open_index().n_bytes // self.n_rows)

    def fetch(self, positions: range) -> None:
        """Fetch neighbouring rows from a store into its cache."""
        bounds = np.array([positions.start, positions.stop - 1])
        starts, ends = self._open_index().ranges(bounds)
        self._text.fetch(int(starts[0]), int(ends[1]))

    def _open_index(self) -> RowIndex:
        """Return the index. A process for which it is gone makes it again."""
        if self.index is None:
            with self._lock:
                if self.index is None:
                    for _ in self.pieces():
                        pass
        index = self.index
        if index is None:
            raise RuntimeError(f"{self.name!r} has no index")
        return index


def _open_text(file: TextFile) -> RowText:
    """Return the text of a file, which is read by ranges or in memory."""
    pinned = None
    # An open file of the caller, who may close it, cannot be opened again.
    with contextlib.suppress(UnpicklableResourceError):
        pinned = PinnedFile(file.resource)
    if pinned is None:
        return read_text(file, None)
    if not file.is_plain:
        return find_text(file, pinned) or read_text(file, pinned)
    if pinned.n_bytes > MAX_BYTES_IN_MEMORY:
        return TextInFile(pinned)
    return read_text(file, pinned)
