"""Holds the folder of a dataset in a file system of pyarrow or fsspec."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow.fs as pafs

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError
from data_stack.io.folder import Folder
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.unfinished import TEMPORARY
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.storage_errors import storage_errors
from data_stack.io.url import scheme_of


class ArrowFolder(Folder):
    """A folder in a file system of pyarrow. Its files are read without the GIL.

    Args:
        filesystem: the file system.
        path: the path of the folder in the file system, without a slash at the end. ``""`` is the
            root of an object store, ``"/"`` that of a local file system.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self.filesystem = filesystem
        self.name = path

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFolder, (self.filesystem, self.name)

    def open_for_arrow(self, file: str) -> Any:
        """Open a file for pyarrow.

        Returns:
            A ``pyarrow.NativeFile``, which the caller closes.

        Raises:
            ResourceNotFoundError: the file does not exist.
            StorageError: the file cannot be opened.
        """
        path = self.full_name(file)
        with errors_of_filesystem(path):
            return self.filesystem.open_input_file(path)

    def version(self, file: str, source: Any) -> Any:
        """Return a value that changes when the file is replaced.

        Args:
            file: the path of the file in this folder.
            source: the file as :meth:`open_for_arrow` returned it.

        Returns:
            The ETag of the file if the file system has ETags, else its size in bytes and the time
            of its last change in nanoseconds; None if the file system has no such time, as the
            size alone would not tell two files apart.

        Raises:
            StorageError: the file system cannot be asked.
        """
        # S3 and others state the ETag of the file that was opened. The keys of pyarrow are bytes,
        # those of some other file systems are text.
        metadata = source.metadata() or {}
        tag = metadata.get(b"ETag") or metadata.get("ETag")
        if tag is not None:
            return tag
        info = self._info(file)
        if info.mtime_ns is None:
            return None
        return (info.size, info.mtime_ns)

    def has_file(self, file: str) -> bool:
        return bool(self._info(file).type == pafs.FileType.File)

    def _info(self, file: str) -> pafs.FileInfo:
        """Return what the file system knows of a file, which need not exist."""
        path = self.full_name(file)
        with errors_of_filesystem(path):
            return self.filesystem.get_file_info(path)

    def open(self, file: str) -> StreamedResource:
        # A file of pyarrow refuses read(-1), and sizes above 2**63 - 1. The buffer accepts both.
        stream = io.BufferedReader(self.open_for_arrow(file))
        return StreamedResource(self.full_name(file), stream).reopen_by(self)

    def list_files(self) -> list[str]:
        selector = pafs.FileSelector(self.name, allow_not_found=True, recursive=True)
        with errors_of_filesystem(self.name):
            infos = self.filesystem.get_file_info(selector)
        files = []
        for info in infos:
            if info.type == pafs.FileType.File:
                files.append(self._path_in_folder(info.path))
        return sorted(files)

    def _path_in_folder(self, path: str) -> str:
        """Return the path of a listed file relative to this folder.

        Raises:
            StorageError: the file system lists the file outside of this folder.
        """
        if self.name in ("", "/"):
            # Some file systems list "/a/b" in the root "", and others "a/b" in the root "/".
            return path.lstrip("/")
        prefix = self.full_name("")
        if not path.startswith(prefix):
            raise StorageError(
                f"the file system lists {path!r} in the folder {self.name!r}: "
                "pass the path of the folder as the file system lists it"
            )
        return path.removeprefix(prefix)

    def subfolder(self, name: str) -> Folder:
        return ArrowFolder(self.filesystem, self.full_name(name))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        """Write a small file.

        The block writes to memory. After the block, the file is stored under a temporary name, then
        renamed, so that readers never see a part of it. If the block raises, nothing is stored.

        Raises:
            StorageError: the file could not be written; an older one is unchanged.
        """
        path = self.full_name(file)
        folder, slash, _ = path.rpartition("/")
        temporary_name = f"{TEMPORARY}{secrets.token_hex(8)}"
        temporary = folder + slash + temporary_name  # in the same folder
        data = io.BytesIO()
        writer = ResourceWriter(path, data)
        yield writer
        writer.close()
        with errors_of_filesystem(path, "write"):
            try:
                if folder:
                    self.filesystem.create_dir(folder, recursive=True)
                with self.filesystem.open_output_stream(temporary) as stream:
                    stream.write(data.getvalue())
                self.filesystem.move(temporary, path)
            except BaseException:  # also for Ctrl-C: no temporary file stays
                with contextlib.suppress(OSError):
                    self.filesystem.delete_file(temporary)
                raise


