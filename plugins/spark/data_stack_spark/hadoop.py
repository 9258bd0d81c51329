"""Folders in the file systems of Hadoop, through the JVM of a Spark session: whatever Spark writes to, we reach as it does."""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageError
from data_stack.io.folder import Folder
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.writer import ResourceWriter, sealing

__all__ = ["HadoopFolder"]


class HadoopFolder(Folder):
    """A folder in a file system of Hadoop (HDFS, S3A, ABFS, GCS, and what else Spark is configured for).

    It lives in the driver only: it goes through the JVM of the Spark session, with its configuration and credentials. For the few
    small files of a dataset's metadata and for footers; rows are better read by what is made for it.
    """

    def __init__(self, jvm: Any, filesystem: Any, url: str) -> None:
        self._jvm, self._filesystem, self.name = jvm, filesystem, url.rstrip("/")

    @classmethod
    def at(cls, context: SparkContext, url: str) -> HadoopFolder:
        """The folder at ``url``.

        Raises:
            StorageError: Hadoop knows no such file system.
        """
        jvm: Any = context._jvm
        with _errors(url):
            path = jvm.org.apache.hadoop.fs.Path(url)
            return cls(jvm, path.getFileSystem(context._jsc.hadoopConfiguration()), url)

    def __reduce__(self) -> tuple[Any, ...]:
        raise ConfigError(f"{self.name!r} is read through the driver of Spark, so it cannot be sent to another process")

    def has_file(self, file: str) -> bool:
        with _errors(self.full_name(file)):
            path = self._path(file)
            return bool(self._filesystem.exists(path) and self._filesystem.getFileStatus(path).isFile())

    def open(self, file: str) -> StreamedResource:
        return StreamedResource.from_source(self.full_name(file), _HadoopFile(self, file), self)

    def list_names(self) -> list[str]:
        with _errors(self.name):
            root = self._jvm.org.apache.hadoop.fs.Path(self.name)
            if not self._filesystem.exists(root):
                return []
            return sorted(str(each.getPath().getName()) for each in self._filesystem.listStatus(root))

    def list_files(self) -> list[str]:
        with _errors(self.name):
            root = self._jvm.org.apache.hadoop.fs.Path(self.name)
            if not self._filesystem.exists(root):
                return []
            start = len(self._filesystem.getFileStatus(root).getPath().toString()) + 1
            found = []
            files = self._filesystem.listFiles(root, True)
            while files.hasNext():
                found.append(str(files.next().getPath().toString())[start:])
        return sorted(found)

    def subfolder(self, name: str) -> Folder:
        return HadoopFolder(self._jvm, self._filesystem, self.full_name(name))

    @contextlib.contextmanager
    def create(self, file: str) -> Iterator[ResourceWriter]:
        path, temporary = self._path(file), self._path(f".~{secrets.token_hex(8)}")
        data = io.BytesIO()
        with sealing(ResourceWriter(self.full_name(file), data)) as writer:
            yield writer
        try:
            with _errors(self.full_name(file)):
                stream = self._filesystem.create(temporary, True)
                try:
                    stream.write(data.getvalue())
                finally:
                    stream.close()
                # Hadoop's file systems do not all replace a file when another one is renamed
                if self._filesystem.exists(path):
                    self._filesystem.delete(path, False)
                if not self._filesystem.rename(temporary, path):
                    raise StorageError(f"could not write {self.full_name(file)!r}: Hadoop did not rename the temporary file")
        except BaseException:
            with contextlib.suppress(Py4JError):
                self._filesystem.delete(temporary, False)
            raise

    can_delete = True

    def delete(self, file: str) -> None:
        with _errors(self.full_name(file)):
            self._filesystem.delete(self._path(file), False)

    def remove_tree(self) -> None:
        """Remove the folder with all that is in it; it need not be there.

        Raises:
            StorageError: it could not be removed.
        """
        with _errors(self.name):
            self._filesystem.delete(self._jvm.org.apache.hadoop.fs.Path(self.name), True)

    def _path(self, file: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.full_name(file))


class _HadoopFile(ByteSource):
    """A file, read by position: a stream of its own for each read, as few and large as the reader asks for."""

    def __init__(self, folder: HadoopFolder, file: str) -> None:
        self._folder, self._name = folder, folder.full_name(file)
        self._path = folder._path(file)
        with _errors(self._name):
            self._size = int(folder._filesystem.getFileStatus(self._path).getLen())

    @property
    def size(self) -> int:
        return self._size

    @property
    def sha256(self) -> None:
        return None

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        n_bytes = min(len(buffer), max(0, self._size - offset))
        if n_bytes == 0:
            return 0
        with _errors(self._name):
            stream = self._folder._filesystem.open(self._path)
            try:
                stream.seek(offset)
                data = bytes(self._folder._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, n_bytes))
            finally:
                stream.close()
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def _errors(name: str) -> Iterator[None]:
    """Errors of Hadoop as ours."""
    try:
        yield
    except Py4JJavaError as error:
        said = str(error.java_exception)
        if "FileNotFoundException" in said or "NoSuchFileException" in said:
            raise ResourceNotFoundError(f"could not read {name!r}: there is no such file or folder") from error
        raise StorageError(f"Hadoop could not reach {name!r}: {said:.300}") from error
    except Py4JError as error:
        raise StorageError(f"Hadoop could not reach {name!r}: the Spark session is gone: {error!s:.200}") from error
