"""Holds what a store has against digests: datasets against their manifests, or all of it block by block."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from data_stack.dataset.declarative import DatasetFactory, stored_folder
from data_stack.dataset.manifest import Manifest
from data_stack.dataset.resource_names import MANIFEST
from data_stack.dataset.stored import Finding, StoredResources
from data_stack.exception import (
    ConfigError,
    DamagedBlockError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    PluginError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, Digest, differing_blocks, digests_of_blocks
from data_stack.io.parallel import Workers
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector, StoreFinding
from data_stack.repository.default_storage import Storage, existing_storage
from data_stack.repository.inventory import ExpectedResource, StoredVersion, take_inventory
from data_stack.repository.repository import default_repository

if TYPE_CHECKING:
    from data_stack.io.resources import StreamedResource

__all__ = ["DatasetVerification", "Fault", "StorageVerification", "verify_datasets", "verify_storage"]

#: Samples are drawn of ranges of this size.
_RANGE_BYTES = 16 * BLOCK_BYTES
_STEP_BYTES = 4 * _RANGE_BYTES
#: A disk that is gone needs no list of all its blocks.
_MOST_FAULTS = 1000


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
        block: number of the damaged block; None: not one of them, or it is not known which.
        problem: what is wrong, in words.
    """

    identifier: str
    block: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class StorageVerification:
    """What was found by reading a store.

    Attributes:
        storage: the store, without credentials.
        state: ``"ok"`` or ``"faulty"``.
        sample: the share of the blocks that was read; None: all.
        seed: of the sample; None: all was read.
        n_resources: how many were looked at.
        n_ranges: how many blocks were read.
        n_bytes: how many bytes were read.
        n_without_digest: resources that could be compared with nothing.
        faults: damaged and missing resources, sorted.
        findings: of the store's own audit: what it has lost, or holds to no purpose.
        seconds: how long it took.
    """

    storage: str
    state: str
    sample: float | None
    seed: int | None
    n_resources: int
    n_ranges: int
    n_bytes: int
    n_without_digest: int
    faults: tuple[Fault, ...]
    findings: tuple[StoreFinding, ...]
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


# ---------------------------------------------------------------------- whole stores, block by block


def verify_storage(
    storage: Storage | None = None,
    names: Sequence[str] = (),
    *,
    sample: float | None = None,
    seed: int | None = None,
    n_threads: int = 4,
    progress: bool | None = None,
) -> StorageVerification:
    """Read what is stored, hold every block against its digest and every whole against its manifest.

    Nothing is changed, and a fault does not end it.

    Args:
        storage: a connector, URL or path; None for the default store. Of one with a cache before it, the store behind is read.
        names: datasets, or versions of them; none: all that is stored.
        sample: the share of the ranges of 1 MiB to read, in (0, 1]; None: all of them, and the wholes.
        seed: of the sample: the same seed chooses the same blocks of the same resources.
        n_threads: resources that are read at a time.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        DatasetNotFoundError: nothing is stored of one of ``names``.
        StorageUnavailableError: the store does not answer. StorageError: there is no such folder.
    """
    started = time.perf_counter()
    connector = existing_storage(storage)
    while isinstance(connector, CachedStorageConnector):  # what is held there says nothing of what is stored
        connector = connector.remote
    if sample is not None and seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    inventory = take_inventory(connector, names, must_exist=True)
    expected, check = inventory.resources(), _Check(connector, sample, seed)
    for folder, version in inventory.versions.items():
        if version.problem is not None and not version.is_begun:  # else it is being prepared
            check.faults.append(Fault(f"{folder}/{MANIFEST}", None, version.problem))
            expected.pop(f"{folder}/{MANIFEST}", None)
    workers = Workers(expected.values(), lambda each: check.one(each, workers), n_threads)
    with byte_bar("verifying", progress) as draw:
        workers.run(lambda: draw(check.n_bytes, check.all_bytes))
    if sample is not None and check.n_ranges == 0 and check.sizes:  # a small sample of a small store is not nothing
        check.one_range(random.Random(seed).choice(sorted(check.sizes)))  # noqa: S311  # repeatable, and no secret
    findings = [each for each in connector.audit() if not names or any(each.name.startswith(f"{name}/") for name in names)]
    is_faulty = bool(check.faults) or any(finding.is_fault for finding in findings)
    return StorageVerification(
        storage=repr(connector),
        state="faulty" if is_faulty else "ok",
        sample=sample,
        seed=seed,
        n_resources=len(check.sizes),
        n_ranges=check.n_ranges,
        n_bytes=check.n_bytes,
        n_without_digest=check.n_without_digest,
        faults=tuple(sorted(check.faults, key=lambda fault: (fault.identifier, fault.block or 0))),
        findings=tuple(findings),
        seconds=round(time.perf_counter() - started, 6),
    )


