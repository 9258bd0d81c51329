"""Finds the Parquet files of a dataset, and the values of their partitions."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MissingFileError,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.formats.managed_tables import refuse_managed_table
from data_stack.formats.parquet.metadata import (
    COMMON_METADATA,
    PARQUET_MANIFEST,
    PROGRESS_FOLDER,
    ParquetManifest,
    find_metadata,
)
from data_stack.formats.split_names import warn_of_splits
from data_stack.io.account import HIDDEN, LeftOut, PlaceAccount, account_of, is_document
from data_stack.io.folder import Folder, LocalFolder, folder_of
from data_stack.io.lent_resource import LentResource
from data_stack.io.location import Location, location_of
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.unfinished import TEMPORARY
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.storage_errors import storage_errors
from data_stack.io.url import scheme_of
from data_stack.io.versions import LocalVersion, version_of
from data_stack.util.executor import waiting

#: Suffixes of files of rows; Hive writes none.
SUFFIXES: Final = (".parquet", ".parq", ".pq")
#: The first bytes of a file, and of one with an encrypted footer.
_MAGICS: Final = (b"PAR1", b"PARE")
#: Files that are opened at once to read their first bytes.
_N_AT_ONCE: Final = 16
#: The rule that leaves other files out.
NO_PARQUET: Final = "no Parquet, by its name or its first bytes"
#: Stands for null in the name of a folder, as Hive writes it.
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ParquetFiles:
    """The files of a dataset, in the order of their paths, or as they were listed.

    Attributes:
        folder: the folder of the dataset.
        paths: the path of each file in the folder.
        partitions: the texts in the names of each file's folders (``day=2024-01-01``), None for null.
        given: whether the caller listed the files.
        beside: the paths of ``_common_metadata`` and of the manifest, if they exist.
        account: what else is in the folder, and why it is left out.
    """

    folder: Folder
    paths: tuple[str, ...]
    partitions: tuple[Mapping[str, str | None], ...]
    given: bool
    beside: tuple[str, ...]
    account: PlaceAccount

    def open(self, number: int) -> Any:
        """Open a file for pyarrow, in a ``with`` block: as a native file if possible, as these read without the GIL.

        Raises:
            ResourceNotFoundError, StorageError: the file cannot be opened.
        """
        folder, path = self.folder, self.paths[number]
        if isinstance(folder, ArrowFolder):
            return folder.open_for_arrow(path)
        if folder.path is not None:
            full = os.path.join(folder.path, path)
            if isinstance(folder, LocalFolder) and not self.given:
                full = folder.path_of(path)
            with _errors(full, "open"):
                return _open_local(full)
        resource = folder.open(path)
        source = _OfStore(
            PositionalFile(resource) if isinstance(resource, LentResource) else resource, mode="r"
        )
        source.version = version_of(resource)
        return source

    def version(self, number: int, source: Any) -> Any:
        """The version of an open file, which changes when the file is replaced; None where the store has no versions.

        Args:
            number: of the file.
            source: the file, as :meth:`open` returned it.
        """
        if isinstance(self.folder, ArrowFolder):
            return self.folder.version(self.paths[number], source)
        return source.version

    def name(self, number: int) -> str:
        """The name of a file in messages."""
        return self.folder.full_name(self.paths[number])


def find_files(source: Any, prefix: str = "", *, filesystem: Any = None) -> ParquetFiles:
    """Find the Parquet files at ``source``.

    Args:
        source: a folder, a file (its path, a resource, or an open binary file), a list of files, a storage connector, a URL, or
            resources of a dataset.
        prefix: folder below it.
        filesystem: of pyarrow or fsspec, in which ``source`` is a path.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        ConfigError: ``source`` is something else.
        DatasetFileCorruptError: the writer of the dataset has not finished.
    """
    folder, paths = folder_and_paths(source, prefix, filesystem=filesystem)
    given = paths is not None
    account = PlaceAccount(folder.full_name(""), len(paths or ()))
    if paths is not None:
        beside = find_metadata(folder, filter(folder.has_file, (COMMON_METADATA, PARQUET_MANIFEST)))
    else:
        tree, links = folder.survey()
        refuse_managed_table(folder, tree)
        beside = find_metadata(folder, tree)
        if any(
            path.startswith(f"{PROGRESS_FOLDER}/") for path in tree
        ):  # a writer is at work, or was interrupted
            manifest = ParquetManifest.read(folder)
            if manifest is None:
                raise DatasetFileCorruptError(
                    f"{folder!r} is not finished: its writer was interrupted, or is still writing"
                )
            tree = [file.name for file in manifest.files]  # those that were complete before
        paths = _files_of_rows(folder, tree)
        links += [LeftOut(path, HIDDEN) for path in tree if is_hidden(path) and path not in beside]
        visible = [path for path in tree if not is_hidden(path)]
        account = account_of(folder.full_name(""), paths, visible, NO_PARQUET, links)
        if not beside:
            _warn_of_splits(folder, paths)
        if not paths and not beside:
            if folder.path is not None and not folder.path.exists():
                raise MissingFileError(str(folder.path))
            summary = account.summary()
            why = f"; it holds {summary}" if summary else ""
            raise ResourceNotFoundError(f"{folder.name or folder!r} has no Parquet files{why}")
    return ParquetFiles(
        folder,
        tuple(paths),
        tuple({} if given else partition_of(path) for path in paths),
        given,
        beside,
        account,
    )


def _files_of_rows(folder: Folder, tree: Sequence[str]) -> list[str]:
    """The files with rows of a dataset, in the order of its files.

    Those are the files with a suffix of Parquet in any case, and those without a suffix, as Hive and Spark write
    them. Beside files with a suffix, one without counts if it begins as Parquet does.
    """
    visible = [path for path in tree if not is_hidden(path)]
    named = {path for path in visible if has_suffix(path)}
    bare = [
        path
        for path in visible
        if "." not in PurePosixPath(path).name and not is_document(path) and path not in named
    ]
    if not named:
        return bare
    if not bare:
        return [path for path in visible if path in named]
    begins = waiting.map(functools.partial(_begins_as_parquet, folder), bare, at_once=_N_AT_ONCE)
    named.update(path for path, is_parquet in zip(bare, begins, strict=True) if is_parquet)
    return [path for path in visible if path in named]


def _begins_as_parquet(folder: Folder, path: str) -> bool:
    try:
        with folder.open(path) as resource:
            return resource.read_at(0, 4) in _MAGICS
    except ResourceNotFoundError:  # a pipe, a device, or removed meanwhile
        return False


def has_suffix(path: str) -> bool:
    """Whether the name of a file ends as those of Parquet do, in any case."""
    return path.lower().endswith(SUFFIXES)


def _warn_of_splits(folder: Folder, paths: Sequence[str]) -> None:
    """Warn if the files of one dataset, or the folders that hold them, are named as splits."""
    stems = {}
    for path in paths:
        name = path.partition("/")[0]
        stems[name] = name.removesuffix(PurePosixPath(name).suffix) if name == path else name
    advice = "name a file, list the files of a split, or pass prefix="
    warn_of_splits(folder.name or repr(folder), stems, advice)


def folder_and_paths(
    source: Any, prefix: str = "", *, filesystem: Any = None
) -> tuple[Folder, list[str] | None]:
    """The folder of a dataset, and its files if ``source`` names them: a file, or a list of files."""
    if isinstance(source, (list, tuple)):
        return _folder_of_list(
            [folder_and_paths(each, prefix, filesystem=filesystem) for each in source]
        )
    if isinstance(source, Location):
        if source.is_file():
            source.local_file()  # raises if it was found in a folder, and is a link out of it
            return source.folder, [source.name]
        return source.as_folder(), None
    if not isinstance(source, Folder) and hasattr(source, "read"):
        location = location_of(source)
        return location.folder, [location.name]
    folder = _folder_of(source, filesystem)
    for segment in filter(None, prefix.split("/")):
        if has_suffix(segment) and folder.has_file(segment):
            return folder, [segment]
        folder = folder.subfolder(segment)
    above, _, name = folder.name.rpartition("/")
    if folder.path is not None and folder.path.is_file():
        return folder_of(folder.path.parent), [folder.path.name]
    if isinstance(folder, ArrowFolder) and (
        parent := ArrowFolder(folder.filesystem, above)
    ).has_file(name):
        return parent, [name]
    return folder, None


def _folder_of(source: Any, filesystem: Any) -> Folder:
    if filesystem is not None:
        if not isinstance(source, (str, os.PathLike)):
            raise ConfigError(f"with filesystem=, the source must be a path, got {source!r:.80}")
        if hasattr(filesystem, "open") and hasattr(filesystem, "info"):
            filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
        if not isinstance(filesystem, pafs.FileSystem):
            raise ConfigError(
                f"filesystem must be a file system of pyarrow or fsspec, got {filesystem!r:.80}"
            )
        return ArrowFolder(filesystem, os.fspath(source).rpartition("://")[2].rstrip("/"))
    if scheme_of(source) not in ("hdfs", "viewfs"):
        return folder_of(source)
    try:
        filesystem, path = pafs.FileSystem.from_uri(source)
    except (OSError, ValueError) as error:
        remedy = "pyarrow needs Hadoop's client: set HADOOP_HOME, JAVA_HOME and CLASSPATH (`hadoop classpath --glob`)"
        raise StorageError(f"HDFS could not be reached: {error!s:.300}. {remedy}") from error
    return ArrowFolder(filesystem, path.rstrip("/"))


def _folder_of_list(found: list[tuple[Folder, list[str] | None]]) -> tuple[Folder, list[str]]:
    """The folder above all files of a list, and their paths in it."""
    if not found:
        raise ConfigError("the list of Parquet files is empty")
    if any(paths is None for _, paths in found):
        raise ConfigError("a list of Parquet files must contain files only; pass a folder alone")
    files = [(folder, path) for folder, paths in found for path in paths or ()]
    if all(folder.path is not None for folder, _ in files):
        local = [folder.full_name(path) for folder, path in files]
        common = os.path.commonpath([os.path.dirname(file) for file in local])
        return folder_of(common), [
            os.path.relpath(file, common).replace(os.sep, "/") for file in local
        ]
    if len({folder.describe("") for folder, _ in files}) != 1:
        raise ConfigError("all files of a list must be in the same folder")
    return files[0][0], [path for _, path in files]


def partition_of(path: str) -> dict[str, str | None]:
    """The values in the names of the folders of a path, as Hive writes them."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name:
            values[unquote(name)] = None if text == NULL_PARTITION else unquote(text)
    return values


