"""Files that become resources: hashed while they are written, then published by their connector.

*Partial files* are interrupted downloads, which another process can resume. Their name holds a key and the validator (an ETag) of
their bytes, ``.~partial-KEY-VALIDATOR``, so that a kill leaves both consistent. Their bytes are not trusted: the resuming process
has a digest of the whole. A lock of the operating system, which ends with its process, reserves one for one process at a time.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, Final

from data_stack.exception import ChecksumMismatchError, StorageFullError
from data_stack.io.integrity import Digest
from data_stack.io.resources import Storable
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine, this_process
from data_stack.io.storage_errors import explaining, storage_error
from data_stack.util.group_rights import share_with_group
from data_stack.util.interrupts import open_descriptor
from data_stack.util.lock_file import try_lock

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12


#: Returns our error for one of the operating system.
Explain = Callable[[OSError], Exception]
COPY_BYTES = 1 << 20
#: Prefix of unfinished files; no identifier has it.
TEMPORARY: Final = ".~"
#: Prefix of partial files.
PARTIAL: Final = ".~partial-"
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER_BYTES: Final = 1 << 17


class Partial:
    """A partial file that this process owns while ``file`` is open.

    Attributes:
        name: its name in the folder.
        file: open for reading and writing; it may become a published resource.
        validator: version of its bytes; None if it is empty or cannot be resumed.
    """

    def __init__(self, folder: int, name: str, file: IO[bytes], validator: str | None) -> None:
        self._folder, self._key = folder, name[len(PARTIAL) :].partition("-")[0]
        self.name, self.file, self.validator = name, file, validator

    @classmethod
    def open(cls, folder: int, key: str) -> Partial | None:
        """Open or create the file of ``key`` (letters and digits) in an open folder; None if it is locked or cannot be opened."""
        with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as exits:
            name = next(
                (name for name in os.listdir(folder) if name.startswith(f"{PARTIAL}{key}-")),
                f"{PARTIAL}{key}-",
            )
            handle = os.open(name, _FLAGS | os.O_NONBLOCK | os.O_CREAT, 0o666, dir_fd=folder)
            file = exits.enter_context(open(handle, "w+b", buffering=_BUFFER_BYTES))
            share_with_group(handle, folder)
            if not try_lock(
                handle, if_unsupported=False
            ):  # without locks, each download starts at the beginning
                return None
            # It is not ours if another process published, renamed or removed it before we got the lock, or if it has a second
            # name, as after a kill during renaming.
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_nlink > 1:
                os.unlink(name, dir_fd=folder)
            elif stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(handle)):
                encoded = name.rpartition("-")[2].replace("~", "-")
                validator = base64.urlsafe_b64decode(encoded).decode("latin-1") or None
                if validator is None:
                    os.ftruncate(handle, 0)
                exits.pop_all()
                return cls(folder, name, file, validator)
        return None

    def keep(self, validator: str | None) -> None:
        """Rename it to the validator of the bytes to come."""
        encoded = (
            base64.urlsafe_b64encode((validator or "").encode("latin-1")).decode().replace("-", "~")
        )
        name = f"{PARTIAL}{self._key}-{encoded}"
        if name != self.name:
            # Not by rename(), which would replace the file of a faster process.
            try:
                os.link(
                    self.name,
                    name,
                    src_dir_fd=self._folder,
                    dst_dir_fd=self._folder,
                    follow_symlinks=False,
                )
            except OSError:  # it exists or is too long, or the file system has no links
                validator, name = None, self.name
            else:
                old, self.name = self.name, name
                os.unlink(old, dir_fd=self._folder)
        self.validator = validator

    def end(self, error: BaseException) -> None:
        """Remove it, unless another process can resume it after this error. All writes must be flushed."""
        is_useless = isinstance(error, (ChecksumMismatchError, StorageFullError))
        with contextlib.suppress(OSError):
            if (
                is_useless
                or self.validator is None
                or not os.stat(self.name, dir_fd=self._folder).st_size
            ):
                os.unlink(self.name, dir_fd=self._folder)


def remove_unfinished(
    folder: str, grace_seconds: float, *, dry_run: bool
) -> Iterator[tuple[str, int, str]]:
    """Remove unfinished files at any depth below a folder; yield path, size and reason of each.

    A temporary stays while its writer lives; one of another machine or container, whose writers are not visible, for a day. A
    partial file stays while it is in use, and for the grace period.
    """
    for above, _, names in os.walk(folder):
        for name in (name for name in names if name.startswith(TEMPORARY)):
            path, owner = os.path.join(above, name), name.removeprefix(TEMPORARY).rpartition("-")[0]
            with contextlib.suppress(OSError), contextlib.ExitStack() as exits:
                status, reason = os.stat(path, follow_symlinks=False), "left by a writer that died"
                age_seconds = time.time() - status.st_mtime
                is_useless = is_dead(owner) if is_of_this_machine(owner) else age_seconds > 86_400.0
                if name.startswith(PARTIAL):
                    handle = exits.enter_context(open_descriptor(path, _FLAGS | os.O_NONBLOCK))
                    # Locked until it is removed: a waiting process then sees that its name is gone.
                    is_free, reason = (
                        try_lock(handle, if_unsupported=False),
                        "an interrupted download",
                    )
                    is_useless = (
                        is_free and time.time() - os.fstat(handle).st_mtime >= grace_seconds
                    )
                if is_useless:
                    if not dry_run:
                        os.unlink(path)
                    yield path, status.st_size, reason


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

    def __init__(
        self,
        identifier: str,
        file: IO[bytes],
        partial: Partial | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.identifier, self.partial = identifier, partial
        self._file = file
        self._explain = explain or functools.partial(
            storage_error, f"could not write {identifier!r}"
        )
        self.digest = Digest()
        self._sequential = True
        self._sealed = False

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the file, unless it is finished; errors of the operating system become ours."""
        if self._sealed:
            raise ValueError(f"write to {self.identifier!r} after it was finished")
        with explaining(self._explain):
            return method(*arguments)

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        self._sequential = self._sequential and self._call(self._file.tell) == self.digest.size
        if self._sequential:
            self.digest.update(data)
        n_written = 0
        while n_written < len(view):  # a raw file may write less
            n_written += self._call(self._file.write, view[n_written:])
        return len(view)

    def take_up(self) -> Iterator[bytes]:
        """Yield the bytes of a resumed file, of which nothing was read or written; each piece counts as written."""
        while data := self.read(COPY_BYTES):
            self.digest.update(data)
            yield data

    def _complete(self) -> None:
        self._file.flush()
        if not self._sequential or self._file.seek(0, os.SEEK_END) != self.digest.size:
            self.digest = Digest()
            self._file.seek(0)
            while chunk := self._file.read(COPY_BYTES):
                self.digest.update(chunk)

    def read(self, size: int | None = -1, /) -> bytes:
        return bytes(self._call(self._file.read, size))

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return int(self._call(self._file.seek, offset, whence))

    def tell(self) -> int:
        return int(self._call(self._file.tell))

    def truncate(self, size: int | None = None, /) -> int:
        self._sequential = False
        return int(self._call(self._file.truncate, size))

    def flush(self) -> None:
        if not self._sealed:
            self._call(self._file.flush)

    def readable(self) -> bool:
        return True

    writable = seekable = readable

    def close(self) -> None:
        """Finish writing and complete ``digest``; some libraries do so early. The end of the ``with`` block publishes."""
        if not self._sealed and not self._file.closed:
            self._call(self._complete)
            self._sealed = True

    closed = property(attrgetter("_sealed"))


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
    with explaining(explain):
        handle = (
            partial.file.fileno()
            if partial
            else os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        )
        file = partial.file if partial else open(handle, "w+b", buffering=_BUFFER_BYTES)
        share_with_group(handle, folder)
    writer = ResourceWriter(identifier, file, partial, explain)
    try:
        yield writer
        writer.close()
        with explaining(explain):
            # With nanoseconds: the kernel's file clock has steps of 4 ms, which would hide a change within.
            os.utime(handle, ns=(time.time_ns(), time.time_ns()))
            os.fsync(handle)
            before_renaming()
            os.replace(
                temporary if partial is None else partial.name,
                name,
                src_dir_fd=folder,
                dst_dir_fd=folder,
            )
            os.fsync(folder)
            writer.status = os.fstat(handle)
            file.close()
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
    explain = functools.partial(
        storage_error, problem, path=folder, if_full=advice, otherwise=advice
    )
    with explaining(explain):
        file = tempfile.TemporaryFile()
    try:
        writer = ResourceWriter(identifier, file, explain=explain)
        yield writer
        writer.close()
        file.seek(0)  # for those whose set_resource() does not rewind
        store(file)
    finally:
        with contextlib.suppress(OSError):
            file.close()  # may fail again to write what a full disk refused


def binary_chunks(resource: Storable) -> Iterator[Buffer]:
    """The bytes of ``resource`` (see ``set_resource``) from its start, in pieces."""
    source: Any = resource
    if isinstance(source, (bytes, bytearray, memoryview)):
        source = [source]
    elif hasattr(source, "read"):
        if can_seek(source):
            source.seek(0)
        source = iter(lambda: resource.read(COPY_BYTES) or b"", b"")  # type: ignore[union-attr]  # it has this method
    for piece in source:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            kind = type(piece).__name__
            raise TypeError(
                f"a resource is stored from bytes, but its source returned {kind}; open text files in binary mode"
            )
        yield piece


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
    return bool(file.seekable()) if hasattr(file, "seekable") else hasattr(file, "seek")
