"""What the commands on whole stores do, apart from printing."""

from __future__ import annotations

import contextlib
import math
import random
import re
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from data_stack.dataset.resource_names import MANIFEST
from data_stack.exception import (
    DamagedBlockError,
    DatasetFileCorruptError,
    DatasetNotFoundError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.parallel import Workers
from data_stack.io.progress import byte_bar
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import BLOCK_BYTES, Digest, Garbage, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.partials import removed_locally
from data_stack.repository.inventory import StoredVersion, found_in

if TYPE_CHECKING:
    from data_stack.io.copying import CopyReport
    from data_stack.io.resources import StreamedResource

__all__ = ["copy_facts", "deeply_verified", "disk_usage", "freed", "parsed_seconds", "parsed_share"]

_STEP_BYTES = 4 * BLOCK_BYTES
#: A disk that is gone needs no list of all its blocks.
_MOST_FAULTS = 1000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)", re.ASCII)


def parsed_seconds(text: str) -> float | None:
    """A duration such as ``"24h"``, ``"30m"`` or ``"90"`` (seconds); None if it is none."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _SECONDS[match[2]]


def parsed_share(text: str) -> float | None:
    """A share such as ``"5%"`` or ``"0.05"``, more than 0 and at most 1; None if it is none."""
    match = _SHARE.fullmatch(text.strip())
    share = None if match is None else float(match[1]) / (100 if match[2] else 1)
    return share if share is not None and 0 < share <= 1 else None


# ---------------------------------------------------------------------- copy


def copy_facts(report: CopyReport) -> dict[str, Any]:
    """What a copy did, as plain JSON data."""
    facts = asdict(report)
    for outcome in ("copied", "shared", "present"):
        facts[outcome] = {"resources": report.count(outcome), "bytes": report.size(outcome)}
    return facts


# ---------------------------------------------------------------------- what a store should hold


@dataclass(frozen=True)
class _Expected:
    """A resource, and what its dataset's manifest says of it."""

    identifier: str
    size: int | None = None
    sha256: str | None = None
    is_listed: bool = False
    is_source: bool = False


def _expected(
    connector: StorageConnector, names: Sequence[str]
) -> tuple[dict[str, _Expected], list[tuple[str, str]], list[StoredVersion]]:
    """All resources of a store, or of datasets in it, the manifests that cannot be read, and the versions of datasets."""
    stored = found_in(connector, names)
    identifiers = [*stored.loose, *(each for version in stored.versions.values() for each in version.identifiers)]
    expected = {identifier: _Expected(identifier) for identifier in sorted(identifiers)}
    problems = []
    for folder, version in stored.versions.items():
        manifest = version.manifest
        if manifest is None:
            if version.problem is not None and not version.is_begun:  # else it is being prepared
                problems.append((f"{folder}/{MANIFEST}", version.problem))
            continue
        for source in manifest.sources:
            identifier = f"{folder}/{source.identifier}"
            if identifier in expected or connector.has_resource(identifier):  # sources need not be kept
                known = (None, None) if manifest.adopted else (source.size, source.sha256)
                expected[identifier] = _Expected(identifier, *known, is_source=True)
        for record in manifest.prepared:
            identifier = f"{folder}/{record.identifier}"
            is_source = identifier in expected and expected[identifier].is_source
            expected[identifier] = _Expected(identifier, record.size, record.sha256, is_listed=True, is_source=is_source)
    for name in names:
        if not any(identifier.startswith(f"{name}/") for identifier in expected):
            raise DatasetNotFoundError(f"nothing of a dataset {name!r} is in {connector!r}; `data-stack du` shows what there is")
    return expected, problems, list(stored.versions.values())


# ---------------------------------------------------------------------- verify --deep


