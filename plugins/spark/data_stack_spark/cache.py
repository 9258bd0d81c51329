"""Folders of DataFrames: written once per process, deleted when it ends."""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from data_stack.exception import ConfigError, StorageError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.files import find_files
from data_stack_spark.session import local_path, readable_source, spark_session

logger = logging.getLogger("data_stack")

_NAME: Final = re.compile(r"data-stack-converter-[0-9a-f]{16}")

_handler: Callable[[str], Any] | None = None
_written: list[WrittenFrame] = []
_lock = threading.Lock()


def register_delete_dir_handler(handler: Callable[[str], Any] | None) -> None:
    """Let ``handler(url)`` delete the folders of converters; None restores the default."""
    global _handler  # one for the process, as in Petastorm
    if handler is not None and not callable(handler):
        raise ConfigError(
            f"a delete handler must be a function of a URL, or None, got {handler!r:.80}"
        )
    _handler = handler


@dataclass(frozen=True)
class WrittenFrame:
    """A DataFrame that this process has written.

    Attributes:
        frame: the DataFrame.
        key: the options of the write, and the input files of the frame with size and modification time.
        url: URL of the folder.
        files: names of the Parquet files in it.
        n_rows: number of rows.
        pid: number of the process that wrote it.
    """

    frame: DataFrame
    key: tuple[Any, ...]
    url: str
    files: tuple[str, ...]
    n_rows: int
    pid: int


def write_once(
    frame: DataFrame, parent: str, options: tuple[Any, ...], write: Callable[[str], None]
) -> WrittenFrame:
    """Return the folder that this process wrote from the same rows with the same options, or write a new one.

    Args:
        frame: the rows.
        parent: path or URL of the folder in which the new folder is created.
        options: all options of the write.
        write: writes Parquet files to the URL of a new folder.

    Raises:
        StorageError: the rows could not be written.
    """
    path = local_path(parent)
    parent = parent.rstrip("/") if path is None else "file://" + quote(path)
    with _lock:
        key = (parent, frame.schema.json(), *options, *_inputs(frame))
        for known in _written:
            if (
                known.key == key
                and _is_same(known.frame, frame)
                and os.path.isdir(local_path(known.url) or "/")
            ):
                return known
        url = f"{parent}/data-stack-converter-{secrets.token_hex(8)}"
        try:
            write(url)
            files, n_rows = files_and_rows(url)
        except BaseException:
            _remove_tree(url)
            raise
        _written.append(WrittenFrame(frame, key, url, files, n_rows, os.getpid()))
        return _written[-1]


def files_and_rows(url: str) -> tuple[tuple[str, ...], int]:
    """Return the Parquet files of a folder, relative to it, and the number of rows."""
    source = readable_source(url)
    return tuple(find_files(source).paths), len(ParquetDataset(source))


def delete_folder(url: str) -> None:
    """Delete the folder of a converter.

    Raises:
        ConfigError: no converter wrote that folder.
        StorageError: the folder could not be deleted.
    """
    if not _NAME.fullmatch(url.rpartition("/")[2]):
        raise ConfigError(f"{url!r} was not written by a converter and is not deleted")
    _written[:] = [known for known in _written if known.url != url]
    (_handler or _remove_tree)(url)


def _inputs(frame: DataFrame) -> tuple[tuple[Any, ...], ...]:
    """Return the files that a DataFrame reads, with size and modification time; Spark's plan does not show replaced files."""
    found: list[tuple[Any, ...]] = []
    for url in sorted(frame.inputFiles()):
        try:
            filesystem, path = _hadoop_path(url)
            status = filesystem.getFileStatus(path)
            found.append((url, status.getLen(), status.getModificationTime()))
        except Py4JError:  # not a file of Hadoop's
            found.append((url,))
    return tuple(found)


def _is_same(one: DataFrame, other: DataFrame) -> bool:
    try:
        return one.sameSemantics(other)
    except Py4JError:  # the session of one has ended
        return False


def _hadoop_path(url: str) -> tuple[Any, Any]:
    """Return the file system and the path of a URL, as objects of Spark's JVM."""
    context: Any = spark_session().sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(url))
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path


def _remove_tree(url: str) -> None:
    local = local_path(url)
    try:
        if local is None:
            filesystem, path = _hadoop_path(url)
            filesystem.delete(path, True)
        elif os.path.lexists(local):
            shutil.rmtree(local)
    except (OSError, Py4JError) as error:
        raise StorageError(f"could not delete {url}: {error!s:.500}") from error


def delete_at_exit() -> None:
    """Delete the folders that this process wrote; called when it ends."""
    for known in [
        each for each in _written if each.pid == os.getpid()
    ]:  # a fork does not delete files of its parent
        try:
            delete_folder(known.url)
        except Exception as error:  # noqa: BLE001  # a handler may raise anything; delete the other folders anyway
            logger.warning("could not delete %s: %s", known.url, error)


atexit.register(delete_at_exit)
