"""Holds what a store has against digests: datasets against their manifests, or all of it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_stack.dataset.declarative import DatasetFactory, stored_folder
from data_stack.dataset.manifest import Manifest
from data_stack.dataset.resource_names import MANIFEST
from data_stack.dataset.stored import Finding, StoredResources
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    PluginError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.parallel import Workers
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.repository.default_storage import Storage, check_there, existing_storage
from data_stack.repository.inventory import ExpectedResource, StoredVersion, take_inventory
from data_stack.repository.repository import default_repository

__all__ = ["DatasetVerification", "Fault", "StorageVerification", "verify_datasets", "verify_storage"]


@dataclass(frozen=True, slots=True)
class DatasetVerification:
    """A version of a dataset, held against its manifest.

    Attributes:
        name: of the dataset.
        version: None where neither folder nor manifest tells it.
        state: ``"ok"`` or ``"faulty"``.
        n_resources: how many the manifest lists.
        size: their bytes.
        findings: what is not as it should be, or worth knowing.
    """

    name: str
    version: str | None
    state: str
    n_resources: int
    size: int
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, name: str, version: str | None, manifest: Manifest | None, findings: Sequence[Finding]) -> DatasetVerification:
        """Sum up what was found."""
        state = "faulty" if any(finding.is_fault for finding in findings) else "ok"
        n_resources, size = (0, 0) if manifest is None else (len(manifest.prepared), manifest.size)
        return cls(name, version, state, n_resources, size, tuple(findings))


@dataclass(frozen=True, slots=True)
class Fault:
    """A resource that is not what it should be.

    Attributes:
        identifier: of the resource.
        problem: what is wrong, in words.
    """

    identifier: str
    problem: str


@dataclass(frozen=True, slots=True)
class StorageVerification:
    """What was found by reading a store.

    Attributes:
        storage: the store, without credentials.
        state: ``"ok"`` or ``"faulty"``.
        sample: the share of the resources that was read; None: all.
        n_resources: how many were read.
        n_bytes: of these.
        n_without_digest: resources that could be compared with nothing.
        faults: damaged and missing resources, sorted.
        seconds: how long it took.
    """

    storage: str
    state: str
    sample: float | None
    n_resources: int
    n_bytes: int
    n_without_digest: int
    faults: tuple[Fault, ...]
    seconds: float


# ---------------------------------------------------------------------- datasets, by their manifests


def verify_datasets(names: Sequence[str] = (), storage: Storage | None = None) -> Iterator[DatasetVerification]:
    """Read all that is stored of datasets and say what is wrong with it, version by version.

    The plugin, if it is installed and works, knows whether this is still the dataset that it means; of versions without plugin
    the manifest says what the bytes should be.

    Args:
        names: of datasets, or of versions as ``"digits/1.0.0"``; none: all that are prepared.
        storage: a connector, URL or path; None for the default store.

    Returns:
        One at a time, as it is read.

    Raises:
        DatasetNotFoundError: no dataset has that name, and nothing is stored of it. PluginError: its plugin is broken, likewise.
        ConfigError: it has no manifest, and is written for the original DataStack.
    """
    connector = existing_storage(storage)
    for name in names or take_inventory(connector).prepared_versions:
        yield from _verified(name, connector)


def _verified(name: str, connector: StorageConnector) -> Iterator[DatasetVerification]:
    plain_name, _, version = name.partition("/")
    stored = take_inventory(connector, [name.rpartition(":")[2]])  # without the distribution
    found = [each for each in stored.versions.values() if each.data is not None and not each.is_taken_away]
    note, folder = "", None
    try:
        made = default_repository().get_factory(plain_name, connector)
    except (DatasetNotFoundError, PluginError) as error:
        if not found:
            raise
        factory, note = None, str(error)
    else:
        factory = made if isinstance(made, DatasetFactory) else None
        note = f"{name} is a legacy factory; its manifest was checked" if factory is None else ""
        if factory is None and not found:
            raise ConfigError(f"dataset {name!r} is a legacy factory and has no manifest to verify it by")
    if factory is not None and version in ("", factory.card.version):
        folder = stored_folder(factory)
        if not found or folder in {each.folder for each in found}:
            yield DatasetVerification.of(factory.card.name, factory.card.version, factory.manifest(), factory.verify())
    elif version and not found:
        raise DatasetNotFoundError(f"no version {version!r} of dataset {plain_name!r} is in {connector!r}")
    for each in found:
        if each.folder != folder:
            notes = [Finding(f"{each.folder}/{MANIFEST}", note, is_fault=False)] if note else []
            findings = [*notes, *_held_against_manifest(each, connector)]
            yield DatasetVerification.of(each.name, each.version, each.manifest, findings)


def _held_against_manifest(version: StoredVersion, connector: StorageConnector) -> list[Finding]:
    if version.manifest is None:
        return [Finding(f"{version.folder}/{MANIFEST}", "the manifest is damaged; prepare the dataset again")]
    return StoredResources(connector, version.folder).verify(version.manifest, deep=True)


# ---------------------------------------------------------------------- whole stores


def verify_storage(
    storage: Storage | None = None,
    names: Sequence[str] = (),
    *,
    sample: float | None = None,
    n_threads: int = 4,
    progress: bool | None = None,
) -> StorageVerification:
    """Read what is stored, and hold it against the digests of its store and against the manifest of its dataset.

    A fault does not end it.

    Args:
        storage: a connector, URL or path; None for the default store. Of one with a cache before it, the store behind is read.
        names: datasets, or versions of them; none: all that is stored.
        sample: the share of the resources to read, drawn at random, in (0, 1], but one at least; None: all of them.
        n_threads: resources that are read at a time.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        DatasetNotFoundError: nothing is stored of one of ``names``.
        StorageUnavailableError: the store does not answer. StorageError: there is no such folder.
    """
    started = time.perf_counter()
    connector = existing_storage(storage)
    check_there(connector, may_be_new=storage is None)
    while isinstance(connector, CachedStorageConnector):  # what is held there says nothing of what is stored
        connector = connector.remote
    inventory = take_inventory(connector, names, must_exist=True)
    expected, faults = inventory.resources(), list[Fault]()
    for folder, version in inventory.versions.items():
        if version.problem is not None and not version.is_begun:  # else it is being prepared
            faults.append(Fault(f"{folder}/{MANIFEST}", version.problem))
            expected.pop(f"{folder}/{MANIFEST}", None)
    chosen = list(expected.values())
    if sample is not None:
        chosen = random.sample(chosen, min(len(chosen), math.ceil(sample * len(chosen))))
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
        sample=sample,
        n_resources=len(infos),
        n_bytes=sum(info.size for info in infos),
        n_without_digest=sum(info.sha256 is None and expected[info.identifier].sha256 is None for info in infos),
        faults=tuple(sorted(faults, key=lambda fault: fault.identifier)),
        seconds=round(time.perf_counter() - started, 6),
    )


def _fault_of(connector: StorageConnector, expected: ExpectedResource, infos: list[ResourceInfo]) -> Fault | None:
    """What is wrong with a resource; what its store says of it before it is read is added to ``infos``."""
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
