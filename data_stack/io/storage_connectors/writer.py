"""Files that become resources: hashed while they are written, then published by their connector."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from data_stack.exception import StorageError
from data_stack.io.integrity import Digest
from data_stack.io.resources import Storable
from data_stack.io.storage_connectors.owners import this_process
from data_stack.io.storage_connectors.partials import TEMPORARY, Partial
from data_stack.io.storage_errors import storage_error

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12


_Method = TypeVar("_Method", bound=Callable[..., Any])
#: Returns our error for one of the operating system.
Explain = Callable[[OSError], Exception]
COPY_BYTES = 1 << 20
_WRITE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _checked(method: _Method) -> _Method:
    """A method of an unfinished :class:`ResourceWriter` that raises our errors for those of the operating system."""

    @functools.wraps(method)
    def call(self: ResourceWriter, *args: Any) -> Any:
        if self._sealed:
            raise ValueError(f"write to {self.identifier!r} after it was finished")
        try:
            return method(self, *args)
        except StorageError:
            raise
        except OSError as error:
            raise self._explain(error) from error

    return cast(_Method, call)


class ResourceWriter(io.BufferedIOBase):
    """A file that becomes a resource. It is hashed while it is written, and reread only after seeking back.

    Args:
        explain: returns our error for one of the operating system; any call may raise it, as it may write buffered data.

    Attributes:
        identifier: the identifier of the resource.
        digest: size and digests of all bytes; complete once sealed.
        partial: the partial file of a resumable download; else None.
        status: of the published file on this machine.
    """

    status: os.stat_result
    mode = "w+b"
    _sealed = True  # until it is made

    def __init__(self, identifier: str, file: IO[bytes], partial: Partial | None = None, explain: Explain | None = None) -> None:
        self.identifier, self.partial = identifier, partial
        self._file = file
        self._explain = explain or functools.partial(storage_error, f"could not write {identifier!r}")
        self.digest = Digest()
        self._sequential = True
        self._sealed = False

    @_checked
    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        self._sequential = self._sequential and self._file.tell() == self.digest.size
        if self._sequential:
            self.digest.update(data)
        n_written = 0
        while n_written < len(view):  # a raw file may write less
            n_written += self._file.write(view[n_written:])
        return len(view)

    def take_up(self) -> Iterator[bytes]:
        """Yield the bytes of a resumed file; each piece counts as written."""
        self.seek(0)
        while data := self.read(COPY_BYTES):
            self.digest.update(data)
            yield data

    @_checked
    def _seal(self) -> None:
        self._file.flush()
        if not self._sequential or self._file.seek(0, os.SEEK_END) != self.digest.size:
            self.digest = Digest()
            self._file.seek(0)
            while chunk := self._file.read(COPY_BYTES):
                self.digest.update(chunk)
        self._sealed = True

    @_checked
    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    @_checked
    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    @_checked
    def tell(self) -> int:
        return self._file.tell()

    @_checked
    def truncate(self, size: int | None = None, /) -> int:
        self._sequential = False
        return self._file.truncate(size)

    @_checked
    def _flush(self) -> None:
        self._file.flush()

    def flush(self) -> None:
        if not self._sealed:
            self._flush()

    def readable(self) -> bool:
        return True

    writable = seekable = readable

    def close(self) -> None:
        """Finish writing and complete ``digest``; some libraries do so early. The end of the ``with`` block publishes."""
        if not self._sealed and not self._file.closed:
            self._seal()

    @property
    def closed(self) -> bool:
        return self._sealed


@contextlib.contextmanager
def publishing(
    folder: int,
    name: str,
    identifier: str,
    explain: Explain,
    *,
    partial: Partial | None = None,
    before_renaming: Callable[[], None] = lambda: None,
) -> Iterator[ResourceWriter]:
    """Write a file beside its place; when the block ends cleanly, publish it atomically and durably.

    Temporary (O_EXCL), write, fsync, rename, fsync of the folder. rename alone is atomic but not durable: after a power cut ext4
    may hold the new name with 0 bytes. A failed fsync is never retried, as the kernel has already marked the pages clean
    (Rebello et al., USENIX ATC 2020).

    Args:
        folder: a descriptor of its folder, which the caller closes.
        name: its name in the folder.
        identifier: its name for the writer.
        explain: returns our error for one of the operating system.
        partial: the file of a resumed download, to write instead of a temporary.
        before_renaming: called before the file replaces an older one.
    """
    temporary = f"{TEMPORARY}{this_process()}-{secrets.token_hex(4)}"
    try:
        handle = os.open(temporary, _WRITE_FLAGS, 0o666, dir_fd=folder) if partial is None else partial.handle
    except OSError as error:
        raise explain(error) from error
    file = open(handle, "w+b", buffering=1 << 17)
    writer = ResourceWriter(identifier, file, partial, explain)
    try:
        yield writer
        writer.close()
        try:
            # With nanoseconds: the kernel's file clock has steps of 4 ms, which would hide a change within.
            os.utime(handle, ns=(time.time_ns(), time.time_ns()))
            os.fsync(handle)
            before_renaming()
            os.replace(temporary if partial is None else partial.name, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            writer.status = os.fstat(handle)
            file.close()
        except StorageError:
            raise
        except OSError as error:
            raise explain(error) from error
    except BaseException as error:
        with contextlib.suppress(OSError, ValueError):
            file.flush()  # may fail again to write what a full disk refused
        if partial is not None:
            partial.end(error)
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


@contextlib.contextmanager
def local_writer(identifier: str, store: Callable[[IO[bytes]], object]) -> Iterator[ResourceWriter]:
    """A writer to a local temporary file, which is passed to ``store`` once it is complete."""
    folder = tempfile.gettempdir()
    advice = f"Nothing was published; make room in {folder!r}, or set TMPDIR."
    problem = f"could not store {identifier!r}: its temporary file in {folder!r} failed"
    explain = functools.partial(storage_error, problem, path=folder, if_full=advice, otherwise=advice)
    try:
        file = tempfile.TemporaryFile()
    except OSError as error:
        raise explain(error) from error
    try:
        writer = ResourceWriter(identifier, file, explain=explain)
        yield writer
        writer.close()
        file.seek(0)  # for those whose set_resource() does not rewind
        store(file)
    finally:
        with contextlib.suppress(OSError):
            file.close()  # may fail again to write what a full disk refused


def store_bytes(resource: Storable, writer: ResourceWriter) -> None:
    """Write all bytes of ``resource`` (see ``set_resource``) from its start."""
    for chunk in binary_chunks(resource):
        writer.write(chunk)


def binary_chunks(resource: Storable) -> Iterator[Buffer]:
    """The bytes of ``resource`` (see ``set_resource``) from its start, in pieces."""
    if isinstance(resource, (bytes, bytearray, memoryview)):
        yield resource
        return
    source: Any = resource
    if not hasattr(source, "read"):
        for piece in source:
            yield _check_bytes(piece)
        return
    if can_seek(source):
        source.seek(0)
    while piece := source.read(COPY_BYTES):
        yield _check_bytes(piece)


def in_pieces(source: Iterable[Buffer], piece_bytes: int) -> Iterator[bytes]:
    """The bytes of ``source`` in pieces of one size, the last one shorter."""
    rest = bytearray()
    for data in source:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), piece_bytes):
            rest += view[start : start + piece_bytes]
            if len(rest) >= piece_bytes:
                yield bytes(memoryview(rest)[:piece_bytes])
                del rest[:piece_bytes]
    if rest:
        yield bytes(rest)


def can_seek(file: Any) -> bool:
    """Whether a file-like object is seekable."""
    if hasattr(file, "seekable"):
        return bool(file.seekable())
    return hasattr(file, "seek")


def _check_bytes(piece: Any) -> Buffer:
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return piece
    raise TypeError(
        f"a resource is stored from bytes, but its source returned {type(piece).__name__}; open text files in binary mode"
    )
