"""The folder on this machine that keeps what is known of large text files for the next opening."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import platformdirs

from data_stack.codecs.plain_data import json_digest
from data_stack.io.storage_connectors.lease import FileLease
from data_stack.util.lock_file import try_lock
from data_stack.util.logger import logger

#: The variable of the environment with the folder; the default is a folder of its own among the
#: caches of the user.
FOLDER_VARIABLE: Final = "DATA_STACK_ROW_INDEXES"

#: The size that all indexes and descriptions of columns may have together: those of more than
#: 100 GB of text.
MAX_INDEX_BYTES: Final = 4 << 30

#: Larger plain data is damaged, or made to exhaust memory.
_MAX_BYTES_OF_FACTS: Final = 16 << 20

#: A file that was written to less than this ago is not taken for one whose writer was killed.
_MIN_UNFINISHED_SECONDS: Final = 60.0

#: One that was written to longer ago is, even if the file system has no locks to tell.
_MAX_UNFINISHED_SECONDS: Final = 86_400.0

#: A text that was used less than this ago stays: programs may read it, or be about to.
MIN_UNUSED_SECONDS: Final = 86_400.0

#: The number of the user root.
_ROOT_USER: Final = 0

#: The beginning and end of the name of a file that is being written.
_UNFINISHED_PREFIX: Final = "row_index_"
_UNFINISHED_SUFFIX: Final = ".unfinished"

#: The end of the name of a text that was unpacked, and of its description. The time of the
#: description is that of the last use: the times of the text itself tell whether it was changed.
TEXT_SUFFIX: Final = ".text"
DESCRIPTION_SUFFIX: Final = ".text.json"

#: The names of kept files. Others in the folder, which the user may have chosen, are not ours.
_INDEX_NAME: Final = re.compile(r"[0-9a-f]{64}(\.rows|\.[0-9a-f]{16}\.json)")
_TEXT_NAME: Final = re.compile(r"[0-9a-f]{64}" + re.escape(TEXT_SUFFIX))
_DESCRIPTION_NAME: Final = re.compile(r"[0-9a-f]{64}" + re.escape(DESCRIPTION_SUFFIX))
_UNFINISHED_NAME: Final = re.compile(
    re.escape(_UNFINISHED_PREFIX) + ".*" + re.escape(_UNFINISHED_SUFFIX) + r"|[0-9a-f]{64}\.lock"
)


@dataclass(frozen=True)
class KeptFile:
    """A file in the folder.

    Attributes:
        path: its path.
        n_bytes: its size.
        used_at: when it was used last, in seconds since 1970.
    """

    path: Path
    n_bytes: int
    used_at: float


@dataclass(frozen=True)
class Listing:
    """What is in the folder.

    Attributes:
        indexes: the indexes of rows, and the descriptions of columns.
        texts: the texts that are complete.
        unfinished: files that are being written, or whose writer was killed.
    """

    indexes: list[KeptFile]
    texts: list[KeptFile]
    unfinished: list[KeptFile]


class KeptFolder:
    """The folder on this machine that keeps what is known of large text files.

    Whatever is in it can be made again. Nothing is kept if the folder cannot be written to.

    A user reads only files that belong to the user or to root: whoever writes the others could give
    a table any rows.

    Args:
        path: the path of the folder, which need not exist.
    """

    #: The path of the folder.
    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls) -> KeptFolder:
        """Return the folder of ``DATA_STACK_ROW_INDEXES``, or else that among the user's caches."""
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder:
            return cls(Path(folder).expanduser())
        return cls(platformdirs.user_cache_path("data_stack_row_indexes", appauthor=False))

    # ------------------------------------------------------------------ writing

    def store(self, name: str, pieces: Iterable[bytes]) -> bool:
        """Write a file, which appears under its name when it is complete.

        It is not flushed to the disk: that took minutes on a busy one. So a reader checks the
        digest of a file after a restart, as the power may have failed.

        Args:
            name: the name of the file.
            pieces: its content.

        Returns:
            Whether it was written; otherwise the log says why not.

        Raises:
            Exception: any error of ``pieces``.
        """
        try:
            self._make()
            handle, unfinished_name = tempfile.mkstemp(
                _UNFINISHED_SUFFIX, _UNFINISHED_PREFIX, self.path
            )
        except OSError as error:
            self._log_failure(error)
            return False
        unfinished_path = Path(unfinished_name)
        try:
            with open(handle, "wb", buffering=0):
                # The lock tells others that the writer lives.
                try_lock(handle)
                error_of_folder = _write_pieces(handle, pieces)
            if error_of_folder is None:
                error_of_folder = _rename(unfinished_path, self.path / name)
        finally:
            _remove(unfinished_path)
        if error_of_folder is not None:
            self._log_failure(error_of_folder)
            return False
        self.prune()
        return True

    def store_facts(self, name: str, facts: Any) -> bool:
        """Write plain data, unless it is larger than what :meth:`load_facts` reads.

        Args:
            name: the name of the file.
            facts: the plain data.

        Returns:
            Whether it was written.
        """
        data = json.dumps({"facts": facts, "digest": json_digest([name, facts])}).encode()
        if len(data) > _MAX_BYTES_OF_FACTS:
            return False
        return self.store(name, [data])

    # ------------------------------------------------------------------ reading

    def load_facts(self, name: str) -> Any:
        """Return plain data; None if it is not kept here, damaged, or that of another name.

        Args:
            name: the name of the file.
        """
        if not self.has_own(name):
            return None
        path = self.path / name
        try:
            if path.stat().st_size > _MAX_BYTES_OF_FACTS:
                return None
            kept = json.loads(path.read_bytes())
            facts = kept["facts"]
            is_whole = kept["digest"] == json_digest([name, facts])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        return facts if is_whole else None

    def has_own(self, name: str) -> bool:
        """Return whether a file is kept that belongs to this user or to root.

        Args:
            name: the name of the file.
        """
        try:
            status = os.lstat(self.path / name)
        except OSError:
            return False
        # To open a pipe would wait for its writer.
        if not stat.S_ISREG(status.st_mode):
            return False
        if status.st_uid in (_ROOT_USER, os.geteuid()):
            return True
        logger.info("not reading %s, as it belongs to another user", self.path / name)
        return False

    def lease(self, name: str) -> FileLease:
        """Return the lease of the process that makes a file, while others wait for the file."""
        # The lease makes missing folders for everyone.
        with contextlib.suppress(OSError):
            self._make()
        return FileLease(str(self.path / f"{name}.lock"))

    def note_use(self, name: str) -> None:
        """Note that a file is used, so that others are removed before it."""
        with contextlib.suppress(OSError):
            os.utime(self.path / name)

    # ------------------------------------------------------------------ listing and removing

    def list_files(self) -> Listing:
        """Return what is in the folder."""
        indexes = []
        texts = {}
        descriptions = {}
        unfinished = []
        for file in self._iterate():
            name = file.path.name
            if _INDEX_NAME.fullmatch(name):
                indexes.append(file)
            elif _TEXT_NAME.fullmatch(name):
                texts[name.removesuffix(TEXT_SUFFIX)] = file
            elif _DESCRIPTION_NAME.fullmatch(name):
                descriptions[name.removesuffix(DESCRIPTION_SUFFIX)] = file
            elif _UNFINISHED_NAME.fullmatch(name):
                unfinished.append(file)
        complete_texts = []
        for name in texts.keys() & descriptions.keys():
            used_at = descriptions[name].used_at
            complete_texts.append(dataclasses.replace(texts[name], used_at=used_at))
        for name in texts.keys() - descriptions.keys():
            unfinished.append(texts[name])
        for name in descriptions.keys() - texts.keys():
            unfinished.append(descriptions[name])
        return Listing(indexes, complete_texts, unfinished)

    def clear(self) -> None:
        """Remove all indexes and texts, and what was never finished."""
        listing = self.list_files()
        for unfinished in listing.unfinished:
            _remove_abandoned(unfinished.path)
        for index in listing.indexes:
            _remove(index.path)
        for text in listing.texts:
            self._remove_text(text)

    def prune(self) -> None:
        """Remove what was used longest ago, and what was never finished."""
        now = time.time()
        listing = self.list_files()
        for unfinished in listing.unfinished:
            age_seconds = now - unfinished.used_at
            if age_seconds > _MAX_UNFINISHED_SECONDS:
                _remove(unfinished.path)
            elif age_seconds > _MIN_UNFINISHED_SECONDS:
                _remove_abandoned(unfinished.path)
        for index in surplus_indexes(listing.indexes, MAX_INDEX_BYTES):
            _remove(index.path)
        if not listing.texts:
            return
        with contextlib.suppress(OSError):
            n_free_bytes = shutil.disk_usage(self.path).free
            for text in surplus_texts(listing.texts, n_free_bytes, now=now):
                self._remove_text(text)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there and may be removed."""
        _remove(self.path / name)

    def _remove_text(self, text: KeptFile) -> None:
        """Remove a text; a program that has opened it reads on."""
        _remove(text.path.with_suffix(DESCRIPTION_SUFFIX))
        _remove(text.path)

    def _iterate(self) -> Iterator[KeptFile]:
        """Yield the files in the folder; nothing if it is missing."""
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    yield KeptFile(Path(entry.path), status.st_size, status.st_mtime)

    def _make(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _log_failure(self, error: OSError) -> None:
        # What is not kept works, but the next opening takes as long as this one.
        logger.info("keeping nothing in %s: %s", self.path, error)


def surplus_indexes(indexes: Sequence[KeptFile], max_bytes: int) -> list[KeptFile]:
    """Return the indexes that were used longest ago, without which the others fit.

    Args:
        indexes: all indexes.
        max_bytes: the size that the others may have together.
    """
    surplus = []
    n_bytes = sum(index.n_bytes for index in indexes)
    for index in _by_use(indexes):
        if n_bytes <= max_bytes:
            break
        surplus.append(index)
        n_bytes -= index.n_bytes
    return surplus


def surplus_texts(texts: Sequence[KeptFile], n_free_bytes: int, *, now: float) -> list[KeptFile]:
    """Return the texts used longest ago, without which the others take no more than is free.

    So texts take at most half of what other files leave of the disk, apart from those that were
    used less than :data:`MIN_UNUSED_SECONDS` ago. If a program opened more texts than that, and
    each removed another one, it would unpack one for each row that it reads.

    Args:
        texts: all texts.
        n_free_bytes: how much is free on the disk with all texts.
        now: the time, in seconds since 1970.
    """
    surplus = []
    n_bytes = sum(text.n_bytes for text in texts)
    for text in _by_use(texts):
        if n_bytes <= n_free_bytes or now - text.used_at < MIN_UNUSED_SECONDS:
            break
        surplus.append(text)
        n_bytes -= text.n_bytes
        n_free_bytes += text.n_bytes
    return surplus


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _remove_abandoned(path: Path) -> None:
    """Remove a file, unless a process holds a lock on it, as it is writing the file."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if try_lock(file.fileno(), if_unsupported=False):
            path.unlink()


def _by_use(files: Sequence[KeptFile]) -> list[KeptFile]:
    """Return files from the one used longest ago to the one used last."""
    return sorted(files, key=lambda file: file.used_at)


def _write_pieces(handle: int, pieces: Iterable[bytes]) -> OSError | None:
    """Write pieces into a file.

    Args:
        handle: the descriptor of the file.
        pieces: what to write.

    Returns:
        The error of the file, such as that of a full disk; None if all was written.

    Raises:
        Exception: any error of ``pieces``.
    """
    for piece in pieces:
        view = memoryview(piece)
        while view:
            try:
                # A nearly full disk takes a part of it.
                n_written = os.write(handle, view)
            except OSError as error:
                return error
            view = view[n_written:]
    return None


def _rename(path: Path, new_path: Path) -> OSError | None:
    """Rename a file; return the error if that is not possible."""
    try:
        os.replace(path, new_path)
    except OSError as error:
        return error
    return None
