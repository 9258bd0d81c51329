"""The DataFrames that this process has written, each once, until the process ends."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.files import find_files
from data_stack_spark.folders import (
    delete_folder,
    find_hadoop_path,
    new_folder_url,
    remove_tree,
)
from data_stack_spark.urls import local_path, readable_source

logger = logging.getLogger("data_stack")

#: Schemes of URLs with percent-encoded paths. In URLs of object stores, the path is the key itself,
#: see :class:`data_stack.io.url.StorageURL`.
_ENCODED_SCHEMES: Final = ("file", "dbfs")


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """A folder with Parquet files.

    Attributes:
        url: URL of the folder.
        files: paths of the Parquet files, relative to the folder.
        n_rows: number of rows.
    """

    url: str
    files: tuple[str, ...]
    n_rows: int

    @classmethod
    def find(cls, url: str) -> ParquetFolder:
        """Describe the folder at a path or URL.

        Raises:
            ResourceNotFoundError: there are no Parquet files.
        """
        source = readable_source(url)
        return cls(url, tuple(find_files(source).paths), len(ParquetDataset(source)))

    @property
    def file_urls(self) -> tuple[str, ...]:
        """URLs of the Parquet files, percent-encoded where the URL of the folder is."""
        scheme = self.url.partition(":")[0].lower()
        is_encoded = scheme in _ENCODED_SCHEMES
        urls = []
        for file in self.files:
            # Spark itself names folders of partitions "time=10%3A00".
            path = quote(file, safe="/=") if is_encoded else file
            urls.append(f"{self.url}/{path}")
        return tuple(urls)

    def may_exist(self) -> bool:
        """Return whether the folder exists, as far as this machine knows without a request."""
        path = local_path(self.url)
        return path is None or os.path.isdir(path)


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a DataFrame reads. Spark's plan does not show that the file was replaced.

    Attributes:
        url: URL of the file.
        n_bytes: size of the file; None if it is not a file of Hadoop.
        modified_at: when the file was modified, in milliseconds since 1970; None as for
            ``n_bytes``.
    """

    url: str
    n_bytes: int | None = None
    modified_at: int | None = None


@dataclass(frozen=True, slots=True)
class _WriteKey:
    """What two writes of the same DataFrame must have in common to write the same files.

    Attributes:
        parent: URL of the folder with the new folder.
        schema: the names and types of the columns, as JSON.
        options: all options of the write.
        inputs: the files that the DataFrame reads.
    """

    parent: str
    schema: str
    options: Any
    inputs: tuple[InputFile, ...]


@dataclass(frozen=True, slots=True)
class _WrittenFrame:
    """A DataFrame that was written to a folder by the process with the number ``pid``."""

    frame: DataFrame
    key: _WriteKey
    folder: ParquetFolder
    pid: int

    def holds(self, frame: DataFrame, key: _WriteKey) -> bool:
        """Return whether the folder holds the rows of a DataFrame, written under an equal key."""
        if self.key != key:
            return False
        return _has_same_rows(self.frame, frame) and self.folder.may_exist()


class WrittenFrames:
    """The DataFrames that this process has written, with their folders."""

    #: By the URLs of the folders. Each access is a single operation, so that a frame may be deleted
    #: while another one is being written.
    _frames: dict[str, _WrittenFrame]
    #: One DataFrame is written at a time, as the next one may be the same.
    _lock: threading.Lock

    def __init__(self) -> None:
        self._frames = {}
        self._lock = threading.Lock()

    def find_or_write(
        self, frame: DataFrame, parent: str, options: Any, write: Callable[[str], None]
    ) -> ParquetFolder:
        """Return the folder with the same rows, written with the same options, or write a new one.

        Args:
            frame: the rows.
            parent: path or URL of the folder in which the new folder is created.
            options: all options of the write, comparable.
            write: writes Parquet files to the URL of a new folder.

        Raises:
            StorageError: the rows could not be written.
        """
        parent_path = local_path(parent)
        if parent_path is None:
            parent_url = parent.rstrip("/")
        else:
            parent_url = "file://" + quote(parent_path)

        with self._lock:
            key = _WriteKey(parent_url, frame.schema.json(), options, _find_inputs(frame))
            for written in list(self._frames.values()):
                if written.holds(frame, key):
                    return written.folder

            url = new_folder_url(parent_url)
            try:
                write(url)
                folder = ParquetFolder.find(url)
            except BaseException:
                remove_tree(url)
                raise
            self._frames[url] = _WrittenFrame(frame, key, folder, os.getpid())
            return folder

    def delete(self, url: str) -> None:
        """Delete the folder of a converter, which another process may have written.

        Raises:
            ConfigError: no converter wrote that folder.
            StorageError: the folder could not be deleted.
        """
        self._frames.pop(url, None)
        delete_folder(url)

    def delete_all(self) -> None:
        """Delete the folders that this process wrote. A failure is logged."""
        for written in list(self._frames.values()):
            was_written_here = written.pid == os.getpid()
            if not was_written_here:
                continue  # this process is a fork, and its parent deletes the folder
            url = written.folder.url
            try:
                self.delete(url)
            except Exception as error:  # noqa: BLE001  # a handler may raise anything
                logger.warning("could not delete %s: %s", url, error)


#: The DataFrames of all converters of this process.
WRITTEN_FRAMES: Final = WrittenFrames()
atexit.register(WRITTEN_FRAMES.delete_all)


def _find_inputs(frame: DataFrame) -> tuple[InputFile, ...]:
    """Return the files that a DataFrame reads, by their URLs in order."""
    inputs = []
    for url in sorted(frame.inputFiles()):
        try:
            filesystem, path = find_hadoop_path(url)
            status = filesystem.getFileStatus(path)
            inputs.append(InputFile(url, status.getLen(), status.getModificationTime()))
        except Py4JError:
            inputs.append(InputFile(url))
    return tuple(inputs)


def _has_same_rows(one: DataFrame, other: DataFrame) -> bool:
    """Return whether two DataFrames have the same rows, as far as Spark's plans tell."""
    try:
        return one.sameSemantics(other)
    except Py4JError:  # the session of one has ended
        return False
