"""The folders that DataFrames are written to: each once in a process, and deleted when it ends."""

from __future__ import annotations

import atexit
import re
import secrets
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from data_stack.exception import ConfigError, DataStackError, StorageError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.files import find_files
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.util.logger import logger
from data_stack_spark.hadoop import HadoopFolder
from data_stack_spark.session import folder_of_url, local_path, spark_session

__all__ = ["WrittenFrame", "delete_at_exit", "delete_folder", "files_and_rows", "register_delete_dir_handler", "write_once"]

#: Who wrote a folder, or "kept" for one that stays, and a name of its own.
_NAME: Final = re.compile(r"data-stack-converter-(kept|[0-9a-f]{12}-\d+-\d+)-[0-9a-f]{12}")

_handler: Callable[[str], Any] | None = None
_written: list[WrittenFrame] = []
_lock = threading.Lock()


def register_delete_dir_handler(handler: Callable[[str], Any] | None) -> None:
    """Let ``handler``, a function of a folder's URL, delete the folders of converters; None: they are deleted as by default."""
    global _handler  # one for the process, as Petastorm has it
    if handler is not None and not callable(handler):
        raise ConfigError(f"a delete handler is a function of a URL, or None, not {handler!r:.80}")
    _handler = handler


@dataclass(frozen=True)
class WrittenFrame:
    """A DataFrame that this process has written.

    Attributes:
        frame: of which the rows are.
        key: with which options it was written, and the files that it reads, each with its size and time.
        url: of the folder.
        files: the names of the Parquet files in it.
        n_rows: of all of them.
    """

    frame: DataFrame
    key: tuple[Any, ...]
    url: str
    files: tuple[str, ...]
    n_rows: int


def write_once(
    frame: DataFrame, parent: str, options: tuple[Any, ...], write: Callable[[str], None], *, keep: bool
) -> WrittenFrame:
    """What this process wrote of the same rows with the same options; if there is no such folder, ``write`` makes one.

    Args:
        frame: the rows.
        parent: path or URL of the folder in which that of the rows lies.
        options: all that decides what is written.
        write: writes Parquet files to the URL of a folder that is not there yet.
        keep: whether it stays when this process ends.

    Raises:
        StorageError: it could not be written.
    """
    path = local_path(parent)
    parent = parent.rstrip("/") if path is None else "file://" + quote(path)
    with _lock:
        key = (parent, keep, frame.schema.json(), *options, *_inputs(frame))
        for known in _written:
            if known.key == key and _is_same(known.frame, frame) and folder_of_url(known.url).list_names():
                return known
        _clear(parent, frame.sparkSession)
        url = f"{parent}/data-stack-converter-{'kept' if keep else this_process()}-{secrets.token_hex(6)}"
        try:
            write(url)
            files, n_rows = files_and_rows(folder_of_url(url, frame.sparkSession))
        except BaseException:
            _remove_tree(url)
            raise
        _written.append(WrittenFrame(frame, key, url, files, n_rows))
        return _written[-1]


def files_and_rows(source: Any) -> tuple[tuple[str, ...], int]:
    """The Parquet files of a folder, relative to it, and the number of their rows."""
    return tuple(find_files(source).paths), len(ParquetDataset(source))


def delete_folder(url: str) -> None:
    """Delete the folder of a converter.

    Raises:
        ConfigError: no converter wrote that folder.
        StorageError: it could not be deleted.
    """
    if not _NAME.fullmatch(url.rpartition("/")[2]):
        raise ConfigError(f"{url!r} was not written by a converter, so it is not deleted")
    _written[:] = [known for known in _written if known.url != url]
    (_handler or _remove_tree)(url)


def _inputs(frame: DataFrame) -> tuple[tuple[Any, ...], ...]:
    """The files that a DataFrame reads, each with its size and time: their plan is the same when one of them is written anew."""
    context: Any = frame.sparkSession.sparkContext
    found: list[tuple[Any, ...]] = []
    for url in sorted(frame.inputFiles()):
        try:
            path = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(url))
            status = path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path)
            found.append((url, status.getLen(), status.getModificationTime()))
        except Py4JError:  # no file of Hadoop's
            found.append((url,))
    return tuple(found)


def _is_same(one: DataFrame, other: DataFrame) -> bool:
    try:
        return one.sameSemantics(other)
    except Py4JError:  # of a session that is gone
        return False


def _clear(parent: str, spark: SparkSession) -> None:
    """Delete what processes left that were killed."""
    for name in folder_of_url(parent, spark).list_names():
        match = _NAME.fullmatch(name)
        if match is not None and is_dead(match[1]):
            try:
                _remove_tree(f"{parent}/{name}")
            except DataStackError as error:
                logger.warning("could not delete %s/%s: %s", parent, name, error)


def _remove_tree(url: str) -> None:
    path = local_path(url)
    if path is None:
        HadoopFolder.at(spark_session().sparkContext, url).remove_tree()
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageError(f"could not delete {url}: {error}", error.errno) from error


def delete_at_exit() -> None:
    """Delete the folders that this process wrote and is not to keep; called when it ends."""
    own = f"/data-stack-converter-{this_process()}-"  # not what is to be kept, nor what the parent of a fork wrote
    for known in [each for each in _written if own in each.url]:
        try:
            delete_folder(known.url)
        except (DataStackError, OSError) as error:
            logger.warning("could not delete %s: %s", known.url, error)


atexit.register(delete_at_exit)
