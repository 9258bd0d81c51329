"""Brings a dataset from its sources to its manifest, through crashes and beside other processes.

The order is what makes it safe: sources; journal; away with an old manifest; prepared resources, each stored
whole; manifest; away with the journal. A manifest that is there and true means that all of it is there, so a
crash at any point leaves a dataset that is ready or is prepared further, never one that is half served. The
lease only spares two processes the same work.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from data_stack.dataset.code_digest import distributions_of
from data_stack.dataset.journal import WHOLE, Journal, fingerprint
from data_stack.dataset.manifest import Manifest, ResourceRecord, SourceRecord
from data_stack.dataset.prepared import PreparedResources, Resources, Superseded
from data_stack.dataset.resource_names import MANIFEST
from data_stack.dataset.stored import StoredDataset
from data_stack.exception import (
    DatasetFileCorruptError,
    MissingDependencyError,
    PreparationError,
    ResourceNotFoundError,
    RetrievalError,
    StorageError,
    TaskError,
    UnsupportedStorageOperationError,
)
from data_stack.io.progress import with_bar
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.connector import Lease
from data_stack.util.logger import logger

__all__ = ["Preparation", "PreparationReport"]

_ATTEMPTS = 4
_LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """What :meth:`DatasetFactory.prepare` did.

    Attributes:
        steps: (name, seconds) of what was done, in order: ``"retrieve"``, each step of ``preprocess()`` by its name,
            and ``"preprocess"`` for the rest of it. Empty if there was nothing to do.
        adopted: the store was complete without a manifest, and is used as it was found.
        already_ready: nothing was done.
        reason: why what was stored of the dataset, or begun, could not be used as it was; None where the store had nothing of it,
            or nothing was done.
    """

    steps: tuple[tuple[str, float], ...]
    adopted: bool
    already_ready: bool
    reason: str | None = None

    @property
    def seconds(self) -> float:
        """Duration of all steps."""
        return sum(seconds for _, seconds in self.steps)


class Preparation:
    """One attempt to make a dataset ready.

    Args:
        stored: the dataset's place in its store.
        preprocess: the author's code, from raw to prepared resources.
        read_ends: opens a split and reads its first and last sample, or raises.
        code: gives the digest of the author's code.
        may_be_staged: whether ``preprocess`` lets resources wait in the store under names that are not theirs.
        again: prepare also what is ready.
        keep_steps: keep what is done when the author's code raises, and take over what other code has done.
        offline: ask no network; None for what the environment says.
        progress: show progress bars; None to show them on a terminal.
    """

    def __init__(
        self,
        stored: StoredDataset,
        preprocess: Callable[[Resources, PreparedResources], None],
        read_ends: Callable[[str, Resources], None],
        code: Callable[[], str],
        *,
        may_be_staged: bool = False,
        again: bool = False,
        keep_steps: bool = False,
        offline: bool | None = None,
        progress: bool | None = None,
    ) -> None:
        self._stored, self._definition, self._connector = stored, stored.definition, stored.connector
        self._preprocess, self._read_ends = preprocess, read_ends
        self._code, self._may_be_staged = code, may_be_staged
        self._again, self._keep_steps = again, keep_steps
        self._offline, self._progress = offline, progress
        self._name = stored.definition.card.name
        self._timings: list[tuple[str, float]] = []

    def run(self, lease_timeout_seconds: float) -> tuple[Manifest, PreparationReport]:
        """Make the dataset ready if it is not.

        Returns:
            The manifest, which lies in the store unless that cannot be written, and what was done.

        Raises:
            RetrievalError, StorageError: a source did not arrive, or something could not be stored.
            PreparationError: the author's code failed.
        """
        manifest = self._stored.ready_manifest()
        if self._again:
            self._stored.outdated, manifest = manifest, None
        if manifest is not None:
            self.tidy_up()
            return manifest, PreparationReport((), manifest.adopted, already_ready=True)
        with self._connector.lease(self._stored.identifier(MANIFEST)) as lease:
            manifest = self._wait_for(lease, lease_timeout_seconds)
            if manifest is not None:
                return manifest, PreparationReport((), manifest.adopted, already_ready=True)
            self._remove_abandoned()
            readiness = self._stored.readiness(None if self._keep_steps else self._code)
            if readiness.reason is not None and not readiness.resumes:
                logger.warning("dataset %r is prepared again: %s", self._name, readiness.reason)
            wait = 0.0
            for attempt in range(_ATTEMPTS):
                # Without a lease, others may replace something while this one finishes. After that, each leaves the
                # field to the others for a random time, so that one of them gets through undisturbed.
                started = time.monotonic()
                manifest = self._ready_within(wait) or self._adopt() or self._prepare()
                if manifest is not None and self._stored.damage(manifest) is None:
                    return manifest, PreparationReport(
                        tuple(self._timings), manifest.adopted, already_ready=False, reason=readiness.reason
                    )
                wait = random.SystemRandom().uniform(0.5, 2 * 3.0**attempt) * (time.monotonic() - started - wait)
        raise PreparationError(
            f"dataset {self._name!r} was prepared {_ATTEMPTS} times, and each time something else replaced a part of it in "
            f"{self._connector!r}; find out what else writes below {self._definition.folder!r} there, and prepare it again"
        )

    def tidy_up(self) -> None:
        """Remove what a preparation left that died between its last two writes, the manifest and the end of the journal."""
        journal = self._stored.journal()
        manifest = self._stored.manifest() if journal is not None else None
        if journal is not None and manifest is not None and journal.fingerprint == self._fingerprint(manifest.sources):
            self._end()

    def _end(self) -> None:
        """Remove what a preparation leaves that was interrupted, or whose shards were prepared elsewhere; the journal last."""
        self._stored.remove_staged()
        self._remove_abandoned()
        self._stored.remove_journal()

    def _remove_abandoned(self) -> None:
        card = self._definition.card
        if self._definition.folder != card.name or not card.keeps_versions:  # else other versions lie below it
            self._connector.remove_abandoned(f"{self._definition.folder}/")

    # ------------------------------------------------------------------ alone or not

    def _wait_for(self, lease: Lease, timeout_seconds: float) -> Manifest | None:
        """Wait for the lease, or for another process to make the dataset ready."""
        started, pause, announced = time.monotonic(), 0.02, False
        while not lease.acquire():
            manifest = self._stored.ready_manifest()
            if manifest is not None:
                return manifest
            left = started + timeout_seconds - time.monotonic()
            if left <= 0:
                logger.warning(
                    "dataset %r: another process has been preparing it for %.0f s; going on beside it",
                    self._name,
                    timeout_seconds,
                )
                break
            if not announced:
                logger.info("dataset %r: waiting for another process that is preparing it", self._name)
                announced = True
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
        return self._stored.ready_manifest()

    def _ready_within(self, seconds: float) -> Manifest | None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if (manifest := self._stored.ready_manifest()) is not None:
                return manifest
            time.sleep(min(_LONGEST_PAUSE_SECONDS, left, 0.05 + seconds / 10))
        return None

    # ------------------------------------------------------------------ adoption

    def _adopt(self) -> Manifest | None:
        """A manifest for a complete store that has none, as the original DataStack left it."""
        declared = self._definition.prepared_resources
        if declared is None or self._stored.was_begun():
            return None
        records = []
        for name in declared:
            info = self._stored.stat(name)
            if info is None:
                return None
            records.append(ResourceRecord(name, info.size, info.sha256))
        started = time.perf_counter()
        sources = self._sources_found()
        try:
            for split in self._definition.splits:
                self._read_ends(split, Resources(self._connector, self._definition.folder, records))
        except Exception as error:  # noqa: BLE001  # damaged files make the author's open() fail in any way
            self._refuse_to_adopt(error)
            return None
        try:
            with self._connector.create(self._stored.identifier(MANIFEST)) as file:
                manifest = self._manifest(sources, self._read_all(records), adopted=True)
                file.write(manifest.to_json())
        except DatasetFileCorruptError as error:
            self._refuse_to_adopt(error)
            return None
        except StorageError as error:
            logger.info("dataset %r: found complete without a manifest, and used without one: %s", self._name, error)
            manifest = self._manifest(sources, records, adopted=True)
        else:
            logger.info("dataset %r: found complete without a manifest in %r, adopted as it is", self._name, self._connector)
        self._timings.append(("adopt", time.perf_counter() - started))
        return manifest

    def _refuse_to_adopt(self, error: Exception) -> None:
        logger.warning(
            "dataset %r: found complete but damaged in %r (%s: %s); preparing it again",
            self._name,
            self._connector,
            type(error).__name__,
            error,
        )

    def _read_all(self, records: list[ResourceRecord]) -> list[ResourceRecord]:
        options = {"desc": f"{self._name}: taking digests", "unit": "resource"}
        return [self._read_whole(record) for record in with_bar(records, self._progress, **options)]

    def _read_whole(self, record: ResourceRecord) -> ResourceRecord:
        try:
            info = self._connector.verify_resource(self._stored.identifier(record.identifier), record.sha256)
        except StorageError as error:  # not to be taken for a store that cannot be written
            raise DatasetFileCorruptError(str(error)) from error
        return ResourceRecord(record.identifier, info.size, info.sha256)

    def _sources_found(self) -> list[SourceRecord]:
        """The sources of an adopted dataset, as far as they are known. Nothing says that it was made from them."""
        found = []
        for source in self._definition.sources:
            info = self._stored.stat(source.identifier)
            size = None if info is None else info.size
            found.append(SourceRecord(source.identifier, size, source.sha256, source.md5_sum, verified=False, origin=None))
        return found

    # ------------------------------------------------------------------ preparation

    def _prepare(self) -> Manifest | None:
        """Do what is left to do; None if it was for nothing because another process interfered."""
        if not self._definition.has_preprocess:
            self._stored.invalidate()  # the sources are what is opened, and are about to be replaced
        journal = None if self._again else self._stored.journal()
        sources = self._retrieve()
        raw = [ResourceRecord(source.identifier, source.size or 0, source.sha256) for source in sources]
        try:
            if self._definition.has_preprocess:
                raw = self._run_preprocess(sources, raw, journal)
            if (problem := self._incompleteness(raw)) is not None:
                raise PreparationError(
                    f"could not prepare dataset {self._name!r} {self._definition.card.version} of {self._definition.factory}: "
                    f"{problem}"
                )
            self._check_opens(raw)
            manifest = self._stored.ready_manifest()
        except Superseded:
            manifest = self._stored.ready_manifest()
            if manifest is None:
                return None
        if manifest is not None:
            logger.info("dataset %r: another process has prepared it meanwhile", self._name)
            return manifest
        manifest = self._manifest(sources, raw, adopted=False)
        self._stored.write_manifest(manifest)
        if self._may_be_staged or journal is not None:
            self._end()
        else:
            self._stored.remove_journal()
        logger.info("dataset %r %s is ready in %r", self._name, manifest.version, self._connector)
        return manifest

    def _retrieve(self) -> list[SourceRecord]:
        if not self._definition.sources:
            return []
        started = time.perf_counter()
        self._take_over_sources()
        arrived = retrieve(self._definition.retrieval_jobs, self._connector, offline=self._offline, progress=self._progress)
        self._timings.append(("retrieve", time.perf_counter() - started))
        sources = []
        for definition, resource in zip(self._definition.sources, arrived, strict=True):
            sha256 = resource.sha256 or self._connector.verify_resource(resource.identifier).sha256
            sources.append(
                SourceRecord(
                    definition.identifier,
                    resource.size,
                    sha256,
                    definition.md5_sum,
                    verified=resource.verified,
                    origin=resource.source,
                )
            )
        return sources

    def _take_over_sources(self) -> None:
        """Have sources that lie in this store for another version, so that they are not retrieved again."""
        wanted = [
            job for job in self._definition.retrieval_jobs if job.sha256 and not self._connector.has_resource(job.identifier)
        ]
        try:
            listed = self._connector.list_resources(f"{self._name}/") if wanted else []
        except UnsupportedStorageOperationError:
            return
        for job in wanted:
            end = job.identifier.removeprefix(self._definition.folder)
            for identifier in listed:
                with contextlib.suppress(DatasetFileCorruptError, ResourceNotFoundError):
                    if not identifier.endswith(end) or self._connector.stat(identifier).sha256 != job.sha256:
                        continue
                    with self._connector.get_resource(identifier) as resource:
                        self._connector.set_resource(job.identifier, resource)
                    logger.info("dataset %r: took %r over from %r", self._name, job.identifier, identifier)
                    break

    def _run_preprocess(
        self, sources: list[SourceRecord], raw: list[ResourceRecord], journal: Journal | None
    ) -> list[ResourceRecord]:
        journal = self._resume(sources, journal)
        earlier = self._stored.manifest()
        in_use = earlier is not None and self._stored.difference(earlier) is not None and self._stored.damage(earlier) is None
        prepared = PreparedResources(self._stored, journal, hold=in_use, progress=self._progress)
        made = prepared.step_that_made(WHOLE)
        if made is not None and not any(made.staged) and self._incompleteness(list(made.resources)) is None:
            logger.info("dataset %r: all of it was made before", self._name)
            return list(made.resources)
        started = time.perf_counter()
        try:
            self._preprocess(Resources(self._connector, self._definition.folder, raw), prepared)
            prepared.publish()
            if (problem := self._incompleteness(list(prepared.records()))) is not None:
                raise PreparationError(problem)
            prepared.note_whole()
        except (StorageError, RetrievalError):
            raise
        except Superseded:
            prepared.discard()
            raise
        except TaskError as error:
            if isinstance(error.__cause__, (StorageError, RetrievalError)):
                raise error.__cause__ from error
            raise self._failure(prepared, error, has_died=not error.traceback_text) from error
        except Exception as error:
            raise self._failure(prepared, error) from error
        finally:
            prepared.discard(keep_steps=True)
            elapsed = time.perf_counter() - started
            self._timings += [*prepared.timings, ("preprocess", elapsed - sum(seconds for _, seconds in prepared.timings))]
        return list(prepared.records())

    def _resume(self, sources: list[SourceRecord], journal: Journal | None) -> Journal:
        """The journal to go on with: the stored one, if the same code began it; or a new one."""
        own, code = self._fingerprint(sources), self._code()
        is_of_others = journal is None or journal.fingerprint != own
        if journal is None or is_of_others or (journal.codes != (code,) and not self._keep_steps):
            if self._stored.was_begun():
                self._stored.remove_staged()  # shards of another preparation, while its journal may still say that they are there
            journal = Journal(own, codes=(code,))
        elif code in journal.codes:
            return journal
        else:
            journal = replace(journal, codes=(*journal.codes, code))
        self._stored.write_journal(journal)
        return journal

    def _failure(self, prepared: PreparedResources, error: Exception, *, has_died: bool = False) -> PreparationError:
        """What to tell of a failure of the author's code; what that had done is removed, for it may be wrong too."""
        where = f"step {prepared.current_step!r} of preprocess()" if prepared.current_step else "preprocess()"
        said = f"{where} of {self._definition.factory} failed with {type(error).__name__}: {error}"
        if isinstance(error, TaskError):
            said = f"{error}\n"
        elif isinstance(error, PreparationError):
            said = f"{self._definition.factory}: {error}"
        steps = ", ".join(step.name for step in prepared.journal.steps)
        done = "the shards that are done" if isinstance(error, TaskError) else f"the steps done before ({steps})"
        if not has_died and not self._keep_steps:
            self._forget(prepared)
            kept = "The retrieved sources are kept, and nothing else (keep_steps=True, --keep-steps, keeps steps and shards)."
        elif steps or isinstance(error, TaskError):
            kept = f"The retrieved sources and {done} are kept; "
            kept += "it goes on from there." if has_died else "with keep_steps=True or --keep-steps it goes on from there."
        else:
            kept = "The retrieved sources are kept."
        return PreparationError(
            f"could not prepare dataset {self._name!r} {self._definition.card.version}: {said}\n"
            f"{kept} Mend the cause and prepare it again (data-stack prepare {self._name})."
        )

    def _forget(self, prepared: PreparedResources) -> None:
        """Remove what a failed preparation made; of its journal stays that there was one, so nothing is taken for complete."""
        names = {record.identifier for step in prepared.journal.steps for record in step.resources}
        names.update(record.identifier for record in prepared.records())
        manifest = self._stored.manifest()
        in_use = set() if manifest is None else {record.identifier for record in manifest.prepared}
        if self._stored.ready_manifest() is not None:
            return  # another process was faster, and this is its work
        with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
            self._stored.write_journal(replace(prepared.journal, steps=()))
            self._stored.remove_staged()
            for name in sorted(names - in_use):
                self._stored.delete(name)

    def _incompleteness(self, made: list[ResourceRecord]) -> str | None:
        """What was not made that should have been; None if all of it was."""
        names = {record.identifier for record in made}
        missing = [name for name in self._definition.prepared_resources or () if name not in names]
        if not self._definition.has_preprocess:
            if made:
                return None
            return f"it is not in {self._connector!r}, and has neither sources nor preprocess() to make it from"
        if missing:
            return f"preprocess() has not made {', '.join(missing)}, which prepared_resources declares"
        return None if made else "preprocess() has made nothing; it should store what open() reads with prepared.create()"

    def _check_opens(self, made: list[ResourceRecord]) -> None:
        """Open each split, as users will, before they are told that the dataset is ready."""
        resources = Resources(self._connector, self._definition.folder, made)
        for split in self._definition.splits:
            try:
                self._read_ends(split, resources)
            except MissingDependencyError as error:  # elsewhere it may be installed
                logger.warning("dataset %r: whether split %r opens was not tried: %s", self._name, split, error)
            except Exception as error:
                if not all(self._stored.holds(record) for record in made):
                    raise Superseded from error  # another process that works without a lease is replacing it
                if isinstance(error, StorageError):
                    raise
                raise PreparationError(
                    f"dataset {self._name!r} {self._definition.card.version} is prepared, but its split {split!r} cannot be "
                    f"opened: open() of {self._definition.factory}, or reading its first or last sample, failed with "
                    f"{type(error).__name__}: {error}\nWhat preprocess() made is kept. Mend open() and use it with "
                    f"data-stack prepare {self._name} --keep-steps (prepare(keep_steps=True)), or prepare all anew without."
                ) from error

    # ------------------------------------------------------------------ provenance

    def _fingerprint(self, sources: list[SourceRecord] | tuple[SourceRecord, ...]) -> str:
        return fingerprint(self._name, self._definition.card.version, self._definition.factory, sources)

    def _manifest(self, sources: list[SourceRecord], prepared: list[ResourceRecord], *, adopted: bool) -> Manifest:
        return Manifest(
            name=self._name,
            version=self._definition.card.version,
            factory=self._definition.factory,
            distribution=next(iter(distributions_of(self._definition.factory.partition(":")[0].partition(".")[0])), None),
            sources=tuple(sources),
            prepared=tuple(prepared),
            adopted=adopted,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        )
