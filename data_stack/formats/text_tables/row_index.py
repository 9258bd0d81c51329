"""The offsets at which the rows of a text begin."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.util.logger import logger

_Offsets = npt.NDArray[np.int64]

#: The number of offsets that stay in memory while a text is read: 8 MiB.
MAX_OFFSETS_IN_MEMORY: Final = 1 << 20

#: The type of an offset in a stored index.
_OFFSET: Final = np.dtype("<i8")

#: What follows the offsets of a stored index: a mark with the version of the layout, the number of
#: offsets, and the XXH3 of 128 bits of the offsets and the name of the file. By the name, an index
#: is not taken for that of another text.
_FOOTER: Final = struct.Struct("<8sq16s")

#: The mark of the footer.
_MARK: Final = b"ds_rows2"

#: Offsets that are added to a digest at once.
_OFFSETS_OF_DIGEST: Final = 1 << 20


class RowScanner(Protocol):
    """Finds the rows of a text, which is given piece by piece.

    Attributes:
        kind: what its rows are. Scanners of one kind find the same rows in a text.
    """

    kind: str

    def feed(self, piece: bytes) -> _Offsets:
        """Return the offsets in the text of those rows that were found with this piece.

        Offsets ascend, over all pieces. A row may be found pieces after it began.
        """


class RowIndex:
    """The offsets at which the rows of a text begin: 8 bytes a row.

    A stored index is mapped into memory, so that all processes of a machine share it. It is pickled
    as its path, and becomes None where the file is gone. Other ones are pickled as their offsets.

    Args:
        offsets: the offset of each row, ascending, and then that of the end of the text; int64,
            shape ``(n_rows + 1,)``.
        path: the stored index that the offsets are mapped from; None if they are in memory.

    Attributes:
        n_rows: the number of rows.
        path: as given.
    """

    n_rows: int
    path: str | None

    #: The offset of each row, and that of the end of the text.
    _offsets: _Offsets

    def __init__(self, offsets: _Offsets, path: str | None = None) -> None:
        self.n_rows = len(offsets) - 1
        self.path = path
        self._offsets = offsets

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return open_or_none, (self.path,)
        return RowIndex, (self._offsets,)

    @classmethod
    def open(cls, path: str) -> RowIndex:
        """Open a stored index.

        Raises:
            FileNotFoundError: there is none.
            DatasetFileCorruptError: it is damaged, was stored under another name, or is of another
                version of the layout.
        """
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            n_offsets, remainder = divmod(size - _FOOTER.size, _OFFSET.itemsize)
            if n_offsets < 1 or remainder:
                raise _damaged(path)
            file.seek(-_FOOTER.size, os.SEEK_END)
            mark, stated_n_offsets, digest = _FOOTER.unpack(file.read(_FOOTER.size))
            if mark != _MARK or stated_n_offsets != n_offsets:
                raise _damaged(path)
        offsets = _map_offsets(path, n_offsets)
        if _digest_of(offsets, path) != digest:
            raise _damaged(path)
        return cls(offsets, path)

    def ranges(self, positions: IndexArrayOfInts) -> tuple[_Offsets, _Offsets]:
        """Return where some rows begin and end in the text.

        The end of a row is the begin of the next one: line breaks and empty lines between them
        belong to the first of the two.

        Args:
            positions: the positions of the rows, shape ``(n,)``.
        """
        return self._offsets.take(positions), self._offsets.take(positions + 1)

    @property
    def n_bytes(self) -> int:
        """The size of the text."""
        return int(self._offsets[-1])

    def stored_pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of the index as a file, which :meth:`open` reads.

        Args:
            name: the name of the file.
        """
        for start in range(0, len(self._offsets), _OFFSETS_OF_DIGEST):
            yield self._offsets[start : start + _OFFSETS_OF_DIGEST].astype(_OFFSET).tobytes()
        yield _FOOTER.pack(_MARK, len(self._offsets), _digest_of(self._offsets, name))


