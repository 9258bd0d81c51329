"""Copies resources between stores: verified, in parallel, resumable."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DatasetFileCorruptError,
    IncompleteCopyError,
    ReadOnlyStorageError,
    ResourceNotFoundError,
    StorageConflictError,
    StorageUnavailableError,
    UnsupportedStorageOperationError,
)
from data_stack.io.integrity import Digest, Fault
from data_stack.io.job_threads import JobThreads
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector, info_of
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.writer import COPY_BYTES
from data_stack.util.logger import logger

Outcome = Literal["copied", "present"]


@dataclass(frozen=True, slots=True)
class Copied:
    """A resource that is in the target now (after a dry run: would be).

    Attributes:
        identifier: its name.
        size: length in bytes.
        outcome: ``"copied"``, or ``"present"`` if it was there already.
    """

    identifier: str
    size: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of a copy, or of a dry run.

    Attributes:
        source, target: the stores, without credentials.
        complete: names of the parcels (datasets) that are complete at the target, sorted.
        resources: resources at the target, sorted by identifier; seals (manifests) included.
        skipped: resources that are not copied on purpose, such as unfinished datasets.
        faults: resources that could not be copied; their parcels have no seal.
        seconds: duration.
        dry_run: whether nothing was stored.
    """

    source: str
    target: str
    complete: tuple[str, ...]
    resources: tuple[Copied, ...]
    skipped: tuple[Fault, ...]
    faults: tuple[Fault, ...]
    seconds: float
    dry_run: bool

    def count(self, outcome: str) -> int:
        """Number of resources with this outcome."""
        return sum(each.outcome == outcome for each in self.resources)

    def size(self, outcome: str) -> int:
        """Bytes of the resources with this outcome."""
        return sum(each.size for each in self.resources if each.outcome == outcome)