class _Check:
    """A verification under way; threads share it."""

    def __init__(self, connector: StorageConnector, sample: float | None, seed: int | None) -> None:
        self._connector, self._sample, self._seed = connector, sample, seed
        self._lock = threading.Lock()
        self.faults: list[Fault] = []
        self.sizes: dict[str, int] = {}
        self.n_bytes = self.all_bytes = self.n_ranges = self.n_without_digest = 0

    def one(self, expected: ExpectedResource, workers: Workers[ExpectedResource]) -> None:
        """Verify a resource, or a sample of it."""
        faults: list[Fault] = []
        try:
            faults += self._faults_of(expected, workers)
        except StorageUnavailableError:
            raise
        except ResourceNotFoundError as error:
            if expected.is_prepared:  # else it was deleted meanwhile
                faults.append(Fault(expected.identifier, None, str(error)))
        except (DatasetFileCorruptError, StorageError) as error:
            faults.append(Fault(expected.identifier, getattr(error, "block", None), str(error)))
        with self._lock:
            self.faults += faults

    def one_range(self, identifier: str) -> None:
        """Verify one block of a resource, the first."""
        info = self._connector.stat(identifier)
        with self._connector.get_resource(identifier) as resource:
            self.faults += self._sampled(resource, info, [0])

    def _faults_of(self, expected: ExpectedResource, workers: Workers[ExpectedResource]) -> Iterator[Fault]:
        info = self._connector.stat(expected.identifier)
        with self._lock:
            self.sizes[expected.identifier] = info.size
            self.all_bytes += info.size if self._sample is None else 0
        if expected.size not in (None, info.size):
            problem = f"resource {expected.identifier!r} has {info.size:,} bytes, the manifest lists {expected.size:,}"
            yield Fault(expected.identifier, None, problem)
            expected = replace(expected, sha256=None)  # has been said
        with self._connector.get_resource(expected.identifier) as resource:
            n_ranges = max(1, math.ceil(info.size / _RANGE_BYTES))
            if self._sample is None:
                self._count(n_ranges, 0)
                yield from self._whole(resource, info, expected, workers)
                return
            draw = random.Random(f"{self._seed}/{expected.identifier}")  # noqa: S311  # repeatable, and no secret
            chosen = [number for number in range(n_ranges) if draw.random() < self._sample]
            if not info.blocks and not self._connector.checks_reads:
                # A part of it could be held against nothing: all of it, as often as a part of it would be chosen.
                if chosen and draw.random() < max(self._sample, 1 / n_ranges):
                    self._count(n_ranges, 0)
                    yield from self._whole(resource, info, expected, workers)
                return
            yield from self._sampled(resource, info, chosen)

    def _sampled(self, resource: StreamedResource, info: ResourceInfo, chosen: Iterable[int]) -> Iterator[Fault]:
        for number in chosen:
            try:
                data = resource.read_at(number * _RANGE_BYTES, _RANGE_BYTES)
            except DamagedBlockError as error:
                yield Fault(info.identifier, error.block, str(error))
                continue
            finally:
                self._count(1, min(_RANGE_BYTES, info.size))
            first = number * _RANGE_BYTES // BLOCK_BYTES
            for block in differing_blocks(info.blocks[first * DIGEST_BYTES :], digests_of_blocks(data)):
                yield self._damaged(info.identifier, first + block)

    def _whole(
        self, resource: StreamedResource, info: ResourceInfo, expected: ExpectedResource, workers: Workers[ExpectedResource]
    ) -> Iterator[Fault]:
        """All blocks of a resource, also those behind a damaged one, and the whole."""
        digest = Digest()
        offset, end, n_faults = 0, info.size, 0
        try:
            while offset < info.size and n_faults < _MOST_FAULTS:
                workers.check()
                try:
                    data = resource.read_at(offset, min(_STEP_BYTES, end - offset))
                except DamagedBlockError as error:
                    start = error.block * error.block_bytes
                    if start > offset:  # first what lies before it
                        end = start
                        continue
                    yield Fault(info.identifier, error.block, str(error))
                    n_faults += 1
                    offset, end = max(offset, start) + max(1, error.block_bytes), info.size
                    continue
                if not data:
                    break
                offset += len(data)
                if offset >= end:
                    end = info.size
                self._count(0, len(data))
                if not n_faults:
                    digest.update(data)
            found = (digest.size, digest.sha256, digest.blocks)
        finally:
            digest.finish()
        if n_faults == 0:
            yield from self._differences(info, expected, *found)

    def _differences(
        self, info: ResourceInfo, expected: ExpectedResource, size: int, sha256: str, blocks: bytes
    ) -> Iterator[Fault]:
        """How what was read differs from what was recorded."""
        if size != info.size:
            yield Fault(info.identifier, None, f"resource {info.identifier!r} ends after {size:,} of {info.size:,} bytes")
            return
        damaged = differing_blocks(info.blocks, blocks)
        for number in damaged[:_MOST_FAULTS]:
            yield self._damaged(info.identifier, number)
        promised = expected.sha256 or info.sha256
        if promised is None:
            with self._lock:
                self.n_without_digest += 1
        elif sha256 != promised and not damaged:
            by = "the manifest lists" if expected.sha256 else "recorded is"
            problem = f"resource {info.identifier!r} in {self._connector!r} has sha256 {sha256}, {by} {promised}"
            yield Fault(info.identifier, None, f"{problem}; no digests of its blocks are known that would tell where it differs")

    def _damaged(self, identifier: str, block: int) -> Fault:
        problem = f"block {block} of 64 KiB of resource {identifier!r} (from byte {block * BLOCK_BYTES} on) is damaged"
        return Fault(identifier, block, f"{problem} in {self._connector!r}; store the resource again from its source or a copy")

    def _count(self, n_ranges: int, n_bytes: int) -> None:
        with self._lock:
            self.n_ranges += n_ranges
            self.n_bytes += n_bytes