class RowIndexBuilder:
    """Makes the index of a text while another reader reads it.

    Memory stays bounded: beyond :data:`MAX_OFFSETS_IN_MEMORY`, offsets go into a temporary file,
    which is removed with the index. If that file cannot be written, as the disk is full, all
    offsets stay in memory, and the log says so.

    Args:
        scanner: finds the rows.
    """

    #: Finds the rows.
    _scanner: RowScanner

    #: Offsets that are not in the file.
    _arrays: list[_Offsets]

    #: The number of offsets in ``_arrays``.
    _n_in_memory: int

    #: The temporary file of the other offsets; None if there are none.
    _file: Any

    #: The number of offsets in the file.
    _n_in_file: int

    #: The digest of the offsets in the file.
    _digest: Any

    #: The size of the text so far.
    _n_bytes: int

    #: Whether offsets may be written, as no attempt has failed.
    _can_write: bool

    def __init__(self, scanner: RowScanner) -> None:
        self._scanner = scanner
        self._arrays = []
        self._n_in_memory = 0
        self._file = None
        self._n_in_file = 0
        self._digest = xxh3_128()
        self._n_bytes = 0
        self._can_write = True

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of the text as they are, and find their rows."""
        for piece in pieces:
            self.feed(piece)
            yield piece

    def feed(self, piece: bytes) -> None:
        """Find the rows of the next piece of the text."""
        self._n_bytes += len(piece)
        self._add(self._scanner.feed(piece))
        if self._can_write and self._n_in_memory > MAX_OFFSETS_IN_MEMORY:
            self._write_out()

    def finish(self) -> RowIndex:
        """Return the index of the text, all of which was given."""
        self._add(np.array([self._n_bytes], np.int64))
        if self._file is not None:
            self._write_out()
        if self._file is not None:
            self._digest.update(_name_in_digest(self._file.name))
            self._write(_FOOTER.pack(_MARK, self._n_in_file, self._digest.digest()))
        if self._file is None:
            return RowIndex(np.concatenate(self._arrays))
        self._file.close()
        index = RowIndex(_map_offsets(self._file.name, self._n_in_file), self._file.name)
        weakref.finalize(index, _remove, self._file.name, os.getpid())
        return index

    def _add(self, offsets: _Offsets) -> None:
        self._arrays.append(offsets)
        self._n_in_memory += len(offsets)

    def _write_out(self) -> None:
        """Move the offsets in memory to the end of the file."""
        data = np.concatenate(self._arrays).astype(_OFFSET).tobytes()
        if self._write(data):
            self._digest.update(data)
            self._n_in_file += self._n_in_memory
            self._arrays = []
            self._n_in_memory = 0

    def _write(self, data: bytes) -> bool:
        """Write bytes to the end of the file.

        Returns:
            Whether they were written. If not, all offsets are in memory, and there is no file.
        """
        try:
            if self._file is None:
                self._file = tempfile.NamedTemporaryFile(  # it outlives this method
                    prefix="data_stack_rows_", delete=False
                )
                weakref.finalize(self, _remove_unfinished, self._file)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            logger.warning(
                "keeping an index of rows in memory, as a temporary file cannot be written: %s",
                error,
            )
            self._move_to_memory()
            return False
        return True

    def _move_to_memory(self) -> None:
        """Move the offsets in the file to memory, and remove the file."""
        self._can_write = False
        if self._file is None:
            return
        written_offsets = np.fromfile(self._file.name, _OFFSET, self._n_in_file)
        self._arrays.insert(0, written_offsets.astype(np.int64))
        self._n_in_memory += self._n_in_file
        self._n_in_file = 0
        _remove_unfinished(self._file)
        self._file = None


def open_or_none(path: str) -> RowIndex | None:
    """Open a stored index; return None if it is gone or damaged."""
    try:
        return RowIndex.open(path)
    except (OSError, DatasetFileCorruptError):
        return None


def _map_offsets(path: str, n_offsets: int) -> _Offsets:
    """Map the offsets of a stored index into memory."""
    offsets: _Offsets = np.memmap(path, _OFFSET, "r", shape=(n_offsets,))
    return offsets


def _digest_of(offsets: _Offsets, path: str) -> bytes:
    """Return the digest that a stored index has of its offsets and its name.

    Args:
        offsets: the offsets.
        path: the path or name of the index.
    """
    digest = xxh3_128()
    for start in range(0, len(offsets), _OFFSETS_OF_DIGEST):
        digest.update(offsets[start : start + _OFFSETS_OF_DIGEST].astype(_OFFSET).tobytes())
    digest.update(_name_in_digest(path))
    return digest.digest()


def _name_in_digest(path: str) -> bytes:
    """Return what the digest of an index has of its path: the name, as folders may move."""
    return os.fsencode(os.path.basename(path))


def _damaged(path: str) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(f"the row index {path!r} is damaged, or of another version")


def _remove_unfinished(file: Any) -> None:
    """Remove the file of a builder that has not finished its index."""
    if not file.closed:
        # The disk may have no room for what is still to be written.
        with contextlib.suppress(OSError):
            file.close()
        _remove(file.name, os.getpid())


def _remove(path: str, process: int) -> None:
    """Remove a temporary file in the process that made it, not in a forked child."""
    if process == os.getpid():
        with contextlib.suppress(OSError):
            os.unlink(path)