@contextlib.contextmanager
def errors_of_filesystem(name: str, verb: str = "read") -> Iterator[None]:
    """Translate the errors of a file system of pyarrow in the block.

    Args:
        name: the name of the file or folder for messages.
        verb: what the block does: "read", "open", "write".

    Raises:
        ResourceNotFoundError: the file or folder does not exist.
        StorageError: the file system raised another OSError.
    """
    with storage_errors(verb, name):
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ResourceNotFoundError(
                f"could not {verb} {name!r}: the file or folder does not exist"
            ) from error


def is_of_hadoop(source: Any) -> bool:
    """Return whether a source is a URL of Hadoop, which pyarrow opens."""
    return scheme_of(source) in ("hdfs", "viewfs")


def arrow_folder_of(source: Any, filesystem: Any) -> ArrowFolder:
    """Return the folder of a path in a file system, or of a URL of Hadoop.

    Args:
        source: the path of the folder, or its URL such as ``"s3://bucket/folder"``.
        filesystem: a file system of pyarrow or fsspec; None opens that of a URL of Hadoop.

    Raises:
        ConfigError: ``source`` is not a path, or ``filesystem`` is not a file system.
        StorageError: Hadoop cannot be reached.
    """
    if filesystem is None:
        return _folder_of_hadoop(source)
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f"with filesystem=, the source must be a path, got {source!r:.80}")
    path_or_url = os.fspath(source)
    path = path_or_url.rpartition("://")[2]
    if _is_of_fsspec(filesystem):
        path = _path_in_fsspec(path_or_url, filesystem)
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    if not isinstance(filesystem, pafs.FileSystem):
        raise ConfigError(
            f"filesystem must be a file system of pyarrow or fsspec, got {filesystem!r:.80}"
        )
    return ArrowFolder(filesystem, _without_end_slash(path))


def _is_of_fsspec(filesystem: Any) -> bool:
    """Return whether a file system is one of fsspec. Those of pyarrow have no method ``open``."""
    return hasattr(filesystem, "open") and hasattr(filesystem, "info")


def _path_in_fsspec(path_or_url: str, filesystem: Any) -> str:
    """Return a path as a file system of fsspec lists it.

    The local file system lists files by absolute paths even if the folder is ``"data"``. That in
    memory lists ``"/data/…"``. ``_strip_protocol`` returns such paths; it is fsspec's own way, and
    each of its file systems has the method.
    """
    is_chained = "::" in path_or_url
    if is_chained or not hasattr(filesystem, "_strip_protocol"):
        return path_or_url.rpartition("://")[2]
    path: str = filesystem._strip_protocol(path_or_url)
    return path


def _without_end_slash(path: str) -> str:
    """Return a path without slashes at the end; that of a root, ``"/"``, keeps one."""
    stripped = path.rstrip("/")
    if path and not stripped:
        return "/"
    return stripped


def _folder_of_hadoop(url: Any) -> ArrowFolder:
    """Return the folder of a URL of Hadoop.

    Raises:
        StorageError: pyarrow does not find Hadoop's client, or Hadoop cannot be reached.
    """
    try:
        filesystem, path = pafs.FileSystem.from_uri(url)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"HDFS could not be reached: {error!s:.300}. "
            "pyarrow needs Hadoop's client: set HADOOP_HOME, JAVA_HOME and CLASSPATH "
            "(`hadoop classpath --glob`)"
        ) from error
    return ArrowFolder(filesystem, _without_end_slash(path))
