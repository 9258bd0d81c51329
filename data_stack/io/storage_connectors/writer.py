"""Files that become resources: hashed while they are written, then published by their connector."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from data_stack.exception import StorageError
from data_stack.io.integrity import Digest
from data_stack.io.resources import Storable
from data_stack.io.storage_connectors.partials import Partial
from data_stack.io.storage_errors import storage_error

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12


_Method = TypeVar("_Method", bound=Callable[..., Any])
COPY_BYTES = 1 << 20


def _failing(method: _Method) -> _Method:
    """A method of :class:`ResourceWriter` that raises our errors for those of the operating system."""

    @functools.wraps(method)
    def telling(self: ResourceWriter, *args: Any) -> Any:
        try:
            return method(self, *args)
        except StorageError:
            raise
        except OSError as error:
            self._fail(error)

    return cast(_Method, telling)


class ResourceWriter(io.BufferedIOBase):
    """A file that becomes a resource. It is hashed while it is written, and reread only after seeking back.

    Args:
        fail: raises our error for one of the operating system.

    Attributes:
        identifier: the identifier of the resource.
        digest: size and digests of all bytes; complete once sealed.
        partial: the partial file of a resumable download; else None.
    """

    mode = "w+b"

    def __init__(
        self,
        identifier: str,
        file: IO[bytes],
        partial: Partial | None = None,
        fail: Callable[[OSError], NoReturn] | None = None,
    ) -> None:
        self.identifier = identifier
        self.partial = partial
        self._raise_as = fail
        self.digest = Digest()
        self._file = file
        self._sequential = True
        self._sealed = False

    @_failing
    def write(self, data: Buffer, /) -> int:
        self._check_open()
        view = memoryview(data).cast("B")
        if self._sequential and self._file.tell() != self.digest.size:
            self._sequential = False
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

    @_failing
    def seal(self) -> None:
        """Finish writing and complete ``digest``."""
        if self._sealed:
            return
        self._file.flush()
        if not self._sequential or self._file.seek(0, os.SEEK_END) != self.digest.size:
            self.digest.finish()
            self.digest = Digest()
            self._file.seek(0)
            while chunk := self._file.read(COPY_BYTES):
                self.digest.update(chunk)
        self._sealed = True

    @_failing
    def read(self, size: int | None = -1, /) -> bytes:
        self._check_open()
        return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    @_failing
    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        return self._file.seek(offset, whence)

    @_failing
    def tell(self) -> int:
        self._check_open()
        return self._file.tell()

    @_failing
    def truncate(self, size: int | None = None, /) -> int:
        self._check_open()
        self._sequential = False
        return self._file.truncate(size)

    @_failing
    def flush(self) -> None:
        if not self.closed and not self._sealed:
            self._file.flush()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Finish writing; some libraries do so early. The end of the ``with`` block publishes."""
        if "_file" in self.__dict__ and not self._sealed and not self._file.closed:
            self.seal()

    @property
    def closed(self) -> bool:
        return bool(self.__dict__.get("_sealed", True))

    def _fail(self, error: OSError) -> NoReturn:
        """Raise our error for one of the file; any call may write buffered data."""
        if self._raise_as is not None:
            self._raise_as(error)
        raise error

    def _check_open(self) -> None:
        if self._sealed:
            raise ValueError(f"write to {self.identifier!r} after it was finished")


@contextlib.contextmanager
def local_writer(identifier: str) -> Iterator[tuple[ResourceWriter, IO[bytes]]]:
    """A writer to a local temporary file, which is sent once it is complete."""
    try:
        file = tempfile.TemporaryFile()
    except OSError as error:
        raise_local(identifier, error)
    try:
        yield ResourceWriter(identifier, file, fail=functools.partial(raise_local, identifier)), file
    finally:
        with contextlib.suppress(OSError):
            file.close()  # may fail again to write what a full disk refused


def raise_local(identifier: str, error: OSError) -> NoReturn:
    """Raise our error for one of a temporary file."""
    folder = tempfile.gettempdir()
    advice = f"Nothing was published; make room in {folder!r}, or set TMPDIR."
    problem = f"could not store {identifier!r}: its temporary file in {folder!r} failed"
    raise storage_error(problem, error, folder, if_full=advice, otherwise=advice) from error


@contextlib.contextmanager
def sealing(writer: ResourceWriter) -> Iterator[ResourceWriter]:
    """Seal the writer when the block ends cleanly; end its hashing thread in any case."""
    try:
        yield writer
        writer.seal()
    finally:
        writer.digest.finish()


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
        f"a resource is stored from bytes, but its source gave {type(piece).__name__}; open text files in binary mode"
    )
