"""Verifies stores: reads all resources, and compares them with their digests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.factories.resource_names import MANIFEST
from data_stack.io.integrity import Fault
from data_stack.io.job_threads import JobThreads
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.cached.connector import uncached
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector, check_there
from data_stack.stores.inventory import ExpectedResource, take_inventory


@dataclass(frozen=True, slots=True)
class StorageVerification:
    """The result of :func:`verify_storage`.

    Attributes:
        storage: the store, without credentials.
        state: ``"ok"`` or ``"faulty"``.
        n_resources: resources that were read.
        n_bytes: their bytes.
        n_without_digest: resources without a digest to compare with.
        faults: damaged and missing resources, sorted.
        seconds: duration.
    """

    storage: str
    state: str
    n_resources: int
    n_bytes: int
    n_without_digest: int
    faults: tuple[Fault, ...]
    seconds: float


def verify_storage(
    storage: Storage | None = None,
    names: Sequence[str] = (),
    *,
    n_threads: int = 4,
    progress: bool | None = None,
) -> StorageVerification:
    """Read all resources, and compare them with the digests of the store and of the manifests.

    A fault does not stop it.

    Args:
        storage: a connector, URL or path; None for the default store. A cache before a store is
            bypassed.
        names: datasets, or versions of them; empty for the whole store.
        n_threads: resources to read at a time.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        DatasetNotFoundError: one of ``names`` is not stored.
        StorageUnavailableError: the store does not answer.
        StorageError: the folder of the store does not exist.
    """
    started_at = time.perf_counter()
    connector = as_storage_connector(storage)
    # The default store is made when it is first used.
    check_there(connector, may_be_new=storage is None)
    # What a cache has says nothing about the store.
    connector = uncached(connector)
    inventory = take_inventory(connector, names, must_exist=True)
    expected = inventory.resources()

    verification = _Verification(connector)
    for folder, version in inventory.versions.items():
        is_being_prepared = version.is_begun
        if version.problem is not None and not is_being_prepared:
            manifest = f"{folder}/{MANIFEST}"
            verification.faults.append(Fault(manifest, version.problem))
            expected.pop(manifest, None)

    n_bytes_expected = sum(resource.size or 0 for resource in expected.values())
    threads = JobThreads(expected.values(), verification.verify, n_threads)
    with byte_bar("verifying", progress) as draw:
        threads.run(lambda: draw(verification.n_bytes, n_bytes_expected))

    n_without_digest = 0
    for info in verification.infos:
        if info.sha256 is None and expected[info.identifier].sha256 is None:
            n_without_digest += 1
    faults = sorted(verification.faults, key=lambda fault: fault.identifier)
    state = "ok"
    if faults:
        state = "faulty"
    return StorageVerification(
        storage=repr(connector),
        state=state,
        n_resources=len(verification.infos),
        n_bytes=verification.n_bytes,
        n_without_digest=n_without_digest,
        faults=tuple(faults),
        seconds=time.perf_counter() - started_at,
    )


class _Verification:
    """A running verification; several threads verify resources at a time.

    Args:
        connector: the store.

    Attributes:
        infos: what the store knows of each resource that it has.
        faults: what was wrong.
    """

    infos: list[ResourceInfo]
    faults: list[Fault]

    def __init__(self, connector: StorageConnector) -> None:
        self._connector = connector
        self.infos = []
        self.faults = []

    @property
    def n_bytes(self) -> int:
        """The bytes of the resources so far."""
        # A copy, as other threads append to the list.
        return sum(info.size for info in list(self.infos))

    def verify(self, expected: ExpectedResource) -> None:
        """Verify a resource.

        Raises:
            StorageUnavailableError: the store does not answer.
        """
        try:
            self._compare(expected)
        except StorageUnavailableError:
            raise
        except ResourceNotFoundError as error:
            # A resource that no manifest lists was deleted in between.
            if expected.is_prepared:
                self.faults.append(Fault(expected.identifier, str(error)))
        except (DatasetFileCorruptError, StorageError) as error:
            self.faults.append(Fault(expected.identifier, str(error)))

    def _compare(self, expected: ExpectedResource) -> None:
        info = self._connector.stat(expected.identifier)
        self.infos.append(info)
        if expected.size is not None and expected.size != info.size:
            problem = (
                f"resource {info.identifier!r} has {info.size:,} bytes, "
                f"the manifest lists {expected.size:,}"
            )
            self.faults.append(Fault(info.identifier, problem))
        else:
            self._connector.verify_resource(expected.identifier, expected.sha256)
