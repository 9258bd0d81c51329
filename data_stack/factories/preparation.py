"""Prepares a dataset from its sources up to its manifest, safe against crashes.

The order of writes makes it safe: sources; journal; removal of an old manifest; prepared resources,
each stored atomically; manifest; removal of the journal. A valid manifest implies a complete
dataset, so a crash at any point leaves a dataset that is ready or that the next preparation
completes. The same holds for concurrent processes: the lease only avoids duplicate work.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from data_stack.dataset.class_lists import check_class_numbers, known_classes
from data_stack.engines.engine import PreparationEngine
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MissingDependencyError,
    PreparationError,
    RetrievalError,
    StorageError,
    TaskError,
    UnsupportedStorageOperationError,
    describe_error,
)
from data_stack.factories.code_digest import code_digest
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.journal import WHOLE, Journal, fingerprint
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.noted_resources import NotedResources
from data_stack.factories.prepared import PreparedResources, Resources, Superseded
from data_stack.factories.resource_names import MANIFEST
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.shards import prepare_by
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.util.distributions import distribution_of
from data_stack.util.logger import logger
from data_stack.util.polling import polls

#: How often a dataset is prepared whose resources other processes replace meanwhile.
_MAX_ATTEMPTS = 4

#: Before the next attempt, a process waits for a random multiple of the time that its last attempt
#: took: of at least this ...
_MIN_WAIT_FACTOR = 0.5

#: ... and at most this, three times as much after each further attempt. So processes that disturb
#: each other drift apart until one of them has the time that it needs.
_MAX_FIRST_WAIT_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """What :meth:`DatasetFactory.prepare` did.

    Attributes:
        steps: (name, seconds) in order: ``"retrieve"``, each step of ``preprocess()``, and
            ``"preprocess"`` for the rest of it. Empty if the dataset was ready.
        adopted: the store was complete without a manifest, and was adopted.
        already_ready: there was nothing to do.
        reason: why stored data of the dataset could not be used; None if nothing was stored, or
            nothing to do.
    """

    steps: tuple[tuple[str, float], ...]
    adopted: bool
    already_ready: bool
    reason: str | None = None

    @property
    def seconds(self) -> float:
        """Duration of all steps."""
        return sum(seconds for _, seconds in self.steps)


@dataclass(frozen=True, slots=True)
class _OpenedSplit:
    """What was found out by opening a split.

    Attributes:
        names_read: the resources that ``open()`` has read.
        classes: the classes of the targets, in the order of their numbers, as far as the iterator
            knows them.
    """

    names_read: tuple[str, ...] = ()
    classes: Sequence[Any] = ()


class Preparation:
    """Makes a dataset ready, once.

    Args:
        stored: the dataset in its store.
        factory: the author's.
        engine: prepares the shards, under temporary names; None: this process does.
        again: prepare a ready dataset again.
        keep_steps: keep finished steps when the author's code raises, and reuse steps of other
            code.
        offline: use no network; None reads the environment.
        progress: show progress bars; None shows them on a terminal.

    Raises:
        ConfigError: the engine cannot reach the store.
    """

    #: The dataset in its store.
    stored: StoredDataset

    #: The author's factory.
    factory: Any

    #: Prepares the shards; None if this process does.
    engine: PreparationEngine | None

    #: Whether to prepare a ready dataset again.
    again: bool

    #: Whether steps outlive errors and changes of the author's code.
    keep_steps: bool

    #: Whether the network must not be used; None: the environment says so.
    offline: bool | None

    #: Whether to show progress bars; None: on a terminal.
    progress: bool | None

    #: What the author declares.
    _definition: DatasetDefinition

    #: The store.
    _connector: StorageConnector

    #: The name of the dataset, for messages.
    _name: str

    #: (name, seconds) of each finished step.
    _timings: list[tuple[str, float]]

    #: Whether the dataset was ready, and was damaged since.
    _was_damaged: bool

    def __init__(
        self,
        stored: StoredDataset,
        factory: Any,
        engine: PreparationEngine | None = None,
        *,
        again: bool = False,
        keep_steps: bool = False,
        offline: bool | None = None,
        progress: bool | None = None,
    ) -> None:
        self.stored = stored
        self.factory = factory
        self.engine = engine
        self.again = again
        self.keep_steps = keep_steps
        self.offline = offline
        self.progress = progress
        self._definition = stored.definition
        self._connector = stored.connector
        self._name = stored.definition.card.name
        self._timings = []
        self._was_damaged = False
        self._check_engine()

    def _check_engine(self) -> None:
        if self.engine is None or not self.engine.leaves_process:
            return
        if isinstance(self._connector, InMemoryStorageConnector):
            raise ConfigError(
                f"{type(self.engine).__name__} prepares in other processes, which cannot reach a "
                f"store in the memory of this process ({self._connector!r}): use a folder or a "
                f"server, or no engine"
            )

    def run(self, lease_timeout_seconds: float) -> tuple[Manifest, PreparationReport]:
        """Make the dataset ready if it is not.

        Returns:
            The manifest, which is stored unless the store cannot be written, and the report.

        Raises:
            RetrievalError, StorageError: a source did not arrive, or something could not be
                stored.
            PreparationError: the author's code failed.
        """
        manifest = self.stored.ready_manifest()
        if self.again:
            self.stored.outdated = manifest
            manifest = None
        if manifest is not None:
            self._tidy_up(manifest)
            return manifest, _nothing_to_do(manifest)
        with self._connector.lease(self.stored.identifier(MANIFEST)) as lease:
            manifest = self._wait_for(lease, lease_timeout_seconds)
            if manifest is not None:
                return manifest, _nothing_to_do(manifest)
            self._connector.remove_abandoned(f"{self._definition.folder}/")
            reason = self._find_reason()
            manifest = self._prepare_undisturbed()
        report = PreparationReport(
            tuple(self._timings), manifest.adopted, already_ready=False, reason=reason
        )
        return manifest, report

    def _find_reason(self) -> str | None:
        """Return why stored data cannot be used; warn if the dataset is prepared again."""
        code = None
        if not self.keep_steps:
            code = partial(code_digest, self.factory)
        readiness = self.stored.readiness(code)
        # If resources were damaged, the sources may be damaged, too.
        self._was_damaged = readiness.is_damaged
        if readiness.reason is not None and not readiness.resumes:
            message = readiness.reason
            if readiness.is_damaged:
                message += (
                    f"; if that fails, bring an intact copy: data-stack copy --deep INTACT_STORE "
                    f"THIS_STORE {self._name}"
                )
            logger.warning("dataset %r is prepared again: %s", self._name, message)
        return readiness.reason

    def _prepare_undisturbed(self) -> Manifest:
        """Adopt or prepare the dataset, again if another process replaces a resource meanwhile.

        That happens without a lease only. Each process then waits for a random time, so that one
        of them finishes undisturbed.

        Raises:
            PreparationError: other processes replaced a resource each time.
        """
        wait_seconds = 0.0
        for attempt in range(_MAX_ATTEMPTS):
            time.sleep(wait_seconds)
            started_at = time.monotonic()
            manifest = self.stored.ready_manifest() or self._adopt() or self._prepare()
            if manifest is not None and self.stored.damage(manifest) is None:
                return manifest
            elapsed_seconds = time.monotonic() - started_at
            max_factor = _MAX_FIRST_WAIT_FACTOR * 3.0**attempt
            factor = random.SystemRandom().uniform(_MIN_WAIT_FACTOR, max_factor)
            wait_seconds = factor * elapsed_seconds
        raise PreparationError(
            f"dataset {self._name!r} was prepared {_MAX_ATTEMPTS} times, but each time another "
            f"process replaced a part of it in {self._connector!r}; stop other writers below "
            f"{self._definition.folder!r}, and prepare it again"
        )

    def _tidy_up(self, manifest: Manifest) -> None:
        """Clean up after a preparation that died after it stored the manifest.

        Its journal is still there, though the dataset is ready.
        """
        journal = self.stored.journal()
        if journal is None or journal.fingerprint != self._fingerprint(manifest.sources):
            return
        with self._connector.lease(self.stored.identifier(MANIFEST)) as lease:
            # If another process has the lease, it prepares the dataset again, and needs the
            # journal and the temporary resources.
            if lease.acquire():
                self._end()

    def _end(self) -> None:
        """Remove temporary resources, and the journal last."""
        self.stored.remove_staged()
        self._connector.remove_abandoned(f"{self._definition.folder}/")
        self.stored.remove_journal()

    def _wait_for(self, lease: Lease, timeout_seconds: float) -> Manifest | None:
        """Wait for the lease, or for another process to make the dataset ready.

        Returns:
            The manifest if another process has made the dataset ready.
        """
        for _ in polls(timeout_seconds, first=0.02, longest=1.0):
            if lease.acquire() or self.stored.ready_manifest() is not None:
                # With the lease, too: its last holder may have made the dataset ready.
                return self.stored.ready_manifest()
        logger.warning(
            "dataset %r: another process prepares it for too long; preparing it too", self._name
        )
        return self.stored.ready_manifest()

    # -------------------------------------------------------------------------------- adoption

    def _adopt(self) -> Manifest | None:
        """Make a manifest for a complete store without one, as the original DataStack left it.

        Returns:
            The manifest; None if the store is not complete, or damaged.
        """
        if self._definition.prepared_resources is None or self.stored.was_begun():
            return None
        started_at = time.perf_counter()
        try:
            records = self._records_to_adopt(self._definition.prepared_resources)
            if records is None:
                return None
            for split in self._definition.splits:
                self._read_ends(split, records)
            manifest = self._manifest(self._sources_to_adopt(), records, adopted=True)
            manifest = self._store_adopted(manifest, records)
        # Damaged files make the author's open() fail in any way.
        except Exception as error:  # noqa: BLE001
            logger.warning(
                "dataset %r: complete but damaged in %r (%s); preparing it again",
                self._name,
                self._connector,
                describe_error(error),
            )
            return None
        self._timings.append(("adopt", time.perf_counter() - started_at))
        return manifest

    def _records_to_adopt(self, names: Iterable[str]) -> list[ResourceRecord] | None:
        """Return records of stored resources; None if one is missing."""
        records = []
        for name in names:
            info = self.stored.stat(name)
            if info is None:
                return None
            records.append(ResourceRecord(name, info.size, info.sha256))
        return records

    def _sources_to_adopt(self) -> list[SourceRecord]:
        """Return records of the declared sources, of which nothing is verified."""
        sources = []
        for source in self._definition.sources:
            # Sources need not be kept.
            info = self.stored.stat(source.identifier)
            size = None
            if info is not None:
                size = info.size
            sources.append(
                SourceRecord(
                    identifier=source.identifier,
                    size=size,
                    sha256=source.sha256,
                    md5_sum=source.md5_sum,
                    verified=False,
                    origin=None,
                )
            )
        return sources

    def _store_adopted(self, manifest: Manifest, records: list[ResourceRecord]) -> Manifest:
        """Store a manifest with the digests of what is stored; return it.

        If the store cannot be written, the manifest is returned without these digests.
        """
        try:
            with self._connector.create(self.stored.identifier(MANIFEST)) as file:
                manifest = replace(manifest, prepared=tuple(self._verify(records)))
                file.write(manifest.to_json())
        except StorageError as error:
            logger.info(
                "dataset %r: complete without a manifest; used without one: %s", self._name, error
            )
            return manifest
        logger.info(
            "dataset %r: adopted, as it is complete without a manifest in %r",
            self._name,
            self._connector,
        )
        return manifest

    def _verify(self, records: list[ResourceRecord]) -> Iterator[ResourceRecord]:
        """Yield the records with digests of what is stored."""
        title = f"{self._name}: computing checksums"
        for record in with_bar(records, self.progress, desc=title, unit="resource"):
            identifier = self.stored.identifier(record.identifier)
            try:
                info = self._connector.verify_resource(identifier, record.sha256)
            except StorageError as error:
                # A read error must not look like a store that cannot be written.
                raise DatasetFileCorruptError(str(error)) from error
            yield ResourceRecord(record.identifier, info.size, info.sha256)

    # ----------------------------------------------------------------------------- preparation

    def _prepare(self) -> Manifest | None:
        """Prepare the dataset.

        Returns:
            The manifest; None if another process interfered.
        """
        if not self._definition.has_preprocess:
            # open() reads the sources, which are about to be replaced.
            self.stored.invalidate()
        journal = None
        if self.stored.outdated is None:
            journal = self.stored.journal()
        sources = self._retrieve()
        try:
            records = self._make_resources(sources, journal)
            names_read = self._check_opens(records)
        except Superseded:
            return self._use_other_preparation()
        if self.stored.ready_manifest() is not None:
            return self._use_other_preparation()

        self.stored.write_opening_files(records, names_read)
        # When the manifest is stored, the dataset is ready.
        manifest = self._manifest(sources, records, adopted=False)
        self.stored.write(MANIFEST, manifest.to_json())
        self.stored.outdated = None
        if self.engine is not None or journal is not None:
            self._end()
        else:
            self.stored.remove_journal()
        logger.info("dataset %r %s is ready in %r", self._name, manifest.version, self._connector)
        return manifest

    def _use_other_preparation(self) -> Manifest | None:
        """Return the manifest of another process that has prepared the dataset, if it is ready."""
        logger.info("dataset %r: another process has prepared it", self._name)
        return self.stored.ready_manifest()

    def _retrieve(self) -> list[SourceRecord]:
        """Retrieve the sources, and return their records."""
        if not self._definition.sources:
            return []
        started_at = time.perf_counter()
        self.stored.take_over_sources()
        arrived_resources = retrieve(
            self._definition.retrieval_jobs,
            self._connector,
            offline=self.offline,
            progress=self.progress,
            verify_stored=self._was_damaged,
        )
        self._timings.append(("retrieve", time.perf_counter() - started_at))
        sources = []
        for declared, arrived in zip(self._definition.sources, arrived_resources, strict=True):
            sha256 = arrived.sha256
            if not sha256:
                sha256 = self._connector.verify_resource(arrived.identifier).sha256
            sources.append(
                SourceRecord(
                    identifier=declared.identifier,
                    size=arrived.size,
                    sha256=sha256,
                    md5_sum=declared.md5_sum,
                    verified=arrived.verified,
                    origin=arrived.source,
                )
            )
        return sources

    def _make_resources(
        self, sources: list[SourceRecord], journal: Journal | None
    ) -> list[ResourceRecord]:
        """Return what ``open()`` reads: the results of ``preprocess()``, or else the sources."""
        raw = []
        for source in sources:
            raw.append(ResourceRecord(source.identifier, source.size or 0, source.sha256))
        if self._definition.has_preprocess:
            return self._run_preprocess(sources, raw, journal)
        if not raw:
            raise PreparationError(
                f"could not prepare dataset {self._name!r} of {self._definition.factory}: it is "
                f"not in {self._connector!r}, and has neither sources nor preprocess()"
            )
        return raw

    def _run_preprocess(
        self, sources: list[SourceRecord], raw: list[ResourceRecord], journal: Journal | None
    ) -> list[ResourceRecord]:
        """Run the author's ``preprocess()``, and return the resources that it has made."""
        prepared = PreparedResources(
            self.stored,
            self._resume(sources, journal),
            hold=self._is_earlier_version_in_use(),
            progress=self.progress,
        )
        earlier_records = self._find_made(prepared)
        if earlier_records is not None:
            logger.info("dataset %r: all resources were prepared before", self._name)
            return earlier_records
        started_at = time.perf_counter()
        try:
            resources = Resources(self._connector, self._definition.folder, raw)
            if self.engine is None:
                self.factory.preprocess(resources, prepared)
            else:
                prepare_by(self.engine, self.factory, resources, prepared)
            prepared.publish()
            problem = self._incompleteness(list(prepared.records()))
            if problem is not None:
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
            # A task that raised has a traceback. One whose process died has none: its code is not
            # to blame for what was made before.
            has_died = not error.traceback_text
            raise self._failure(prepared, error, has_died=has_died) from error
        except Exception as error:
            raise self._failure(prepared, error) from error
        finally:
            prepared.discard(keep_steps=True)
            self._add_timings(prepared.timings, time.perf_counter() - started_at)
        return list(prepared.records())

    def _is_earlier_version_in_use(self) -> bool:
        """Return whether an intact dataset that differs from the definition is stored.

        Its resources stay in place until the new ones are complete.
        """
        earlier = self.stored.manifest()
        return (
            earlier is not None
            and self.stored.difference(earlier) is not None
            and self.stored.damage(earlier) is None
        )

    def _find_made(self, prepared: PreparedResources) -> list[ResourceRecord] | None:
        """Return the resources of a ``preprocess()`` that has finished before; None if none has."""
        step = prepared.step_that_made(WHOLE)
        if step is None or any(step.staged):
            return None
        records = list(step.resources)
        if self._incompleteness(records) is not None:
            return None
        return records

    def _add_timings(self, step_timings: list[tuple[str, float]], total_seconds: float) -> None:
        """Add the timings of the steps of ``preprocess()``, and of the rest of it."""
        step_seconds = sum(seconds for _, seconds in step_timings)
        self._timings.extend(step_timings)
        self._timings.append(("preprocess", total_seconds - step_seconds))

    def _resume(self, sources: list[SourceRecord], journal: Journal | None) -> Journal:
        """Return the journal to continue.

        It is the stored one if the same code began it, otherwise a new one.
        """
        own_fingerprint = self._fingerprint(sources)
        code = code_digest(self.factory)
        if journal is not None and journal.fingerprint != own_fingerprint:
            # It is that of other sources, or of another class.
            journal = None
        is_of_same_code = journal is not None and journal.codes == (code,)
        if not is_of_same_code and not self.keep_steps:
            journal = None
        if journal is None:
            if self.stored.was_begun():
                # Remove what another preparation made, while its journal still says that the
                # dataset is not complete.
                self.stored.remove_staged()
            journal = Journal(own_fingerprint)
        elif journal.steps and not is_of_same_code:
            logger.warning(
                "dataset %r mixes results of different code: keep_steps kept %.200s. To make all "
                "of it by the present code, prepare it again without keep_steps: data-stack "
                "prepare %s --again",
                self._name,
                ", ".join(repr(step.name) for step in journal.steps),
                self._name,
            )
        if code not in journal.codes:
            journal = replace(journal, codes=(*journal.codes, code))
            self.stored.write_journal(journal)
        return journal

    def _failure(
        self, prepared: PreparedResources, error: Exception, *, has_died: bool = False
    ) -> PreparationError:
        """Return the error for a failure of the author's code.

        What that code has made is removed, for it may be wrong too, unless the steps are kept, or
        the process of the code has died.
        """
        if has_died or self.keep_steps:
            what_is_kept = "The retrieved sources and all finished steps and shards are kept."
            with contextlib.suppress(StorageError):
                # The stored journal may lack the latest steps.
                self.stored.write_journal(prepared.journal)
        else:
            what_is_kept = "The retrieved sources are kept, and nothing else."
            self._forget(prepared)
        place = ""
        if prepared.current_step:
            place = f" in step {prepared.current_step!r}"
        return PreparationError(
            f"could not prepare dataset {self._name!r} {self._definition.card.version}: "
            f"{self._definition.factory} failed{place} with {describe_error(error)}\n"
            f"Fix the cause and prepare it again (data-stack prepare {self._name}). {what_is_kept}"
        )

    def _forget(self, prepared: PreparedResources) -> None:
        """Remove what a failed preparation made.

        An empty journal stays, so that no incomplete store is adopted.
        """
        made_names = {record.identifier for record in prepared.records()}
        for step in prepared.journal.steps:
            made_names.update(record.identifier for record in step.resources)

        # An earlier version of the dataset may still be in use.
        names_in_use = set()
        manifest = self.stored.manifest()
        if manifest is not None:
            names_in_use = {record.identifier for record in manifest.prepared}

        # Asked last, as another process may have made the dataset ready meanwhile: then these
        # resources are its work.
        if self.stored.ready_manifest() is not None:
            return
        with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
            self.stored.write_journal(replace(prepared.journal, steps=()))
            self.stored.remove_staged()
            for name in sorted(made_names - names_in_use):
                self.stored.delete(name)

    # -------------------------------------------------------------------------------- checking

    def _incompleteness(self, records: list[ResourceRecord]) -> str | None:
        """Return what ``preprocess()`` should have made and has not; None if it made all."""
        names = {record.identifier for record in records}
        declared_names = self._definition.prepared_resources or ()
        missing_names = [name for name in declared_names if name not in names]
        if missing_names:
            return (
                f"preprocess() has not created {', '.join(missing_names)}, which "
                f"prepared_resources declares"
            )
        if not records:
            return (
                "preprocess() has created nothing; store what open() reads with prepared.create()"
            )
        return None

    def _check_opens(self, records: list[ResourceRecord]) -> list[str]:
        """Open each split before the dataset counts as ready.

        Returns:
            The names of the resources that ``open()`` has read.
        """
        names_read = dict[str, None]()
        class_lists: dict[str, Sequence[Any]] = {}
        if self.factory.class_names is not None:
            class_lists["class_names of the dataset"] = self.factory.class_names
        for split in self._definition.splits:
            try:
                opened = self._read_ends(split, records)
                names_read.update(dict.fromkeys(opened.names_read))
                class_lists[f"split {split!r}"] = opened.classes
                check_class_numbers(class_lists)
            except MissingDependencyError as error:
                # Other machines may have the package.
                logger.warning(
                    "dataset %r: could not check that split %r opens: %s", self._name, split, error
                )
            except Exception as error:
                if not all(self.stored.holds(record) for record in records):
                    # Another process that works without a lease is replacing it.
                    raise Superseded from error
                if isinstance(error, StorageError):
                    raise
                raise PreparationError(
                    f"split {split!r} cannot be opened: open() of {self._definition.factory}, or "
                    f"reading its first or last sample, failed with {describe_error(error)}\n"
                    f"Fix open() and prepare {self._name} again; if preprocess() stays as it is, "
                    f"keep_steps=True (`data-stack prepare --keep-steps`) reuses the prepared "
                    f"resources."
                ) from error
        return list(names_read)

    def _read_ends(self, split: str, records: list[ResourceRecord]) -> _OpenedSplit:
        """Read the first and last sample of a split, unless ``open()`` has a required option."""
        if any(self._definition.options.values()):
            return _OpenedSplit()
        resources = NotedResources(self._connector, self._definition.folder, records)
        iterator = self._definition.open_split(self.factory, split, resources, {})
        # Now, as the first question for the number of samples may read something, too.
        names_read = tuple(resources.names_read())
        n_samples = len(iterator)
        if n_samples == 0:
            return _OpenedSplit(names_read)
        for position in {0, n_samples - 1}:
            self._definition.check_sample(iterator[position])
        return _OpenedSplit(names_read, known_classes(iterator))

    # ------------------------------------------------------------------------------ provenance

    def _fingerprint(self, sources: Iterable[SourceRecord]) -> str:
        """Return the fingerprint that a journal of this dataset and these sources has."""
        return fingerprint(
            self._name, self._definition.card.version, self._definition.factory, sources
        )

    def _manifest(
        self, sources: list[SourceRecord], records: list[ResourceRecord], *, adopted: bool
    ) -> Manifest:
        """Return the manifest of the dataset, written now.

        Args:
            sources: the sources of the preparation.
            records: the records of the resources that ``open()`` reads.
            adopted: whether the resources were found, and not prepared.
        """
        now = datetime.datetime.now(datetime.timezone.utc)
        seconds = None
        if not adopted:
            seconds = round(sum(step_seconds for _, step_seconds in self._timings), 3)
        return Manifest(
            name=self._name,
            version=self._definition.card.version,
            factory=self._definition.factory,
            distribution=distribution_of(self._definition.factory),
            sources=tuple(sources),
            prepared=tuple(records),
            adopted=adopted,
            created=now.isoformat(timespec="seconds"),
            framework=distribution_of(__name__),
            seconds=seconds,
        )


def _nothing_to_do(manifest: Manifest) -> PreparationReport:
    return PreparationReport((), manifest.adopted, already_ready=True)
