"""Copies resources from one store to another: verified, in parallel, and going on where an earlier copy broke off."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DatasetFileCorruptError,
    IncompleteCopyError,
    ReadOnlyStorageError,
    ResourceNotFoundError,
    StorageConflictError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStorageOperationError,
)
from data_stack.io.copy_report import Copied, CopyFault, CopyReport, Outcome
from data_stack.io.integrity import Digest
from data_stack.io.parallel import Workers
from data_stack.io.progress import byte_bar
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.util.logger import logger

__all__ = ["Parcel", "Seal", "Wanted", "check_apart", "copy_parcels"]


_TICK_SECONDS = 0.1
_MOST_SEAL_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """A resource to copy.

    Attributes:
        identifier: its name in both stores.
        size: length in bytes that it must have; None for what the source says.
        sha256: digest that it must have, 64 hex digits; None for what the source says.
    """

    identifier: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Seal:
    """Makes a parcel valid where it arrives: it is stored last, and taken away before anything of another one is replaced.

    Attributes:
        identifier: of the seal.
        data: its bytes.
        mark_identifier: of the mark that says, as long as it is there, that the parcel is not complete.
        mark: the bytes of the mark.
    """

    identifier: str
    data: bytes
    mark_identifier: str
    mark: bytes


@dataclass(frozen=True, slots=True)
class Parcel:
    """Resources that belong together, a dataset for example.

    Attributes:
        name: of the whole.
        resources: what to copy.
        seal: what makes it complete; None for loose resources.
    """

    name: str
    resources: tuple[Wanted, ...]
    seal: Seal | None = None


def copy_parcels(
    source: StorageConnector,
    target: StorageConnector,
    parcels: Sequence[Parcel],
    *,
    skipped: Sequence[CopyFault] = (),
    faults: Sequence[CopyFault] = (),
    n_threads: int = 4,
    deep: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> CopyReport:
    """Copy parcels; what the target has already is left alone.

    Each byte is hashed on its way. A resource is published at the target only if it has the digest that was promised (by its
    parcel, or else by the source), and is then held against what the target says of it. A resource that the target knows to
    have with that digest is not read. One that was interrupted is sent anew; those before it are not.

    A damaged or missing resource does not stop the others, but its parcel gets no seal.

    Args:
        source: it is only read.
        target: it may hold anything; what has the same names is replaced.
        parcels: no two with a common identifier.
        skipped: reported as they are.
        faults: reported as they are, with those that are found.
        n_threads: resources that are on their way at a time; each needs a few MiB of memory.
        deep: read what the target has already, and replace what is damaged there.
        dry_run: store nothing.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        IncompleteCopyError: something was not copied; its ``report`` says what.
        ConfigError: both stores are the same, or one lies inside of the other.
        StorageError: a store failed. What is copied stays, and the same copy again goes on from there.
    """
    if n_threads < 1:
        raise ConfigError(f"a copy needs at least 1 thread, got {n_threads}")
    check_apart(source, target)
    copy = _Copy(source, target, parcels, deep, dry_run, list(faults))
    started = time.perf_counter()
    copy.run(n_threads, progress)
    report = CopyReport(
        source=repr(source),
        target=repr(target),
        complete=tuple(sorted(copy.complete)),
        resources=tuple(sorted(copy.done, key=lambda each: each.identifier)),
        skipped=tuple(skipped),
        faults=tuple(sorted(copy.faults, key=lambda each: each.identifier)),
        seconds=time.perf_counter() - started,
        dry_run=dry_run,
    )
    if report.faults:
        raise IncompleteCopyError(report)
    return report


def check_apart(source: StorageConnector, target: StorageConnector) -> None:
    """Refuse to copy a store onto itself. Where that cannot be seen, all is there already, so that nothing happens.

    Raises:
        ConfigError: both are the same, or the target lies inside of the source.
    """
    if source is target:
        raise ConfigError(f"source and target of a copy are both {source!r}")
    if isinstance(source, FileStorageConnector) and isinstance(target, FileStorageConnector):
        above, below = os.path.realpath(source.root_path), os.path.realpath(target.root_path)
        with contextlib.suppress(OSError):
            if os.path.samefile(above, below):
                below = above
        if above == below:
            raise ConfigError(f"source and target of a copy are the same folder, {source.root_path!r}")
        if os.path.commonpath([above, below]) == above:
            raise ConfigError(
                f"the target {target.root_path!r} is inside of the source {source.root_path!r}; take another folder"
            )
    elif type(source) is type(target) and repr(source) == repr(target) and _is_named_by_its_repr(source):
        raise ConfigError(f"source and target of a copy are both {source!r}")


def _is_named_by_its_repr(connector: StorageConnector) -> bool:
    """Whether equal reprs mean the same place: so it is for ours that say ``Name(place)``; of others nothing is known."""
    return type(connector).__module__.startswith("data_stack.") and not repr(connector).startswith("<")


class _Unreadable(Exception):
    """The source could not give a resource; the others may be fine."""


class _CheckedReader(io.BufferedIOBase):
    """A resource of the source as it passes by; its last bytes are handed out only if the whole is what was promised.

    Thus a target, which publishes once it has read all, publishes nothing that is damaged, and no byte waits on a disk.
    """

    def __init__(self, resource: StreamedResource, wanted: Wanted, copy: _Copy) -> None:
        self._resource, self._wanted, self._copy = resource, wanted, copy
        self.digest = Digest()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            data = self._resource.read(size)
        except OSError as error:
            self._copy.refuse_source(error)
        self._copy.took(len(data))
        self.digest.update(data)
        promised = self._wanted
        is_end = not data and size != 0
        if self.digest.size > (promised.size or 0) or (is_end and self.digest.size != promised.size):
            self._copy.refuse(promised, "size", promised.size, self.digest.size)
        if self.digest.size == promised.size and self.digest.sha256 != (promised.sha256 or self.digest.sha256):
            self._copy.refuse(promised, "sha256", promised.sha256, self.digest.sha256)
        return data


class _Group:
    """A parcel on its way: how much of it is left, and what was made ready for it at the target."""

    def __init__(self, parcel: Parcel) -> None:
        self.parcel = parcel
        self.lock = threading.Lock()
        self.n_left = len(parcel.resources)
        self.has_fault = False
        self.is_leased = self.begun = False
        self.held = contextlib.ExitStack()


class _Copy:
    """One copy under way; the thread that finishes a parcel seals it."""

    def __init__(
        self,
        source: StorageConnector,
        target: StorageConnector,
        parcels: Sequence[Parcel],
        deep: bool,
        dry_run: bool,
        faults: list[CopyFault],
    ) -> None:
        self._source, self._target, self._deep, self._dry_run = source, target, deep, dry_run
        self._can_share = type(target).store_known is not StorageConnector.store_known
        self._groups = [_Group(parcel) for parcel in parcels]
        self._workers: Workers[tuple[_Group, Wanted | None]]
        self._lock = threading.Lock()
        #: Content that is on its way, by its digest.
        self._under_way: dict[str, threading.Event] = {}
        self.n_bytes = 0
        self.all_bytes = sum(wanted.size or 0 for group in self._groups for wanted in group.parcel.resources)
        self.done: list[Copied] = []
        self.complete: list[str] = []
        self.faults = faults

    def run(self, n_threads: int, progress: bool | None) -> None:
        """Do all of it, or raise what stopped it."""
        jobs = [(group, wanted) for group in self._groups for wanted in group.parcel.resources or (None,)]
        self._workers = Workers(jobs, lambda job: self._work(*job), n_threads)
        try:
            with byte_bar("copying", progress) as draw:
                self._workers.run(lambda: draw(self.n_bytes, self.all_bytes))
        finally:
            for group in self._groups:
                group.held.close()

    # ------------------------------------------------------------------ in the threads

    def _work(self, group: _Group, wanted: Wanted | None) -> None:
        if wanted is not None:
            self._bring(group, wanted)
        self._finish(group, wanted)

    def _bring(self, group: _Group, wanted: Wanted) -> None:
        """Bring a resource to the target, or note why not."""
        try:
            copied = self._brought(group, wanted)
        except (DatasetFileCorruptError, ResourceNotFoundError, StorageConflictError, _Unreadable) as error:
            group.has_fault = True
            with self._lock:
                self.faults.append(CopyFault(wanted.identifier, str(error)))
            return
        with self._lock:
            self.done.append(copied)

    def _brought(self, group: _Group, wanted: Wanted) -> Copied:
        wanted, size = self._completed(wanted)
        there = self._at_target(wanted.identifier)
        if there is not None and self._is_same(there, wanted):
            self._add_bytes(size)
            return Copied(wanted.identifier, size, "present")
        if self._dry_run:
            return Copied(wanted.identifier, size, "copied")
        self._begin(group)
        with self._alone_with(wanted.sha256):
            if wanted.sha256 is not None and self._target.store_known(wanted.identifier, size, wanted.sha256):
                self._check_arrived(wanted)
                self._add_bytes(size)
                return Copied(wanted.identifier, size, "shared")
            self._check_arrived(replace(wanted, sha256=self._send(wanted)))
        return Copied(wanted.identifier, size, "copied")

    def _completed(self, wanted: Wanted) -> tuple[Wanted, int]:
        """What is wanted, with what the source says of it, and its size; an error if that is something else."""
        try:
            info = self._source.stat(wanted.identifier)
        except StorageError as error:
            self.refuse_source(error)
        for algorithm, promised, found in (("size", wanted.size, info.size), ("sha256", wanted.sha256, info.sha256)):
            if None not in (promised, found) and promised != found:
                self.refuse(wanted, algorithm, promised, found)
        if wanted.size is None:
            with self._lock:
                self.all_bytes += info.size
        return Wanted(wanted.identifier, info.size, wanted.sha256 or info.sha256), info.size

    def _at_target(self, identifier: str) -> ResourceInfo | None:
        if not self._target.has_resource(identifier):
            return None
        try:
            return self._target.stat(identifier)
        except ResourceNotFoundError:  # removed in between
            return None

    def _is_same(self, there: ResourceInfo, wanted: Wanted) -> bool:
        """Whether the target has a resource already; read only where that is asked for, or a store remembers no digest."""
        if there.size != wanted.size:
            return False
        sha256 = wanted.sha256
        try:
            if sha256 is None:  # a file that somebody put into a folder: hashing it is less work than sending it
                sha256 = self._source.verify_resource(wanted.identifier).sha256
        except StorageError as error:
            self.refuse_source(error)
        if there.sha256 is not None and (there.sha256 != sha256 or not self._deep):
            return there.sha256 == sha256
        try:
            self._target.verify_resource(wanted.identifier, sha256)
        except (DatasetFileCorruptError, ResourceNotFoundError):
            return False
        return True

    # ------------------------------------------------------------------ sending

    def _send(self, wanted: Wanted) -> str:
        """Read a resource and store it at the target, if it is what it should be; its digest."""
        try:
            resource = self._source.get_resource(wanted.identifier)
        except StorageError as error:
            self.refuse_source(error)
        with resource:
            reader = _CheckedReader(resource, wanted, self)
            try:
                self._target.set_resource(wanted.identifier, StreamedResource(wanted.identifier, reader))
            finally:
                reader.digest.finish()
        return reader.digest.sha256

    def took(self, n_bytes: int) -> None:
        """Count bytes on their way."""
        self._workers.check()
        self._add_bytes(n_bytes)

    def refuse(self, wanted: Wanted, algorithm: str, promised: object, found: object) -> NoReturn:
        """What the source gives is not what was promised."""
        raise ChecksumMismatchError(wanted.identifier, repr(self._source), str(promised), str(found), algorithm)

    @staticmethod
    def refuse_source(error: OSError) -> NoReturn:
        if isinstance(error, StorageUnavailableError):
            raise error
        raise _Unreadable(str(error)) from error

    def _check_arrived(self, wanted: Wanted) -> None:
        """Hold what the target says of a resource against what was sent."""
        there = self._target.stat(wanted.identifier)
        for algorithm, sent, found in (("size", wanted.size, there.size), ("sha256", wanted.sha256, there.sha256)):
            if found not in (None, sent):
                raise ChecksumMismatchError(wanted.identifier, repr(self._target), str(sent), str(found), algorithm)

    @contextlib.contextmanager
    def _alone_with(self, sha256: str | None) -> Iterator[None]:
        """Let one thread at a time bring content of a digest, so that the next one finds it at the target."""
        if sha256 is None or not self._can_share:
            yield
            return
        while True:
            with self._lock:
                under_way = self._under_way.get(sha256)
                if under_way is None:
                    own = self._under_way[sha256] = threading.Event()
                    break
            while not under_way.wait(_TICK_SECONDS):
                self._workers.check()
        try:
            yield
        finally:
            with self._lock:
                del self._under_way[sha256]
            own.set()

    def _add_bytes(self, n_bytes: int) -> None:
        with self._lock:
            self.n_bytes += n_bytes

    # ------------------------------------------------------------------ parcels

    def _begin(self, group: _Group) -> None:
        """Before anything of a parcel is replaced: mark it as incomplete, and take an old seal away."""
        seal = group.parcel.seal
        with group.lock:
            if seal is None or group.begun:
                return
            if not group.is_leased:  # also by a thread that failed below: it is ours then, and no other process's
                group.is_leased = True
                if not group.held.enter_context(self._target.lease(seal.identifier)).acquire():
                    logger.warning("another process prepares %r in %r; copying beside it", group.parcel.name, self._target)
            self._store(seal.mark_identifier, seal.mark)
            if self._holds(seal.identifier, seal.data) is False:
                try:
                    self._target.delete_resource(seal.identifier)
                except UnsupportedStorageOperationError:
                    self._store(seal.identifier, b"{}\n")  # seals nothing
                except ResourceNotFoundError:
                    pass
            group.begun = True

    def _finish(self, group: _Group, wanted: Wanted | None) -> None:
        """Seal a parcel with its last resource, unless something of it is missing."""
        with group.lock:
            group.n_left -= wanted is not None
            if group.n_left or group.has_fault:
                return
            self._workers.check()
            seal = group.parcel.seal
            if seal is not None:
                is_there = self._holds(seal.identifier, seal.data)
                if not is_there and not self._dry_run:
                    self._store(seal.identifier, seal.data)
                    self._check_arrived(Wanted(seal.identifier, len(seal.data), _sha256(seal.data)))
                outcome: Outcome = "present" if is_there else "copied"
                with self._lock:
                    self.done.append(Copied(seal.identifier, len(seal.data), outcome))
                # That of an earlier copy too, which was killed between its last two writes.
                if group.begun or (not self._dry_run and self._holds(seal.mark_identifier, seal.mark)):
                    with contextlib.suppress(UnsupportedStorageOperationError, ReadOnlyStorageError, ResourceNotFoundError):
                        self._target.delete_resource(seal.mark_identifier)
            group.held.close()
        if seal is not None:
            with self._lock:
                self.complete.append(group.parcel.name)

    def _holds(self, identifier: str, data: bytes) -> bool | None:
        """Whether the target has exactly these bytes, those of a seal or mark; None: it has nothing of that name."""
        if not self._target.has_resource(identifier):
            return None
        try:
            with self._target.get_resource(identifier) as resource:
                return bytes(resource.read(_MOST_SEAL_BYTES)) == data
        except ResourceNotFoundError:
            return None
        except DatasetFileCorruptError:
            return False

    def _store(self, identifier: str, data: bytes) -> None:
        self._target.set_resource(identifier, StreamedResource(identifier, io.BytesIO(data)))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
