"""Copies groups of resources from one store to another."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

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
from data_stack.io.copying.group import CopyGroup, CopyItem, SmallFile
from data_stack.io.copying.report import Copied, CopyReport, Outcome
from data_stack.io.integrity import Digest, Fault
from data_stack.io.job_threads import JobThreads
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector, info_of
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.storable import COPY_BYTES
from data_stack.util.logger import logger

#: What replaces a manifest in a store that cannot delete: no program takes it for a manifest.
_INVALID_MANIFEST = b"{}\n"

_Comparison = Literal["missing", "equals", "differs"]


def copy_groups(
    source: StorageConnector,
    target: StorageConnector,
    groups: Sequence[CopyGroup],
    *,
    n_threads: int = 4,
    deep: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
    skipped: Sequence[Fault] = (),
    faults: Sequence[Fault] = (),
) -> CopyReport:
    """Copy groups of resources. Resources that the target has already are skipped unread.

    A resource is published at the target only if its bytes have the expected digest. The group
    states this digest, or else the source. Then the target is asked for the digest that it has
    recorded. If a resource is damaged or missing, the other resources are still copied, but its
    group gets no manifest. After an interruption, the same copy skips what is complete.

    Args:
        source: the store to read.
        target: the store to write, which :func:`check_apart` accepts; resources of the same names
            are replaced.
        groups: what to copy; no two groups have an identifier in common.
        n_threads: how many resources are copied at a time.
        deep: whether to read what the target has already, and to replace what is damaged there.
        dry_run: whether to only report what would be copied.
        progress: whether to show a progress bar; None: on a terminal and in a notebook.
        skipped: what the caller does not copy on purpose, for the report.
        faults: what the caller could not copy, for the report.

    Raises:
        IncompleteCopyError: something was not copied; see its ``report``.
        StorageError: a store failed. The same copy can be resumed.
        ConfigError: ``n_threads`` is less than 1.
    """
    if n_threads < 1:
        raise ConfigError(f"a copy needs at least 1 thread, got {n_threads}")

    started_at = time.perf_counter()
    copier = _Copier(source, target, n_threads=n_threads, deep=deep, dry_run=dry_run)
    copier.faults.extend(faults)
    with byte_bar("copying", progress) as draw:

        def show_progress() -> None:
            draw(copier.n_bytes_sent, copier.n_bytes_to_send)

        for group in groups:
            copier.copy_group(group, show_progress)

    report = CopyReport(
        source=repr(source),
        target=repr(target),
        complete=tuple(sorted(copier.complete)),
        resources=tuple(sorted(copier.copied, key=lambda copied: copied.identifier)),
        skipped=tuple(skipped),
        faults=tuple(sorted(copier.faults, key=lambda fault: fault.identifier)),
        seconds=time.perf_counter() - started_at,
        dry_run=dry_run,
    )
    if report.faults:
        raise IncompleteCopyError(report)
    return report


def check_apart(source: StorageConnector, target: StorageConnector) -> None:
    """Refuse to copy a store onto itself, or into itself.

    Stores behind different connectors or URLs may still be the same. Copying one onto itself does
    nothing, as the target has all resources.

    Raises:
        ConfigError: both are the same store, or the target lies inside of the source.
    """
    if _is_inside(target, source):
        raise ConfigError(
            f"the target {target!r} is the source {source!r}, or inside of it; choose another store"
        )


def _is_inside(target: StorageConnector, source: StorageConnector) -> bool:
    """Return whether the target is known to be the store of the source, or a folder in it."""
    if isinstance(source, FileStorageConnector) and isinstance(target, FileStorageConnector):
        source_path = os.path.realpath(source.root_path)
        target_path = os.path.realpath(target.root_path)
        return os.path.commonpath([source_path, target_path]) == source_path
    if source is target:
        return True
    # The connectors of this package show their place in their repr, except those in memory, whose
    # repr is <…>.
    is_ours = type(source).__module__.startswith("data_stack.")
    shows_place = not repr(source).startswith("<")
    if type(source) is type(target) and is_ours and shows_place:
        return repr(source) == repr(target)
    return False


class _Copier:
    """Copies groups one after the other; threads copy the items of a group.

    Attributes:
        copied: the resources that are at the target now.
        complete: the names of the groups that are complete at the target now.
        faults: what could not be copied.
        n_bytes_to_send: the length of all resources that were found missing at the target so far.
        n_bytes_sent: how many of these bytes were sent.
    """

    copied: list[Copied]
    complete: list[str]
    faults: list[Fault]
    n_bytes_to_send: int
    n_bytes_sent: int
    _source: StorageConnector
    _target: StorageConnector
    _n_threads: int
    _deep: bool
    _dry_run: bool
    #: Guards the two counts of bytes, and the missing items of a group.
    _lock: threading.Lock
    #: The threads that work on items now, by which a long read notices an interruption; None
    #: between groups.
    _threads: JobThreads[CopyItem] | None

    def __init__(
        self,
        source: StorageConnector,
        target: StorageConnector,
        *,
        n_threads: int,
        deep: bool,
        dry_run: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._n_threads = n_threads
        self._deep = deep
        self._dry_run = dry_run
        self._lock = threading.Lock()
        self._threads = None
        self.copied = []
        self.complete = []
        self.faults = []
        self.n_bytes_to_send = 0
        self.n_bytes_sent = 0

    def copy_group(self, group: CopyGroup, tick: Callable[[], None]) -> None:
        """Copy the items of a group that the target lacks, and its manifest if all succeeded.

        Args:
            group: the group.
            tick: called regularly while threads work.
        """
        n_faults_before = len(self.faults)
        missing_items = self._find_missing_items(group, tick)
        with contextlib.ExitStack() as exits:
            if self._dry_run:
                for item in missing_items:
                    self.copied.append(Copied(item.identifier, item.size or 0, "copied"))
            elif missing_items:
                if group.manifest is not None:
                    lease = exits.enter_context(self._target.lease(group.manifest.identifier))
                    self._begin_group(group, lease)
                self._run_threads(missing_items, self._send, tick)

            has_failed = len(self.faults) > n_faults_before
            if group.manifest is not None and not has_failed:
                self._store_manifest(group.manifest, group.incomplete_marker)
                self.complete.append(group.name)

    def _run_threads(
        self, items: Sequence[CopyItem], work: Callable[[CopyItem], None], tick: Callable[[], None]
    ) -> None:
        """Call a function for each item in threads, and collect the faults of items.

        Args:
            items: the items.
            work: the function.
            tick: called regularly while threads work.
        """

        def work_or_note_fault(item: CopyItem) -> None:
            try:
                work(item)
            except (
                DatasetFileCorruptError,
                ResourceNotFoundError,
                StorageConflictError,
                _UnreadableSourceError,
            ) as error:
                self.faults.append(Fault(item.identifier, str(error)))

        if items:
            self._threads = JobThreads(items, work_or_note_fault, self._n_threads)
            self._threads.run(tick)
            self._threads = None

    # ------------------------------------------------------------------ what is missing

    def _find_missing_items(self, group: CopyGroup, tick: Callable[[], None]) -> list[CopyItem]:
        """Return the items of a group that the target lacks, with their sizes and known digests."""
        missing_items = list[CopyItem]()

        def look_up(item: CopyItem) -> None:
            with _reading_source():
                info = self._source.stat(item.identifier)
            _check_same(item, info, self._source)
            described_item = CopyItem(item.identifier, info.size, item.sha256 or info.sha256)
            if self._is_at_target(described_item):
                self.copied.append(Copied(item.identifier, info.size, "present"))
                return
            with self._lock:
                missing_items.append(described_item)
                self.n_bytes_to_send += info.size

        self._run_threads(group.items, look_up, tick)
        return missing_items

    def _is_at_target(self, item: CopyItem) -> bool:
        """Return whether the target has an item.

        The target is read only for a deep copy, or if it does not know the digest.
        """
        try:
            info = info_of(self._target, item.identifier)
            if info is None or info.size != item.size:
                return False

            expected_sha256 = item.sha256
            if expected_sha256 is None:
                # A file that was edited by hand has no recorded digest. Hashing it is less work
                # than sending it.
                with _reading_source():
                    expected_sha256 = self._source.verify_resource(item.identifier).sha256

            if info.sha256 is not None:
                if info.sha256 != expected_sha256:
                    return False
                if not self._deep:
                    return True
            self._target.verify_resource(item.identifier, expected_sha256)
        except (DatasetFileCorruptError, ResourceNotFoundError):
            return False
        return True

    # ------------------------------------------------------------------ sending

    def _send(self, item: CopyItem) -> None:
        """Copy an item, and compare its digest with the one that the target has recorded."""
        digest = Digest()
        self._target.set_resource(item.identifier, self._read_and_verify(item, digest))
        sent_item = CopyItem(item.identifier, digest.size, digest.sha256)
        _check_same(sent_item, self._target.stat(item.identifier), self._target)
        self.copied.append(Copied(item.identifier, digest.size, "copied"))

    def _read_and_verify(self, item: CopyItem, digest: Digest) -> Iterator[bytes]:
        """Yield the bytes of an item. Raise at their end if their digest is wrong.

        A target publishes a resource after it has read all bytes. So this error keeps it from
        publishing a damaged one.

        Args:
            item: the item.
            digest: is updated with the bytes.

        Raises:
            ChecksumMismatchError: the source has other bytes than expected.
        """
        with _reading_source():
            resource = self._source.get_resource(item.identifier)
        with resource:
            while True:
                with _reading_source():
                    data = resource.read(COPY_BYTES)
                if not data:
                    break
                if self._threads is not None:
                    self._threads.check()
                digest.update(data)
                with self._lock:
                    self.n_bytes_sent += len(data)
                yield data
        _check_same(item, digest, self._source)

    # ------------------------------------------------------------------ manifests

    def _begin_group(self, group: CopyGroup, lease: Lease) -> None:
        """Make a group incomplete at the target, before anything of it is replaced."""
        if not lease.acquire():
            logger.warning(
                "another process prepares %r in %r; copying beside it", group.name, self._target
            )
        if group.incomplete_marker is not None:
            marker = group.incomplete_marker
            self._target.set_resource(marker.identifier, marker.data)

        # If the target has the same manifest, it may stay: the marker says that the group is
        # incomplete.
        manifest = group.manifest
        if manifest is None or self._compare_with_target(manifest) != "differs":
            return
        try:
            self._target.delete_resource(manifest.identifier)
        except UnsupportedStorageOperationError:
            self._target.set_resource(manifest.identifier, _INVALID_MANIFEST)
        except ResourceNotFoundError:
            pass  # deleted by another process

    def _store_manifest(self, manifest: SmallFile, incomplete_marker: SmallFile | None) -> None:
        """Make a group complete at the target, whose items are all there."""
        is_there = self._compare_with_target(manifest) == "equals"
        outcome: Outcome = "copied"
        if is_there:
            outcome = "present"
        self.copied.append(Copied(manifest.identifier, len(manifest.data), outcome))
        if self._dry_run:
            return

        if not is_there:
            self._target.set_resource(manifest.identifier, manifest.data)
            sha256 = hashlib.sha256(manifest.data).hexdigest()
            sent_item = CopyItem(manifest.identifier, len(manifest.data), sha256)
            _check_same(sent_item, self._target.stat(manifest.identifier), self._target)

        if incomplete_marker is None:
            return
        # The marker may also be that of an earlier copy, which was killed before this step.
        if self._compare_with_target(incomplete_marker) == "equals":
            with contextlib.suppress(
                UnsupportedStorageOperationError, ReadOnlyStorageError, ResourceNotFoundError
            ):
                self._target.delete_resource(incomplete_marker.identifier)

    def _compare_with_target(self, file: SmallFile) -> _Comparison:
        """Compare a file with the resource of the same name at the target.

        Returns:
            ``"missing"`` if there is no such resource, ``"equals"`` if it has the same bytes,
            ``"differs"`` if it has others or is damaged.
        """
        try:
            if not self._target.has_resource(file.identifier):
                return "missing"
            with self._target.get_resource(file.identifier) as resource:
                stored_data = bytes(resource.read(len(file.data) + 1))
        except ResourceNotFoundError:
            return "missing"
        except DatasetFileCorruptError:
            return "differs"
        if stored_data == file.data:
            return "equals"
        return "differs"


def _check_same(expected: CopyItem, actual: ResourceInfo | Digest, store: StorageConnector) -> None:
    """Compare the size and the digest of a resource with the expected ones, where both are known.

    Raises:
        ChecksumMismatchError: they differ.
    """
    name = expected.identifier
    if expected.size is not None and expected.size != actual.size:
        raise ChecksumMismatchError(name, repr(store), str(expected.size), str(actual.size), "size")
    if expected.sha256 is None or actual.sha256 is None:
        return
    if expected.sha256 != actual.sha256:
        raise ChecksumMismatchError(name, repr(store), expected.sha256, actual.sha256, "sha256")


class _UnreadableSourceError(Exception):
    """The source could not read a resource; it may read others."""


@contextlib.contextmanager
def _reading_source() -> Iterator[None]:
    """Tell errors of the source from those of the target.

    A resource that the source cannot read does not stop the others. A source that is unavailable
    does, and so does each error of the target.
    """
    try:
        yield
    except StorageUnavailableError:
        raise
    except OSError as error:
        raise _UnreadableSourceError(str(error)) from error
