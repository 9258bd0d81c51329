"""Copies the text of a compressed file, so that its rows are read by ranges."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.formats.text_tables.kept_texts import KeptText, TextCopy, pin_file
from data_stack.formats.text_tables.pinned_file import PinnedFile
from data_stack.formats.text_tables.row_text import RowText, TextInMemory, read_pinned
from data_stack.formats.text_tables.text_file import PIECE_BYTES, TextFile
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.storage_errors import explaining, storage_error
from data_stack.io.versions import LocalVersion
from data_stack.util.forks import fork_lock
from data_stack.util.logger import logger

_Offsets = npt.NDArray[np.int64]

#: A smaller text is read into memory at each opening, which takes about a tenth of a second.
MAX_BYTES_IN_MEMORY: Final = 16 << 20

#: Begins the name of a copy in the folder of temporary files.
_PREFIX: Final = "data_stack_text_"


class TextInCopy(RowText):
    """The text of a file that is compressed, or in another encoding, as a copy in UTF-8.

    Other processes that received the text read the same copy. Where it is gone, they make another.

    Args:
        pinned: the file as it is stored.
        encoding: the encoding of the file.
        copy: the copy.
    """

    pinned: PinnedFile

    #: The encoding of the file.
    _encoding: str

    #: The copy.
    _copy: TextCopy

    #: Held by the thread that opens the copy, or makes another one.
    _lock: threading.Lock

    def __init__(self, pinned: PinnedFile, encoding: str, copy: TextCopy) -> None:
        self.name = pinned.name
        self.sha256 = copy.sha256
        self.n_bytes = copy.file.n_bytes
        self.pinned = pinned
        self._encoding = encoding
        self._copy = copy
        self._lock = fork_lock()
        self._check_unwritten()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = fork_lock()

    def pieces(self, n_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        file = self._open_copy().open()
        for start in range(0, file.size, n_bytes):
            yield file.read_exactly_at(start, min(n_bytes, file.size - start))
        self._check_unwritten()

    def read(self, starts: _Offsets, ends: _Offsets) -> list[bytes]:
        rows = read_pinned(self._open_copy(), starts, ends)
        self._check_unwritten()
        return rows

    def _open_copy(self) -> PinnedFile:
        """Return the copy, which is open. A process for which it is gone makes another one.

        Raises:
            DatasetFileCorruptError: the copy is gone, and the file has changed since it was made.
        """
        with self._lock:
            try:
                self._copy.file.open()
            except (ResourceNotFoundError, ResourceChangedError):
                self._copy_again()
            return self._copy.file

    def _copy_again(self) -> None:
        file = TextFile(self.pinned.open(), self._encoding)
        copy = _copy_text(file, self.pinned)
        if copy.sha256 != self.sha256:
            raise DatasetFileCorruptError(
                f"{self.name!r} has changed since it was opened; load it again"
            )
        self._copy = copy

    def _check_unwritten(self) -> None:
        """Check that nobody has written to the file; one that was removed is read as it was.

        Raises:
            ResourceChangedError: somebody has.
        """
        if isinstance(self.pinned.version, LocalVersion):
            with contextlib.suppress(ResourceNotFoundError):
                self.pinned.check_unwritten(self.pinned.open())


def read_text(file: TextFile, pinned: PinnedFile | None) -> RowText:
    """Return the whole text of a file: in memory, or a large one as a copy on disk.

    Args:
        file: the file.
        pinned: the same file; None if it cannot be opened again, so that its text stays in memory.

    Raises:
        DatasetFileCorruptError, ArchiveError: as for :meth:`TextFile.pieces`.
        StorageError: the copy cannot be written.
    """
    pieces = []
    n_bytes = 0
    for piece in file.pieces():
        pieces.append(piece)
        n_bytes += len(piece)
        if pinned is not None and n_bytes > MAX_BYTES_IN_MEMORY:
            pieces.clear()
            return TextInCopy(pinned, file.encoding, _copy_text(file, pinned))
    return TextInMemory(file.name, b"".join(pieces), file.sha256)


def find_text(file: TextFile, pinned: PinnedFile) -> TextInCopy | None:
    """Return the text of a file as the copy that is kept of it; None if none is.

    Args:
        file: the file.
        pinned: the same file.
    """
    # The text of a small file is in memory: to look for a copy would take half as long as to read
    # the file. A text that is larger than this limit is refused.
    max_text_bytes = pinned.n_bytes * ArchiveLimits().max_ratio
    if max_text_bytes <= MAX_BYTES_IN_MEMORY:
        return None
    kept = KeptText.of(pinned, file.encoding)
    if kept is None:
        return None
    copy = kept.find()
    if copy is None:
        return None
    return TextInCopy(pinned, file.encoding, copy)


def _copy_text(file: TextFile, pinned: PinnedFile) -> TextCopy:
    """Copy the text of a file, and keep the copy for the next opening where that is possible."""
    kept = KeptText.of(pinned, file.encoding)
    if kept is not None:
        copy = kept.make(file)
        if copy is not None:
            return copy
    return _copy_to_temporary_file(file)


def _copy_to_temporary_file(file: TextFile) -> TextCopy:
    """Copy the text of a file to a temporary file, which this process removes with the copy.

    Raises:
        StorageError: the file cannot be written, as the disk is full.
    """
    explain = functools.partial(_error_of_writing, file.name)
    with explaining(explain):
        # It outlives this function.
        temporary: Any = tempfile.NamedTemporaryFile(prefix=_PREFIX, delete=False)
    logger.info("copying the text of %r to %s", file.name, temporary.name)
    try:
        for piece in file.pieces():
            with explaining(explain):
                temporary.write(piece)
        with explaining(explain):
            temporary.close()
        copy = pin_file(temporary.name)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.close()
        _remove(temporary.name, os.getpid())
        raise
    weakref.finalize(copy, _remove, temporary.name, os.getpid())
    return TextCopy(copy, file.sha256)


def _error_of_writing(name: str, error: OSError) -> StorageError:
    """Return the error to raise for that of a temporary file.

    Args:
        name: the name of the file whose text is copied.
        error: the error.
    """
    folder = tempfile.gettempdir()
    return storage_error(
        f"could not copy the text of {name!r}, which is compressed or not UTF-8, to {folder!r}",
        error,
        folder,
        if_full="Make room (`data-stack cache --clear` removes the texts of other files), set "
        "TMPDIR to a larger folder, or decompress the file.",
    )


def _remove(path: str, process: int) -> None:
    """Remove a temporary file in the process that made it, not in a forked child."""
    if process == os.getpid():
        with contextlib.suppress(OSError):
            os.unlink(path)
