"""Keeps what is known of large text files for the next opening."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import platformdirs

from data_stack.codecs.plain_data import json_digest
from data_stack.formats.text_tables.row_index import RowIndex, open_or_none
from data_stack.formats.text_tables.row_text import TextInFile
from data_stack.io.local_status import SETTLING_NS
from data_stack.io.versions import LocalVersion
from data_stack.util.logger import logger

#: The variable of the environment with the folder of the indexes; the default is a folder of its
#: own among the caches of the user.
FOLDER_VARIABLE: Final = "DATA_STACK_ROW_INDEXES"

#: What a smaller file needs is found again in about a second.
MIN_BYTES_TO_KEEP: Final = 16 << 20

#: The size that all kept files may have together: the indexes of more than 100 GB of text.
MAX_KEPT_BYTES: Final = 4 << 30

#: A larger description of columns is damaged, or made to exhaust memory.
_MAX_DESCRIPTION_BYTES: Final = 16 << 20

#: A file whose writer was killed is removed after this time.
_MAX_UNFINISHED_SECONDS: Final = 86_400.0

#: The size of the samples of a file in its key, and their number.
_SAMPLE_BYTES: Final = 1 << 14
_N_SAMPLES: Final = 16

#: The beginning and end of the name of a file that is being written.
_UNFINISHED_PREFIX: Final = "row_index_"
_UNFINISHED_SUFFIX: Final = ".unfinished"

#: The names of kept files. Others in the folder, which the user may have chosen, are not ours.
_KEPT_NAME: Final = re.compile(r"[0-9a-f]{64}(\.rows|\.[0-9a-f]{16}\.json)")
_UNFINISHED_NAME: Final = re.compile(
    re.escape(_UNFINISHED_PREFIX) + ".*" + re.escape(_UNFINISHED_SUFFIX)
)

#: Changes when the layout of kept files, or the way in which types are inferred, does.
_LAYOUT: Final = 1


class KeptIndex:
    """What is kept of a version of a text file: where its rows begin, and what its columns are.

    The name of a kept file has a digest of what identifies the text file, and of what its rows are.
    So a text file that changes has another index. A file of this machine is identified by its size,
    times, device and inode, and by 16 samples of its bytes; a file of a store by the store, and by
    the tag or SHA-256 that the store has for it.

    A damaged index is made again. Nothing is kept if the folder cannot be written to, or if the
    text file was written in the last two seconds, in which it could change without another time.

    Args:
        name: the name of the kept files.
        folder: their folder.
    """

    #: The folder of the kept files.
    _folder: Path

    #: The name of the kept files, without their suffix.
    _name: str

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._name = name

    @classmethod
    def of(cls, file: TextInFile | None, kind_of_rows: str) -> KeptIndex | None:
        """Return what is, or will be, kept of a text file; None if nothing is kept of it.

        Args:
            file: the text file; None for a text in memory.
            kind_of_rows: what the rows of the file are.
        """
        if file is None or file.n_bytes < MIN_BYTES_TO_KEEP:
            return None
        identity = _identify(file, kind_of_rows)
        if identity is None:
            return None
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder:
            return cls(identity, Path(folder))
        return cls(
            identity, platformdirs.user_cache_path("data_stack_row_indexes", appauthor=False)
        )

    # ------------------------------------------------------------------ rows

    def load_rows(self) -> RowIndex | None:
        """Return the index of the rows; None if it is not kept, or damaged."""
        path = self._path(".rows")
        index = open_or_none(str(path))
        if index is not None:
            _note_use(path)
        return index

    def store_rows(self, index: RowIndex) -> RowIndex:
        """Keep the index of the rows.

        Returns:
            The kept index, which processes share; ``index`` itself if it could not be kept.
        """
        with self._writing(".rows") as file:
            if file is not None:
                index.write(file)
        return self.load_rows() or index

    # ------------------------------------------------------------------ columns

    def load_columns(self, options: Any) -> Any:
        """Return the description of the columns; None if it is not kept, or damaged.

        Args:
            options: plain data that the columns depend on, beside the file.
        """
        path = self._path_of_columns(options)
        try:
            if path.stat().st_size > _MAX_DESCRIPTION_BYTES:
                return None
            kept = json.loads(path.read_bytes())
            columns = kept["columns"]
            is_whole = kept["digest"] == json_digest(columns)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        if not is_whole:
            return None
        _note_use(path)
        return columns

    def store_columns(self, options: Any, columns: Any) -> None:
        """Keep a description of the columns, which is plain data.

        Args:
            options: as for :meth:`load_columns`.
            columns: the description.
        """
        data = json.dumps({"columns": columns, "digest": json_digest(columns)}).encode()
        if len(data) > _MAX_DESCRIPTION_BYTES:
            return
        with self._writing(self._path_of_columns(options).name.removeprefix(self._name)) as file:
            if file is not None:
                file.write(data)

    # ------------------------------------------------------------------ files

    def _path(self, suffix: str) -> Path:
        return self._folder / f"{self._name}{suffix}"

    def _path_of_columns(self, options: Any) -> Path:
        return self._path(f".{json_digest(options)[:16]}.json")

    @contextlib.contextmanager
    def _writing(self, suffix: str) -> Iterator[Any]:
        """Write a kept file, which appears under its name when it is complete.

        Yields:
            A binary file; None if the folder cannot be written to.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, unfinished_path = tempfile.mkstemp(
                _UNFINISHED_SUFFIX, _UNFINISHED_PREFIX, self._folder
            )
        except OSError as error:
            logger.info("keeping no index of rows in %s: %s", self._folder, error)
            yield None
            return
        try:
            with open(handle, "wb") as file:
                yield file
            os.replace(unfinished_path, self._path(suffix))
        except OSError as error:
            # A full disk: the index works without being kept.
            logger.info("keeping no index of rows in %s: %s", self._folder, error)
            _remove(Path(unfinished_path))
        except BaseException:
            _remove(Path(unfinished_path))
            raise
        _prune(self._folder)


def _identify(file: TextInFile, kind_of_rows: str) -> str | None:
    """Return the name for what is kept of a file; None if its version is not certain.

    Args:
        file: the file.
        kind_of_rows: what the rows of the file are.
    """
    version = file.version
    if version is None:
        return None
    if not isinstance(version, LocalVersion):
        # Files of two stores may have the same tag.
        identity = [file.store, file.name, file.n_bytes, str(version)]
        return json_digest([_LAYOUT, kind_of_rows, *identity])
    changed_at = max(version.modified_ns, version.changed_ns)
    if version.seen_ns - changed_at <= SETTLING_NS:
        return None
    samples = hashlib.sha256()
    for sample in file.read_samples(_N_SAMPLES, _SAMPLE_BYTES):
        samples.update(sample)
    identity = [version.machine, list(version.file), samples.hexdigest()]
    return json_digest([_LAYOUT, kind_of_rows, *identity])


def _note_use(path: Path) -> None:
    """Note that a kept file is used, so that others are removed before it."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _prune(folder: Path) -> None:
    """Remove the files that were used longest ago, and those that were never finished."""
    now = time.time()
    kept: list[tuple[float, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                if _KEPT_NAME.fullmatch(path.name):
                    kept.append((status.st_mtime, status.st_size, path))
                is_unfinished = _UNFINISHED_NAME.fullmatch(path.name) is not None
                if is_unfinished and now - status.st_mtime > _MAX_UNFINISHED_SECONDS:
                    _remove(path)
    n_bytes = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if n_bytes <= MAX_KEPT_BYTES:
            return
        _remove(path)
        n_bytes -= size


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
