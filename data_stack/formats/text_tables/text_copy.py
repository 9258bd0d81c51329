"""Copies the text of a compressed file, so that its rows are read by ranges."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError, UnpicklableResourceError
from data_stack.formats.stored_rows import read_together
from data_stack.formats.text_tables.row_text import RowText, TextInMemory
from data_stack.formats.text_tables.text_file import PIECE_BYTES, TextFile
from data_stack.io.positional import PositionalFile
from data_stack.io.storage_errors import storage_error
from data_stack.util.forks import fork_lock
from data_stack.util.logger import logger

_Offsets = npt.NDArray[np.int64]

#: A smaller text stays in memory. It takes less time to read than a file takes to open later, and a
#: folder of many such files takes no descriptors.
MAX_BYTES_IN_MEMORY: Final = 1 << 20

#: Begins the name of a copy in the folder of temporary files.
_PREFIX: Final = "data_stack_text_"


class TextInCopy(RowText):
    """The text of a file that is compressed, or in another encoding, as a temporary file in UTF-8.

    The process that made the copy removes it with the text. Other processes that received the text
    read the copy. Where it is gone, they make a copy of their own.

    Args:
        file: the file, which can be opened again.
        path: the path of the copy, which is complete.

    Raises:
        UnpicklableResourceError: the file cannot be opened again.
    """

    #: The encoding of the file.
    _encoding: str

    #: What opens the file, and its arguments.
    _opening: tuple[Any, ...]

    #: The path of the copy.
    _path: str

    #: The open copy; None if it must be opened.
    _copy: PositionalFile | None

    #: Held by the thread that opens the copy, or makes another one.
    _lock: threading.Lock

    def __init__(self, file: TextFile, path: str) -> None:
        self.name = file.name
        self.sha256 = file.sha256
        self._encoding = file.encoding
        self._opening = _opening_of(file)
        self._path = path
        self._copy = None
        self._lock = fork_lock()
        weakref.finalize(self, _remove, path, os.getpid())

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_copy": None}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = fork_lock()

    def pieces(self, n_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        copy = self._open()
        for start in range(0, copy.size, n_bytes):
            yield copy.read_exactly_at(start, min(n_bytes, copy.size - start))

    def read(self, starts: _Offsets, ends: _Offsets) -> list[bytes]:
        return read_together(self._open(), starts, ends)

    def _open(self) -> PositionalFile:
        """Return the open copy.

        Raises:
            DatasetFileCorruptError: the copy is gone, and the file has changed since it was made.
        """
        if self._copy is None:
            with self._lock:
                if not os.path.exists(self._path):
                    self._copy_again()
                self._copy = PositionalFile(self._path)
        return self._copy

    def _copy_again(self) -> None:
        reopen, arguments = self._opening
        file = TextFile(reopen(*arguments), self._encoding)
        writer = CopyWriter(file.name)
        try:
            for piece in file.pieces():
                writer.add(piece)
            path = writer.finish()
        finally:
            writer.discard()
        weakref.finalize(self, _remove, path, os.getpid())
        if file.sha256 != self.sha256:
            raise DatasetFileCorruptError(
                f"{self.name!r} has changed since it was opened; load it again"
            )
        self._path = path


class CopyWriter:
    """Writes a temporary file, which is removed with the writer unless it was finished.

    Args:
        name: the name of the file whose text is copied, for messages.
    """

    #: The name of the file whose text is copied.
    _name: str

    #: The temporary file.
    _file: Any

    #: Removes the temporary file.
    _remove_unfinished: Any

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            self._file = tempfile.NamedTemporaryFile(prefix=_PREFIX, delete=False)
        except OSError as error:
            raise self._error_of_writing(error) from error
        self._remove_unfinished = weakref.finalize(self, _discard, self._file, os.getpid())
        logger.info("copying the text of %r to %s", name, self._file.name)

    def add(self, piece: bytes) -> None:
        """Append a piece of the text.

        Raises:
            StorageError: the temporary file cannot be written, as the disk is full.
        """
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._error_of_writing(error) from error

    def finish(self) -> str:
        """Return the path of the complete file, which the caller must remove."""
        try:
            self._file.close()
        except OSError as error:
            raise self._error_of_writing(error) from error
        self._remove_unfinished.detach()
        return str(self._file.name)

    def discard(self) -> None:
        """Remove the file, unless it is complete."""
        self._remove_unfinished()

    def _error_of_writing(self, error: OSError) -> Exception:
        folder = tempfile.gettempdir()
        return storage_error(
            f"could not copy the text of {self._name!r}, which is compressed or not UTF-8, "
            f"to {folder!r}",
            error,
            folder,
            if_full="Make room, set TMPDIR to a larger folder, or decompress the file.",
        )


class TextKeeper:
    """Keeps the text of a file while another reader reads it: in memory, or beyond a size on disk.

    Args:
        file: the file.
    """

    #: The file.
    _file: TextFile

    #: Whether the file can be opened again, so that a copy of it can be made again.
    _can_reopen: bool

    #: The pieces in memory.
    _pieces: list[bytes]

    #: Their size.
    _n_bytes: int

    #: Writes the copy; None while the text is in memory.
    _writer: CopyWriter | None

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._can_reopen = True
        try:
            _opening_of(file)
        except UnpicklableResourceError:
            # An open file of the caller, who may close it.
            self._can_reopen = False
        self._pieces = []
        self._n_bytes = 0
        self._writer = None

    def add(self, piece: bytes) -> None:
        """Keep the next piece of the text.

        Raises:
            StorageError: it cannot be written to the disk.
        """
        if self._writer is not None:
            self._writer.add(piece)
            return
        self._pieces.append(piece)
        self._n_bytes += len(piece)
        if self._can_reopen and self._n_bytes > MAX_BYTES_IN_MEMORY:
            self._writer = CopyWriter(self._file.name)
            for kept_piece in self._pieces:
                self._writer.add(kept_piece)
            self._pieces.clear()

    def close(self) -> None:
        """Remove what is on disk, unless :meth:`finish` has returned it."""
        if self._writer is not None:
            self._writer.discard()

    def finish(self) -> RowText:
        """Return the text, all of which was given."""
        if self._writer is not None:
            return TextInCopy(self._file, self._writer.finish())
        return TextInMemory(self._file.name, b"".join(self._pieces), self._file.sha256)


def _opening_of(file: TextFile) -> tuple[Any, ...]:
    """Return what opens a file again, and its arguments.

    Raises:
        UnpicklableResourceError: the file cannot be opened again.
    """
    reopen, arguments = file.resource.__reduce__()[:2]
    return reopen, arguments


def _discard(file: Any, process: int) -> None:
    """Remove a temporary file that is not complete."""
    with contextlib.suppress(OSError):
        file.close()
    _remove(file.name, process)


def _remove(path: str, process: int) -> None:
    """Remove a temporary file in the process that made it, not in a forked child."""
    if process == os.getpid():
        with contextlib.suppress(OSError):
            os.unlink(path)