def _open_local(path: str) -> _Local:
    source = None
    while True:
        status = os.stat(path)  # by path: pyarrow 23 does not return the descriptor of an open file
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait
            raise ResourceNotFoundError(f"could not open {path!r}: it is not a file")
        if source is not None and source.version is not None and source.version.is_of(status):
            return source
        source = _Local(path)
        source.version = LocalVersion.of(status)


class _Local(pa.OSFile):  # type: ignore[misc]  # pyarrow has no types
    """A file of this machine.

    Attributes:
        version: changes when the file is replaced or written to.
    """

    version: LocalVersion | None = None


class _OfStore(pa.PythonFile):  # type: ignore[misc]  # pyarrow has no types
    """A file of a store.

    Attributes:
        version: changes when the file is replaced; None where the store has no versions.
    """

    version: Any = None


# ------------------------------------------------------------------ file systems of pyarrow


class ArrowFolder(Folder):
    """A folder in a file system of pyarrow, which reads without the GIL.

    Args:
        filesystem: of pyarrow.
        path: of the folder in it, without a slash at the end.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self.filesystem, self.name = filesystem, path

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFolder, (self.filesystem, self.name)

    def open_for_arrow(self, file: str) -> Any:
        """Open a file for pyarrow."""
        with _errors(self.full_name(file)):
            return self.filesystem.open_input_file(self.full_name(file))

    def version(self, file: str, source: Any) -> Any:
        """The version of an open file: its ETag, else its size and modification time, so far as the file system has them."""
        metadata = source.metadata() or {}  # of S3 and others, from when the file was opened
        tag = metadata.get(b"ETag") or metadata.get("ETag")
        if tag is not None:
            return tag
        with _errors(self.full_name(file)):
            info = self.filesystem.get_file_info(self.full_name(file))
        return None if info.mtime_ns is None else (info.size, info.mtime_ns)

    def has_file(self, file: str) -> bool:
        with _errors(self.full_name(file)):
            return bool(
                self.filesystem.get_file_info(self.full_name(file)).type == pafs.FileType.File
            )

    def open(self, file: str) -> StreamedResource:
        # files of pyarrow do not accept a negative size, nor more than 2**63 - 1 bytes
        stream = io.BufferedReader(self.open_for_arrow(file))
        return StreamedResource(self.full_name(file), stream).reopen_by(self)

    def list_files(self) -> list[str]:
        selector = pafs.FileSelector(self.name, allow_not_found=True, recursive=True)
        with _errors(self.name):
            found = self.filesystem.get_file_info(selector)
        start = len(self.full_name(""))
        return sorted(info.path[start:] for info in found if info.type == pafs.FileType.File)

    def subfolder(self, name: str) -> Folder:
        return ArrowFolder(self.filesystem, self.full_name(name))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        """Write a small file: hold it in memory, store it under another name, and rename it."""
        path = self.full_name(file)
        folder = path.rpartition("/")[0]
        temporary = (
            f"{folder}/{TEMPORARY}{secrets.token_hex(8)}"
            if folder
            else f"{TEMPORARY}{secrets.token_hex(8)}"
        )
        data = io.BytesIO()
        writer = ResourceWriter(path, data)
        yield writer
        writer.close()
        with _errors(path, "write"):
            try:
                if folder:
                    self.filesystem.create_dir(folder, recursive=True)
                with self.filesystem.open_output_stream(temporary) as stream:
                    stream.write(data.getvalue())
                self.filesystem.move(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.filesystem.delete_file(temporary)
                raise


@contextlib.contextmanager
def _errors(name: str, verb: str = "read") -> Iterator[None]:
    """Raise errors of pyarrow's file systems as ours."""
    with storage_errors(verb, name):
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ResourceNotFoundError(
                f"could not {verb} {name!r}: the file or folder does not exist"
            ) from error


def partition_names(partitions: Sequence[Mapping[str, str | None]]) -> list[str]:
    """The names of all partition columns, in the order of the folders."""
    return list(dict.fromkeys(name for values in partitions for name in values))


def is_hidden(path: str) -> bool:
    """Whether tools ignore a file: its name, or the name of a folder, begins with ``_`` or ``.`` and has no ``=``."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))
