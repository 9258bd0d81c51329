"""Which Parquet files a dataset consists of, wherever they lie, and the values of their partitions."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from data_stack.exception import ConfigError, DatasetFileCorruptError, MissingFileError, ResourceNotFoundError, StorageError
from data_stack.formats.parquet.dataset_names import COMMON_METADATA, PROGRESS_FOLDER, SUFFIXES, is_hidden
from data_stack.formats.parquet.metadata import ParquetManifest
from data_stack.formats.positional import PositionalFile
from data_stack.formats.records.place import LentPlace, Place, place_of
from data_stack.io.local_files import as_resource
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.connector import ResourceWriter, sealing
from data_stack.io.storage_errors import storage_error

__all__ = ["NULL_PARTITION", "ParquetFiles", "find_files", "place_and_paths"]

#: What Hive writes in the name of a folder for null.
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ParquetFiles:
    """The files of a dataset, in the order of their paths (or as they were given, one by one).

    Attributes:
        place: the folder that they lie in.
        paths: of each, relative to it.
        partitions: of each, the text of the values in the names of its folders (``day=2024-01-01``), None for null.
        given: whether the files were named one by one.
    """

    place: Place
    paths: tuple[str, ...]
    partitions: tuple[Mapping[str, str | None], ...] = field(default=())
    given: bool = False

    def open(self, number: int) -> Any:
        """A file for pyarrow to read, in a ``with`` block.

        Raises:
            ResourceNotFoundError, StorageError: it cannot be opened.
        """
        return opened_for_arrow(self.place, self.paths[number])

    def name(self, number: int) -> str:
        """What to call a file in messages."""
        return self.place.full_name(self.paths[number])


def find_files(source: Any, prefix: str = "", *, filesystem: Any = None) -> ParquetFiles:
    """The Parquet files at ``source``.

    Args:
        source: a folder, a file (its path, a resource, or an open binary file), a list of files, a storage connector, a URL, or
            resources of a dataset.
        prefix: folder below it.
        filesystem: of pyarrow or fsspec, in which ``source`` is a path.

    Raises:
        ResourceNotFoundError: there are none.
        ConfigError: it is nothing of the kind.
        DatasetFileCorruptError: its writer has not finished it.
    """
    place, paths = place_and_paths(source, prefix, filesystem=filesystem)
    given = paths is not None
    if paths is None:
        tree = place.tree()
        if any(path.startswith(f"{PROGRESS_FOLDER}/") for path in tree):  # somebody is writing, or was
            tree = _finished(place)
        paths = [path for path in tree if not is_hidden(path)]
        # what carries no suffix is Parquet too (Hive writes so), unless others say what they are
        named = [path for path in paths if path.endswith(SUFFIXES)]
        paths = named or [path for path in paths if "." not in PurePosixPath(path).name]
        if not paths and not place.exists(COMMON_METADATA):
            if place.path is not None and not place.path.exists():
                raise MissingFileError(str(place.path))
            raise ResourceNotFoundError(f"there are no Parquet files in {place.name or place!r}")
    return ParquetFiles(place, tuple(paths), tuple({} if given else partition_of(path) for path in paths), given)


def _finished(place: Place) -> list[str]:
    """The files that were there before somebody began to append."""
    manifest = ParquetManifest.read(place)
    if manifest is None:
        raise DatasetFileCorruptError(
            f"the Parquet dataset in {place.name or place!r} is not finished: its writer was interrupted, or is at work. Go on "
            f"with ParquetWriter, or remove it"
        )
    return [file.name for file in manifest.files]


def place_and_paths(source: Any, prefix: str = "", *, filesystem: Any = None) -> tuple[Place, list[str] | None]:
    """Where a dataset lies, and the files of it if they are named: a file, or a list of files."""
    if isinstance(source, (list, tuple)):
        if not source:
            raise ConfigError("a list of Parquet files has at least one")
        found = [place_and_paths(each, prefix, filesystem=filesystem) for each in source]
        if any(paths is None for _, paths in found):
            raise ConfigError("a list of Parquet files has files, no folders; give one folder by itself")
        roots = [place.full_name(path) for place, paths in found for path in paths or ()]
        if all(place.path is not None for place, _ in found):
            common = os.path.commonpath([os.path.dirname(root) for root in roots])
            return place_of(common), [os.path.relpath(root, common).replace(os.sep, "/") for root in roots]
        if len({repr(place) for place, _ in found}) != 1:
            raise ConfigError("the files of one list lie in one folder")
        return found[0][0], [path for _, paths in found for path in paths or ()]
    if not isinstance(source, Place) and hasattr(source, "read"):
        resource = as_resource(source)
        return LentPlace(resource), [resource.identifier]
    if filesystem is not None:
        place: Place = _InFileSystem(as_arrow_filesystem(filesystem), _path_in_filesystem(source))
    elif isinstance(source, str) and "://" in source:
        scheme = source.partition(":")[0].lower()
        if scheme == "file":
            return place_and_paths(unquote(urlsplit(source).path), prefix)
        if scheme in ("hdfs", "viewfs"):
            filesystem, path = _hadoop(source)
            place = _InFileSystem(filesystem, path)
        else:
            place = place_of(source)
    else:
        if isinstance(source, (str, os.PathLike)):
            path = os.path.expanduser(os.fsdecode(source))
            path = os.path.join(path, prefix) if prefix else path  # joined to nothing, it would end with a slash
            if os.path.isfile(path):
                return place_of(os.path.dirname(os.path.abspath(path))), [os.path.basename(path)]
        place = place_of(source)
    for segment in prefix.split("/"):
        if segment and segment.endswith(SUFFIXES) and place.exists(segment):
            return place, [segment]
        if segment:
            place = place.child(segment)
    if isinstance(place, _InFileSystem) and place.is_file():
        return place.parent(), [place.file_name]
    return place, None


def partition_of(path: str) -> dict[str, str | None]:
    """The values in the names of the folders of a path, as Hive writes them."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name:
            values[unquote(name)] = None if text == NULL_PARTITION else unquote(text)
    return values