def deeply_verified(
    connector: StorageConnector,
    names: Sequence[str] = (),
    *,
    sample: float | None = None,
    seed: int | None = None,
    n_threads: int = 4,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Read what is stored, hold every block against its digest and every whole against its manifest; as plain JSON data.

    Nothing is changed, and a fault does not end it.

    Args:
        connector: the store; of one with a cache before it, the store behind that is read.
        names: datasets; none: all that is stored.
        sample: the share of the blocks of 1 MiB to read, in (0, 1]; None: all of them, and the wholes.
        seed: of the sample: the same seed chooses the same blocks of the same resources.
        n_threads: resources that are read at a time.
        progress: show a progress bar; None to show it on a terminal and in a notebook.

    Raises:
        DatasetNotFoundError: nothing is stored of one of ``names``.
        StorageUnavailableError: the store does not answer.
    """
    started = time.perf_counter()
    while isinstance(connector, CachedStorageConnector):  # what is held there says nothing of what is stored
        connector = connector.remote
    if sample is not None and seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    expected, problems, _ = _expected(connector, names)
    check = _Check(connector, sample, seed)
    for identifier, problem in problems:
        check.faults.append(_fault(identifier, None, problem))
        expected.pop(identifier, None)
    workers = Workers(expected.values(), lambda each: check.one(each, workers), n_threads)
    with byte_bar("verifying", progress) as draw:
        workers.run(lambda: draw(check.n_bytes, check.all_bytes))
    if sample is not None and check.n_ranges == 0 and check.sizes:  # a small sample of a small store is not nothing
        check.one_range(random.Random(seed).choice(sorted(check.sizes)))  # noqa: S311  # repeatable, and no secret
    findings = [asdict(finding) for finding in connector.audit() if _concerns(finding.name, names)]
    faults = sorted(check.faults, key=lambda fault: (fault["identifier"], fault["block"] or 0))
    is_faulty = bool(faults) or any(finding["is_fault"] for finding in findings)
    return {
        "storage": repr(connector),
        "state": "faulty" if is_faulty else "ok",
        "sample": sample,
        "seed": seed,
        "n_resources": len(check.sizes),
        "n_ranges": check.n_ranges,
        "n_bytes": check.n_bytes,
        "n_without_digest": check.n_without_digest,
        "faults": faults,
        "findings": findings,
        "seconds": round(time.perf_counter() - started, 6),
    }


def _concerns(name: str, names: Sequence[str]) -> bool:
    return not names or any(name.startswith(f"{each}/") for each in names)


def _fault(identifier: str, block: int | None, problem: str) -> dict[str, Any]:
    return {"identifier": identifier, "block": block, "problem": problem}


class _Check:
    """A verification under way; threads share it."""

    def __init__(self, connector: StorageConnector, sample: float | None, seed: int | None) -> None:
        self._connector, self._sample, self._seed = connector, sample, seed
        self._lock = threading.Lock()
        self.faults: list[dict[str, Any]] = []
        self.sizes: dict[str, int] = {}
        self.n_bytes = self.all_bytes = self.n_ranges = self.n_without_digest = 0

    def one(self, expected: _Expected, workers: Workers[_Expected]) -> None:
        """Verify a resource, or a sample of it."""
        faults: list[dict[str, Any]] = []
        try:
            faults += self._faults_of(expected, workers)
        except StorageUnavailableError:
            raise
        except ResourceNotFoundError as error:
            if expected.is_listed:  # else it was deleted meanwhile
                faults.append(_fault(expected.identifier, None, str(error)))
        except (DatasetFileCorruptError, StorageError) as error:
            faults.append(_fault(expected.identifier, getattr(error, "block", None), str(error)))
        with self._lock:
            self.faults += faults

    def one_range(self, identifier: str) -> None:
        """Verify one block of a resource, the first."""
        info = self._connector.stat(identifier)
        with self._connector.get_resource(identifier) as resource:
            self.faults += self._sampled(resource, info, [0])

    def _faults_of(self, expected: _Expected, workers: Workers[_Expected]) -> Iterator[dict[str, Any]]:
        info = self._connector.stat(expected.identifier)
        with self._lock:
            self.sizes[expected.identifier] = info.size
            self.all_bytes += info.size if self._sample is None else 0
        if expected.size not in (None, info.size):
            problem = f"resource {expected.identifier!r} has {info.size:,} bytes, the manifest lists {expected.size:,}"
            yield _fault(expected.identifier, None, problem)
            expected = replace(expected, sha256=None)  # has been said
        with self._connector.get_resource(expected.identifier) as resource:
            n_blocks = max(1, math.ceil(info.size / BLOCK_BYTES))
            if self._sample is None:
                self._count(n_blocks, 0)
                yield from self._whole(resource, info, expected, workers)
                return
            draw = random.Random(f"{self._seed}/{expected.identifier}")  # noqa: S311  # repeatable, and no secret
            chosen = [number for number in range(n_blocks) if draw.random() < self._sample]
            if not info.blocks and not self._connector.checks_reads:
                # A part of it could be held against nothing: all of it, as often as a part of it would be chosen.
                if chosen and draw.random() < max(self._sample, 1 / n_blocks):
                    self._count(n_blocks, 0)
                    yield from self._whole(resource, info, expected, workers)
                return
            yield from self._sampled(resource, info, chosen)

    def _sampled(self, resource: StreamedResource, info: ResourceInfo, chosen: Iterable[int]) -> Iterator[dict[str, Any]]:
        for number in chosen:
            try:
                data = resource.read_at(number * BLOCK_BYTES, BLOCK_BYTES)
            except DamagedBlockError as error:
                yield _fault(info.identifier, error.block, str(error))
                continue
            finally:
                self._count(1, min(BLOCK_BYTES, info.size))
            if number < len(info.blocks) and zlib.crc32(data) != info.blocks[number]:
                yield self._damaged(info.identifier, number)

    def _whole(
        self, resource: StreamedResource, info: ResourceInfo, expected: _Expected, workers: Workers[_Expected]
    ) -> Iterator[dict[str, Any]]:
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
                    yield _fault(info.identifier, error.block, str(error))
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
        self, info: ResourceInfo, expected: _Expected, size: int, sha256: str, blocks: tuple[int, ...]
    ) -> Iterator[dict[str, Any]]:
        """How what was read differs from what was recorded."""
        if size != info.size:
            yield _fault(info.identifier, None, f"resource {info.identifier!r} ends after {size:,} of {info.size:,} bytes")
            return
        damaged = [number for number, (old, new) in enumerate(zip(info.blocks, blocks, strict=False)) if old != new]
        for number in damaged[:_MOST_FAULTS]:
            yield self._damaged(info.identifier, number)
        promised = expected.sha256 or info.sha256
        if promised is None:
            with self._lock:
                self.n_without_digest += 1
        elif sha256 != promised and not damaged:
            by = "the manifest lists" if expected.sha256 else "recorded is"
            problem = f"resource {info.identifier!r} in {self._connector!r} has sha256 {sha256}, {by} {promised}"
            yield _fault(info.identifier, None, f"{problem}; no digests of its blocks are known that would tell where it differs")

    def _damaged(self, identifier: str, block: int) -> dict[str, Any]:
        problem = f"block {block} of 1 MiB of resource {identifier!r} (from byte {block * BLOCK_BYTES} on) is damaged"
        return _fault(identifier, block, f"{problem} in {self._connector!r}; store the resource again from its source or a copy")

    def _count(self, n_ranges: int, n_bytes: int) -> None:
        with self._lock:
            self.n_ranges += n_ranges
            self.n_bytes += n_bytes


# ---------------------------------------------------------------------- gc


def freed(connector: StorageConnector, grace_seconds: float, dry_run: bool) -> list[Garbage]:
    """Remove what no resource needs and dead writers left; with ``dry_run`` only say what that is."""
    garbage = connector.collect_garbage(grace_seconds, dry_run=dry_run)
    if not dry_run:  # one's own collect_garbage() need not do this too
        known = {each.name for each in garbage}
        left = [name for name in connector.remove_abandoned() if name not in known]
        garbage += [Garbage(name, None, "left by a writer that died") for name in left]
    if not isinstance(connector, FileStorageConnector):  # their downloads wait on this machine
        found = removed_locally(grace_seconds, dry_run=dry_run)
        garbage += [Garbage(path, size, "an interrupted download") for path, size in found]
    return garbage


# ---------------------------------------------------------------------- du


def disk_usage(connector: StorageConnector, names: Sequence[str] = (), *, n_threads: int = 8) -> dict[str, Any]:
    """How many resources and bytes a store holds, by dataset and kind, as plain JSON data. Reads manifests and no other bytes.

    Raises:
        DatasetNotFoundError: nothing is stored of one of ``names``.
    """
    expected, _, versions = _expected(connector, names)
    infos: dict[str, ResourceInfo] = {}

    def ask(each: _Expected) -> None:
        with contextlib.suppress(ResourceNotFoundError, DatasetFileCorruptError):  # `data-stack verify` tells of these
            infos[each.identifier] = connector.stat(each.identifier)

    Workers(expected.values(), ask, n_threads).run()
    version_of = {version.folder: version.version for version in versions}
    datasets: dict[str, dict[str, int]] = {}
    for identifier, info in sorted(infos.items()):
        folder = next(
            (each for each in _folders(identifier) if each in version_of), identifier.rpartition("/")[0].partition("/")[0]
        )
        row = datasets.setdefault(folder, {"n_resources": 0, "raw": 0, "preprocessed": 0, "other": 0, "total": 0})
        row["n_resources"] += 1
        row[_kind(expected[identifier], folder)] += info.size
        row["total"] += info.size
    unique = {(info.sha256 or identifier): info.size for identifier, info in infos.items()}
    # The default would ask for all sizes again, and knows no more.
    usage = connector.usage() if not names and type(connector).usage is not StorageConnector.usage else None
    return {
        "storage": repr(connector),
        "datasets": [
            {"name": folder.partition("/")[0] or "(no dataset)", "version": version_of.get(folder), **row}
            for folder, row in datasets.items()
        ],
        "n_resources": len(infos),
        "total": sum(info.size for info in infos.values()),
        "unique": sum(unique.values()),
        "stored": None if usage is None else usage.stored_bytes,
        "garbage": None if usage is None else usage.garbage_bytes,
    }


def _folders(identifier: str) -> tuple[str, str]:
    """The folders of a version that a resource may belong to: ``"digits/1.0.0"`` before ``"digits"``."""
    name, _, rest = identifier.partition("/")
    return f"{name}/{rest.partition('/')[0]}", name


def _kind(expected: _Expected, folder: str) -> str:
    """``"raw"``, ``"preprocessed"`` or ``"other"``: what the manifest says, or else the folder."""
    first = expected.identifier.removeprefix(f"{folder}/").partition("/")[0]
    if expected.is_source or (first == "raw" and not expected.is_listed):
        return "raw"
    return "preprocessed" if expected.is_listed or first == "preprocessed" else "other"