@dataclass(frozen=True, slots=True)
class CopyItem:
    """A resource to copy.

    Attributes:
        identifier: its name in both stores.
        size: expected length in bytes; None for that of the source.
        sha256: expected digest, 64 hex digits; None for that of the source.
    """

    identifier: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Resources that belong together, such as a dataset.

    Attributes:
        name: of the dataset; "" for loose resources.
        resources: resources to copy.
        seal: identifier and bytes of the manifest; None for loose resources. It is stored last, and deleted before anything of
            the parcel is replaced.
        mark: identifier and bytes of a mark of an incomplete parcel, which exists during the copy.
    """

    name: str
    resources: tuple[CopyItem, ...]
    seal: tuple[str, bytes] | None = None
    mark: tuple[str, bytes] = ("", b"")


def copy_groups(
    source: StorageConnector, target: StorageConnector, parcels: Sequence[CopyGroup], **how: Any
) -> CopyReport:
    """Copy parcels; resources that the target has already are skipped unread.

    A resource is published at the target only if it has the expected digest (of its parcel, or else of the source), and is then
    compared with the target's own digest. A damaged or missing resource does not stop the others, but its parcel gets no seal.
    After an interruption, the same copy skips the resources that are complete.

    Args:
        source: the store to read.
        target: the store to write, which :func:`check_apart` accepts; resources of the same names are replaced.
        parcels: no two with a common identifier.
        how: the options of :func:`~data_stack.stores.copies.copy_datasets`; ``skipped`` and ``faults`` are added to the report.

    Raises:
        IncompleteCopyError: something was not copied; see its ``report``.
        StorageError: a store failed. The same copy can be resumed.
    """
    report = _Copy(source, target, **how).run(parcels)
    if report.faults:
        raise IncompleteCopyError(report)
    return report


def check_apart(source: StorageConnector, target: StorageConnector) -> None:
    """Refuse to copy a store onto itself. An undetected case does nothing, as the target has all resources.

    Raises:
        ConfigError: both are the same, or the target lies inside of the source.
    """
    is_same = source is target
    if isinstance(source, FileStorageConnector) and isinstance(target, FileStorageConnector):
        above, below = os.path.realpath(source.root_path), os.path.realpath(target.root_path)
        is_same = os.path.commonpath([above, below]) == above
    elif type(source) is type(target) and type(source).__module__.startswith("data_stack."):
        is_same = is_same or (repr(source) == repr(target) and not repr(source).startswith("<"))
    if is_same:
        raise ConfigError(
            f"the target {target!r} is the source {source!r}, or inside of it; choose another store"
        )


@dataclass
class _Copy:
    """A running copy, parcel by parcel; threads compare and send the resources of one."""

    source: StorageConnector
    target: StorageConnector
    skipped: Sequence[Fault] = ()
    faults: Sequence[Fault] = ()
    n_threads: int = 4
    deep: bool = False
    dry_run: bool = False
    progress: bool | None = None
    done: list[Copied] = field(default_factory=list)
    complete: list[str] = field(default_factory=list)
    #: The resources of this parcel that the target lacks.
    lacking: list[CopyItem] = field(default_factory=list)
    n_bytes: int = 0
    all_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    workers: JobThreads[CopyItem] = field(init=False)
    found: list[Fault] = field(init=False)

    def run(self, parcels: Sequence[CopyGroup]) -> CopyReport:
        """Copy all parcels."""
        if self.n_threads < 1:
            raise ConfigError(f"a copy needs at least 1 thread, got {self.n_threads}")
        started, self.found = time.perf_counter(), list(self.faults)
        with byte_bar("copying", self.progress) as draw:
            for parcel in parcels:
                self._bring(parcel, lambda: draw(self.n_bytes, self.all_bytes))
        done = tuple(sorted(self.done, key=lambda each: each.identifier))
        faults = tuple(sorted(self.found, key=lambda each: each.identifier))
        seconds, complete, skipped = (
            time.perf_counter() - started,
            tuple(sorted(self.complete)),
            tuple(self.skipped),
        )
        return CopyReport(
            repr(self.source),
            repr(self.target),
            complete,
            done,
            skipped,
            faults,
            seconds,
            self.dry_run,
        )

    def _bring(self, parcel: CopyGroup, look: Callable[[], None]) -> None:
        """Copy the missing resources of a parcel, then its seal if all succeeded."""
        n_faults, self.lacking = len(self.found), []
        self._in_threads(parcel.resources, self._compare, look)
        with contextlib.ExitStack() as held:
            if self.dry_run:
                self.done += [
                    Copied(wanted.identifier, wanted.size or 0, "copied") for wanted in self.lacking
                ]
            elif self.lacking:
                if parcel.seal is not None:
                    if not held.enter_context(self.target.lease(parcel.seal[0])).acquire():
                        logger.warning(
                            "another process prepares %r in %r; copying beside it",
                            parcel.name,
                            self.target,
                        )
                    self._break(*parcel.seal, parcel.mark)
                self._in_threads(self.lacking, self._send, look)
            if parcel.seal is not None and len(self.found) == n_faults:
                self._seal(*parcel.seal, parcel.mark)
                self.complete.append(parcel.name)

    def _in_threads(
        self,
        resources: Sequence[CopyItem],
        work: Callable[[CopyItem], None],
        look: Callable[[], None],
    ) -> None:
        """Call ``work`` for resources, and collect faults."""

        def attempt(wanted: CopyItem) -> None:
            try:
                work(wanted)
            except (
                DatasetFileCorruptError,
                ResourceNotFoundError,
                StorageConflictError,
                _UnreadableError,
            ) as error:
                self.found.append(Fault(wanted.identifier, str(error)))

        if resources:
            self.workers = JobThreads(resources, attempt, self.n_threads)
            self.workers.run(look)

    # ------------------------------------------------------------------ in the threads

    def _compare(self, wanted: CopyItem) -> None:
        """Find out whether the target has a resource."""
        with _of_source():
            info = self.source.stat(wanted.identifier)
        _check_same(wanted, self.source, info)
        wanted = CopyItem(wanted.identifier, info.size, wanted.sha256 or info.sha256)
        if self._is_there(wanted):
            self.done.append(Copied(wanted.identifier, info.size, "present"))
        else:
            with self.lock:
                self.lacking.append(wanted)
                self.all_bytes += info.size

    def _is_there(self, wanted: CopyItem) -> bool:
        """Whether the target has a resource; reads it only for a deep copy, or where a store knows no digest."""
        sha256 = wanted.sha256
        try:
            there = info_of(self.target, wanted.identifier)
            if there is None or there.size != wanted.size:
                return False
            if sha256 is None:  # a file edited by hand: hashing it is less work than sending it
                with _of_source():
                    sha256 = self.source.verify_resource(wanted.identifier).sha256
            if there.sha256 is not None and (there.sha256 != sha256 or not self.deep):
                return there.sha256 == sha256
            self.target.verify_resource(wanted.identifier, sha256)
        except (DatasetFileCorruptError, ResourceNotFoundError):
            return False
        return True

    def _send(self, wanted: CopyItem) -> None:
        """Copy a resource, and verify it."""
        digest = Digest()
        self.target.set_resource(wanted.identifier, self._passing(wanted, digest))
        sent = CopyItem(wanted.identifier, digest.size, digest.sha256)
        _check_same(sent, self.target, self.target.stat(wanted.identifier))
        self.done.append(Copied(wanted.identifier, digest.size, "copied"))

    def _passing(self, wanted: CopyItem, digest: Digest) -> Iterator[bytes]:
        """The bytes of a resource of the source; raises at the end if their digest is wrong.

        A target publishes a resource once it has read all of it, so it publishes no damaged one.
        """
        with _of_source():
            resource = self.source.get_resource(wanted.identifier)
        with resource:
            while True:
                with _of_source():
                    data = resource.read(COPY_BYTES)
                if not data:
                    break
                self.workers.check()
                digest.update(data)
                with self.lock:
                    self.n_bytes += len(data)
                yield data
        _check_same(wanted, self.source, digest)

    # ------------------------------------------------------------------ seals

    def _break(self, identifier: str, data: bytes, mark: tuple[str, bytes]) -> None:
        """Mark a parcel as incomplete and delete its old seal, before anything of it is replaced."""
        self.target.set_resource(*mark)
        if self._holds(identifier, data) is False:
            try:
                self.target.delete_resource(identifier)
            except UnsupportedStorageOperationError:
                self.target.set_resource(identifier, b"{}\n")  # an invalid seal
            except ResourceNotFoundError:
                pass

    def _seal(self, identifier: str, data: bytes, mark: tuple[str, bytes]) -> None:
        is_there = self._holds(identifier, data)
        self.done.append(Copied(identifier, len(data), "present" if is_there else "copied"))
        if self.dry_run:
            return
        if not is_there:
            self.target.set_resource(identifier, data)
            sent = CopyItem(identifier, len(data), hashlib.sha256(data).hexdigest())
            _check_same(sent, self.target, self.target.stat(identifier))
        # Also the mark of an earlier copy that was killed between its last two writes.
        if self._holds(*mark):
            with contextlib.suppress(
                UnsupportedStorageOperationError, ReadOnlyStorageError, ResourceNotFoundError
            ):
                self.target.delete_resource(mark[0])

    def _holds(self, identifier: str, data: bytes) -> bool | None:
        """Whether the target has exactly these bytes of a seal or mark; None: it has no such resource."""
        try:
            if not self.target.has_resource(identifier):
                return None
            with self.target.get_resource(identifier) as resource:
                return bytes(resource.read(len(data) + 1)) == data
        except ResourceNotFoundError:
            return None
        except DatasetFileCorruptError:
            return False


def _check_same(wanted: CopyItem, store: StorageConnector, found: ResourceInfo | Digest) -> None:
    """Compare known sizes and digests."""
    for algorithm in ("size", "sha256"):
        expected, actual = getattr(wanted, algorithm), getattr(found, algorithm)
        if None not in (expected, actual) and expected != actual:
            raise ChecksumMismatchError(
                wanted.identifier, repr(store), str(expected), str(actual), algorithm
            )


class _UnreadableError(Exception):
    """The source could not read a resource; others may be fine."""


@contextlib.contextmanager
def _of_source() -> Iterator[None]:
    """Mark errors of the source: an unreadable resource does not stop the others, an unavailable store does."""
    try:
        yield
    except StorageUnavailableError:
        raise
    except OSError as error:
        raise _UnreadableError(str(error)) from error