def opened_for_arrow(place: Place, path: str) -> Any:
    """A file of a place as pyarrow's own kind of file where there is one: those read without Python's lock."""
    if place.path is not None:
        full = os.path.join(place.path, path)
        try:
            return _opened_local(full)
        except ResourceNotFoundError:
            raise
        except OSError as error:
            if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise ResourceNotFoundError(f"could not open {full!r}: there is no such file") from error
            raise StorageError(f"could not open {full!r}: {error}", error.errno) from error
    if isinstance(place, _InFileSystem):
        return place.opened_for_arrow(path)
    resource = place.open(path)
    source = _OfStore(PositionalFile(resource) if isinstance(place, LentPlace) else resource, mode="r")
    source.version = resource.sha256
    return source


def _opened_local(path: str) -> _Local:
    before = os.stat(path)
    while True:
        if not stat.S_ISREG(before.st_mode):  # a pipe would be waited for
            raise ResourceNotFoundError(f"could not open {path!r}: it is no file")
        source = _Local(path)
        # not of the open file: pyarrow 23 does not tell its descriptor
        after = os.stat(path)
        source.version = after.st_dev, after.st_ino, after.st_mtime_ns
        if source.version == (before.st_dev, before.st_ino, before.st_mtime_ns):
            return source
        source.close()
        before = after


class _Local(pa.OSFile):  # type: ignore[misc]  # pyarrow has no types
    """A file of this machine.

    Attributes:
        version: tells it from one that takes its place later, or from itself when it was written to.
    """

    version: tuple[int, int, int] | None = None


class _OfStore(pa.PythonFile):  # type: ignore[misc]  # pyarrow has no types
    """A file of a store.

    Attributes:
        version: tells it from one that takes its place later; None where the store does not know.
    """

    version: str | None = None


# ------------------------------------------------------------------ file systems of pyarrow


