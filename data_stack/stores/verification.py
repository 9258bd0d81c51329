"""Verifies a store: reads its resources and compares them with their digests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError, StorageError, StorageUnavailableError
from data_stack.factories.manifest import MANIFEST
from data_stack.io.parallel import Workers
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.cached import uncached
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.repository.default_storage import Storage, check_there, existing_storage
from data_stack.stores.inventory import ExpectedResource, take_inventory


@dataclass(frozen=True, slots=True)
class Fault:
    """A resource that is damaged or missing.

    Attributes:
        identifier: of the resource.
        problem: describes the fault.
    """

    identifier: str
    problem: str


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
    """Read all resources, and compare them with the digests of the store and of the manifests. A fault does not stop it.

    Args:
        storage: a connector, URL or path; None for the default store. A cache before a store is bypassed.
        names: datasets, or versions of them; empty for the whole store.
        n_threads: resources to read at a time.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        DatasetNotFoundError: one of ``names`` is not stored.
        StorageUnavailableError: the store does not answer. StorageError: the folder does not exist.
    """
    started = time.perf_counter()
    connector = existing_storage(storage)
    check_there(connector, may_be_new=storage is None)
    connector = uncached(connector)  # the cache says nothing about the store
    inventory = take_inventory(connector, names, must_exist=True)
    expected, faults = inventory.resources(), list[Fault]()
    for folder, version in inventory.versions.items():
        if version.problem is not None and not version.is_begun:  # else it is being prepared
            faults.append(Fault(f"{folder}/{MANIFEST}", version.problem))
            expected.pop(f"{folder}/{MANIFEST}", None)
    chosen = list(expected.values())
    infos = list[ResourceInfo]()

    def check(each: ExpectedResource) -> None:
        fault = _fault_of(connector, each, infos)
        if fault is not None:
            faults.append(fault)

    with byte_bar("verifying", progress) as draw:
        all_bytes = sum(each.size or 0 for each in chosen)
        Workers(chosen, check, n_threads).run(lambda: draw(sum(info.size for info in list(infos)), all_bytes))
    return StorageVerification(
        storage=repr(connector),
        state="faulty" if faults else "ok",
        n_resources=len(infos),
        n_bytes=sum(info.size for info in infos),
        n_without_digest=sum(info.sha256 is None and expected[info.identifier].sha256 is None for info in infos),
        faults=tuple(sorted(faults, key=lambda fault: fault.identifier)),
        seconds=round(time.perf_counter() - started, 6),
    )


def _fault_of(connector: StorageConnector, expected: ExpectedResource, infos: list[ResourceInfo]) -> Fault | None:
    """The fault of a resource, if any; its size and digest in the store are added to ``infos``."""
    try:
        info = connector.stat(expected.identifier)
        infos.append(info)
        if expected.size not in (None, info.size):
            problem = f"resource {info.identifier!r} has {info.size:,} bytes, the manifest lists {expected.size:,}"
            return Fault(info.identifier, problem)
        connector.verify_resource(expected.identifier, expected.sha256)
    except StorageUnavailableError:
        raise
    except ResourceNotFoundError as error:
        return Fault(expected.identifier, str(error)) if expected.is_prepared else None  # else it was deleted meanwhile
    except (DatasetFileCorruptError, StorageError) as error:
        return Fault(expected.identifier, str(error))
    return None