def as_arrow_filesystem(filesystem: Any) -> pafs.FileSystem:
    """A file system of pyarrow; one of fsspec is wrapped.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(filesystem, pafs.FileSystem):
        return filesystem
    if hasattr(filesystem, "open") and hasattr(filesystem, "info"):
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    raise ConfigError(f"a file system is one of pyarrow or fsspec, not {filesystem!r:.80}")


def _path_in_filesystem(source: Any) -> str:
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f"with a file system, the source is a path in it, not {source!r:.80}")
    text = os.fspath(source)
    return (text.partition("://")[2] if "://" in text else text).rstrip("/")


def _hadoop(url: str) -> tuple[pafs.FileSystem, str]:
    try:
        filesystem, path = pafs.FileSystem.from_uri(url)
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise StorageError(
            f"HDFS could not be reached: {error!s:.300}. pyarrow needs Hadoop's client: set HADOOP_HOME, JAVA_HOME and CLASSPATH "
            f"(`hadoop classpath --glob`), see https://arrow.apache.org/docs/python/filesystems.html"
        ) from error
    return filesystem, path.rstrip("/")


class _InFileSystem(Place):
    """A folder in a file system of pyarrow."""

    def __init__(self, filesystem: pafs.FileSystem, folder: str) -> None:
        self._filesystem, self._folder = filesystem, folder
        self.name = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return _InFileSystem, (self._filesystem, self._folder)

    @property
    def file_name(self) -> str:
        """The last part of its path."""
        return self._folder.rpartition("/")[2]

    def is_file(self) -> bool:
        """Whether it is no folder, but a file."""
        with _errors(self._folder):
            return bool(self._filesystem.get_file_info(self._folder).type == pafs.FileType.File)

    def parent(self) -> _InFileSystem:
        """The folder that it lies in."""
        return _InFileSystem(self._filesystem, self._folder.rpartition("/")[0])

    def opened_for_arrow(self, file: str) -> Any:
        """A file, to be read by pyarrow."""
        with _errors(self.full_name(file)):
            return self._filesystem.open_input_file(self.full_name(file))

    def exists(self, file: str) -> bool:
        with _errors(self.full_name(file)):
            return bool(self._filesystem.get_file_info(self.full_name(file)).type == pafs.FileType.File)

    def open(self, file: str) -> StreamedResource:
        name = self.full_name(file)
        return StreamedResource.sealed(name, _ArrowBytes(self.opened_for_arrow(file), name), self)

    def get_resource(self, identifier: str) -> StreamedResource:
        """Open a file by its path again, for a resource that was sent to another process."""
        return self.open(identifier[len(self._folder) + 1 :])

    def names(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self.tree()})

    def tree(self) -> list[str]:
        selector = pafs.FileSelector(self._folder, allow_not_found=True, recursive=True)
        with _errors(self._folder):
            found = self._filesystem.get_file_info(selector)
        start = len(self._folder) + 1 if self._folder else 0
        return sorted(info.path[start:] for info in found if info.type == pafs.FileType.File)

    def child(self, name: str) -> Place:
        return _InFileSystem(self._filesystem, self.full_name(name))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        """Write a file under another name, and rename it; small ones, as they are held in memory until then."""
        path = self.full_name(file)
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/.~{secrets.token_hex(8)}" if folder else f".~{secrets.token_hex(8)}"
        data = io.BytesIO()
        with sealing(ResourceWriter(path, data)) as writer:
            yield writer
        with _errors(path, "write"):
            try:
                if folder:
                    self._filesystem.create_dir(folder, recursive=True)
                with self._filesystem.open_output_stream(temporary) as stream:
                    stream.write(data.getvalue())
                self._filesystem.move(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._filesystem.delete_file(temporary)
                raise


class _ArrowBytes(ByteSource):
    """An open file of pyarrow's, read by position."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name

    @property
    def size(self) -> int:
        return int(self._file.size())

    @property
    def sha256(self) -> None:
        return None

    @property
    def tag(self) -> str | None:
        etag = (self._file.metadata() or {}).get(b"ETag")
        return None if etag is None else f"{etag.decode(errors='replace')}, {self.size} bytes"

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        with _errors(self._name):
            data = self._file.read_at(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()


@contextlib.contextmanager
def _errors(name: str, verb: str = "read") -> Iterator[None]:
    """Errors of pyarrow's file systems as ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise ResourceNotFoundError(f"could not {verb} {name!r}: there is no such file or folder") from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise storage_error(f"could not {verb} {name!r}", error) from error


def partition_names(partitions: Sequence[Mapping[str, str | None]]) -> list[str]:
    """The names of all partition columns, in the order of the folders."""
    names: dict[str, None] = {}
    for values in partitions:
        names.update(dict.fromkeys(values))
    return list(names)
