"""Prepares a dataset from its sources up to its manifest; safe against crashes and concurrent processes.

The order of writes makes it safe: sources; journal; removal of an old manifest; prepared resources, each stored
atomically; manifest; removal of the journal. A valid manifest implies a complete dataset, so a crash at any point
leaves a dataset that is ready or that the next preparation completes. The lease only avoids duplicate work.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
)
from data_stack.factories.code_digest import code_digest
from data_stack.factories.journal import WHOLE, Journal, fingerprint
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.prepared import PreparedResources, Resources, Superseded
from data_stack.factories.resource_names import MANIFEST
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.shards import prepare_by
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.util.distributions import distribution_of
from data_stack.util.logger import logger
from data_stack.util.polling import polls

_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """What :meth:`DatasetFactory.prepare` did.

    Attributes:
        steps: (name, seconds) in order: ``"retrieve"``, each step of ``preprocess()``, and ``"preprocess"`` for the rest of it.
            Empty if the dataset was ready.
        adopted: the store was complete without a manifest, and was adopted.
        already_ready: there was nothing to do.
        reason: why stored data of the dataset could not be used; None if nothing was stored, or nothing to do.
    """

    steps: tuple[tuple[str, float], ...]
    adopted: bool
    already_ready: bool
    reason: str | None = None

    @property
    def seconds(self) -> float:
        """Duration of all steps."""
        return sum(seconds for _, seconds in self.steps)


@dataclass
class Preparation:
    """One attempt to make a dataset ready.

    Args:
        stored: the dataset in its store.
        factory: the author's.
        engine: prepares the shards, under temporary names; None: this process does.
        again: prepare a ready dataset again.
        keep_steps: keep finished steps when the author's code raises, and reuse steps of other code.
        offline: use no network; None reads the environment.
        progress: show progress bars; None shows them on a terminal.
    """

    stored: StoredDataset
    factory: Any
    engine: PreparationEngine | None = None
    again: bool = False
    keep_steps: bool = False
    offline: bool | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        self._definition, self._connector = self.stored.definition, self.stored.connector
        self._name = self._definition.card.name
        if (
            self.engine is not None
            and self.engine.leaves_process
            and isinstance(self._connector, InMemoryStorageConnector)
        ):
            problem = (
                f"which cannot reach a store in the memory of this process ({self._connector!r})"
            )
            advice = "use a folder or a server, or no engine"
            raise ConfigError(
                f"{type(self.engine).__name__} prepares in other processes, {problem}: {advice}"
            )
        self._timings: list[tuple[str, float]] = []

    def run(self, lease_timeout_seconds: float) -> tuple[Manifest, PreparationReport]:
        """Make the dataset ready if it is not.

        Returns:
            The manifest, which is stored unless the store cannot be written, and the report.

        Raises:
            RetrievalError, StorageError: a source did not arrive, or something could not be stored.
            PreparationError: the author's code failed.
        """
        manifest = self.stored.ready_manifest()
        if self.again:
            self.stored.outdated, manifest = manifest, None
        if manifest is not None:
            self._tidy_up(manifest)
            return manifest, PreparationReport((), manifest.adopted, already_ready=True)
        with self._connector.lease(self.stored.identifier(MANIFEST)) as lease:
            manifest = self._wait_for(lease, lease_timeout_seconds)
            if manifest is not None:
                return manifest, PreparationReport((), manifest.adopted, already_ready=True)
            self._connector.remove_abandoned(f"{self._definition.folder}/")
            readiness = self.stored.readiness(
                None if self.keep_steps else lambda: code_digest(self.factory)
            )
            self._was_damaged = readiness.is_damaged  # then the sources may be damaged, too
            if readiness.reason is not None and not readiness.resumes:
                copy = (
                    "; if that fails, bring an intact copy: data-stack copy --deep INTACT_STORE THIS_STORE "
                    + self._name
                )
                why = readiness.reason + copy * readiness.is_damaged
                logger.warning("dataset %r is prepared again: %s", self._name, why)
            wait = 0.0
            for attempt in range(_ATTEMPTS):
                # Without a lease, other processes may replace a resource meanwhile. Each then waits for a random time, so that
                # one of them finishes undisturbed.
                started = time.monotonic()
                time.sleep(wait)
                manifest = self.stored.ready_manifest() or self._adopt() or self._prepare()
                if manifest is not None and self.stored.damage(manifest) is None:
                    return manifest, PreparationReport(
                        tuple(self._timings), manifest.adopted, False, readiness.reason
                    )
                wait = random.SystemRandom().uniform(0.5, 2 * 3.0**attempt) * (
                    time.monotonic() - started - wait
                )
        advice = f"stop other writers below {self._definition.folder!r}, and prepare it again"
        problem = f"but each time another process replaced a part of it in {self._connector!r}"
        raise PreparationError(
            f"dataset {self._name!r} was prepared {_ATTEMPTS} times, {problem}; {advice}"
        )

    def _tidy_up(self, manifest: Manifest) -> None:
        """Clean up after a preparation that died between its last two operations, the manifest and the end of the journal."""
        journal = self.stored.journal()
        if journal is not None and journal.fingerprint == self._fingerprint(manifest.sources):
            with self._connector.lease(self.stored.identifier(MANIFEST)) as lease:
                if lease.acquire():  # else another process prepares it again, and needs both
                    self._end()

    def _end(self) -> None:
        """Remove temporary resources, and the journal last."""
        self.stored.remove_staged()
        self._connector.remove_abandoned(f"{self._definition.folder}/")
        self.stored.remove_journal()

    # ------------------------------------------------------------------ alone or not

    def _wait_for(self, lease: Lease, timeout_seconds: float) -> Manifest | None:
        """Wait for the lease, or for another process to make the dataset ready."""
        for _ in polls(timeout_seconds, first=0.02, longest=1.0):
            if lease.acquire() or self.stored.ready_manifest() is not None:
                break
        else:
            logger.warning(
                "dataset %r: another process prepares it for too long; preparing it too", self._name
            )
        return self.stored.ready_manifest()

    # ------------------------------------------------------------------ adoption

    def _adopt(self) -> Manifest | None:
        """A manifest for a complete store without one, as the original DataStack left it."""
        if self._definition.prepared_resources is None or self.stored.was_begun():
            return None
        started = time.perf_counter()
        try:
            found = [(name, self.stored.stat(name)) for name in self._definition.prepared_resources]
            records = [
                ResourceRecord(name, info.size, info.sha256)
                for name, info in found
                if info is not None
            ]
            if len(records) < len(found):
                return None
            manifest = self._describe_adopted(records)
        except Exception as error:  # noqa: BLE001  # damaged files make the author's open() fail in any way
            why = f"({type(error).__name__}: {error}); preparing it again"
            logger.warning(
                "dataset %r: complete but damaged in %r %s", self._name, self._connector, why
            )
            return None
        self._timings.append(("adopt", time.perf_counter() - started))
        return manifest

    def _describe_adopted(self, records: list[ResourceRecord]) -> Manifest:
        sources = []
        for source in self._definition.sources:
            size = None if (info := self.stored.stat(source.identifier)) is None else info.size
            sources.append(
                SourceRecord(
                    source.identifier,
                    size,
                    source.sha256,
                    source.md5_sum,
                    verified=False,
                    origin=None,
                )
            )
        for split in self._definition.splits:
            self._read_ends(split, records)
        manifest = self._manifest(sources, records, adopted=True)
        try:
            with self._connector.create(self.stored.identifier(MANIFEST)) as file:
                manifest = replace(manifest, prepared=tuple(self._verify(records)))
                file.write(manifest.to_json())
            logger.info(
                "dataset %r: adopted, as it is complete without a manifest in %r",
                self._name,
                self._connector,
            )
        except StorageError as error:
            logger.info(
                "dataset %r: complete without a manifest; used without one: %s", self._name, error
            )
        return manifest

    def _verify(self, records: list[ResourceRecord]) -> Iterator[ResourceRecord]:
        """The records with digests of what is stored."""
        for record in with_bar(
            records, self.progress, desc=f"{self._name}: computing checksums", unit="resource"
        ):
            try:
                info = self._connector.verify_resource(
                    self.stored.identifier(record.identifier), record.sha256
                )
            except (
                StorageError
            ) as error:  # a read error must not look like a store that cannot be written
                raise DatasetFileCorruptError(str(error)) from error
            yield ResourceRecord(record.identifier, info.size, info.sha256)

    # ------------------------------------------------------------------ preparation

    def _prepare(self) -> Manifest | None:
        """Prepare the dataset; None if another process interfered."""
        if not self._definition.has_preprocess:
            self.stored.invalidate()  # open() reads the sources, which are about to be replaced
        journal = None if self.stored.outdated is not None else self.stored.journal()
        sources = self._retrieve()
        raw = [
            ResourceRecord(source.identifier, source.size or 0, source.sha256) for source in sources
        ]
        try:
            if self._definition.has_preprocess:
                raw = self._run_preprocess(sources, raw, journal)
            elif not raw:
                problem = (
                    f"it is not in {self._connector!r}, and has neither sources nor preprocess()"
                )
                raise PreparationError(
                    f"could not prepare dataset {self._name!r} of {self._definition.factory}: {problem}"
                )
            self._check_opens(raw)
            manifest = self.stored.ready_manifest()
            is_superseded = manifest is not None
        except Superseded:
            manifest, is_superseded = self.stored.ready_manifest(), True
        if is_superseded:
            logger.info("dataset %r: another process has prepared it", self._name)
            return manifest
        manifest = self._manifest(sources, raw, adopted=False)
        self.stored.write(MANIFEST, manifest.to_json())  # from now on the dataset is ready
        self.stored.outdated = None
        if self.engine is not None or journal is not None:
            self._end()
        else:
            self.stored.remove_journal()
        logger.info("dataset %r %s is ready in %r", self._name, manifest.version, self._connector)
        return manifest

    def _retrieve(self) -> list[SourceRecord]:
        if not self._definition.sources:
            return []
        started = time.perf_counter()
        self.stored.take_over_sources()
        how: dict[str, Any] = {
            "offline": self.offline,
            "progress": self.progress,
            "verify_stored": self._was_damaged,
        }
        arrived = retrieve(self._definition.retrieval_jobs, self._connector, **how)
        self._timings.append(("retrieve", time.perf_counter() - started))
        sources = []
        for declared, got in zip(self._definition.sources, arrived, strict=True):
            sha256 = got.sha256 or self._connector.verify_resource(got.identifier).sha256
            sources.append(
                SourceRecord(
                    declared.identifier,
                    got.size,
                    sha256,
                    declared.md5_sum,
                    got.verified,
                    got.source,
                )
            )
        return sources

    def _run_preprocess(
        self, sources: list[SourceRecord], raw: list[ResourceRecord], journal: Journal | None
    ) -> list[ResourceRecord]:
        journal = self._resume(sources, journal)
        earlier = self.stored.manifest()
        in_use = (
            earlier is not None
            and self.stored.difference(earlier) is not None
            and self.stored.damage(earlier) is None
        )
        prepared = PreparedResources(self.stored, journal, hold=in_use, progress=self.progress)
        made = prepared.step_that_made(WHOLE)
        if (
            made is not None
            and not any(made.staged)
            and self._incompleteness(list(made.resources)) is None
        ):
            logger.info("dataset %r: all resources were prepared before", self._name)
            return list(made.resources)
        started = time.perf_counter()
        try:
            preprocess = (
                self.factory.preprocess
                if self.engine is None
                else partial(prepare_by, self.engine, self.factory)
            )
            preprocess(Resources(self._connector, self._definition.folder, raw), prepared)
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
            self._timings += [
                *prepared.timings,
                ("preprocess", elapsed - sum(seconds for _, seconds in prepared.timings)),
            ]
        return list(prepared.records())

    def _resume(self, sources: list[SourceRecord], journal: Journal | None) -> Journal:
        """The journal to continue: the stored one if the same code began it, otherwise a new one."""
        own, code = self._fingerprint(sources), code_digest(self.factory)
        if (
            journal is None
            or journal.fingerprint != own
            or (journal.codes != (code,) and not self.keep_steps)
        ):
            if self.stored.was_begun():
                self.stored.remove_staged()  # shards of another preparation, while its journal still lists them
            journal = Journal(own)
        elif journal.steps and journal.codes != (code,):
            logger.warning(
                "dataset %r mixes results of different code: keep_steps kept %.200s. To make all of it by the present code, "
                "prepare it again without keep_steps: data-stack prepare %s --again",
                *(self._name, ", ".join(repr(step.name) for step in journal.steps), self._name),
            )
        if code not in journal.codes:
            journal = replace(journal, codes=(*journal.codes, code))
            self.stored.write_journal(journal)
        return journal

    def _failure(
        self, prepared: PreparedResources, error: Exception, *, has_died: bool = False
    ) -> PreparationError:
        """The error for a failure of the author's code; removes what that code made, which may be wrong too."""
        step, keeps = (
            f" in step {prepared.current_step!r}" if prepared.current_step else "",
            has_died or self.keep_steps,
        )
        if keeps:
            with contextlib.suppress(StorageError):
                self.stored.write_journal(prepared.journal)  # steps that were not recorded yet
        else:
            self._forget(prepared)
        return PreparationError(
            f"could not prepare dataset {self._name!r} {self._definition.card.version}: {self._definition.factory} failed{step} "
            f"with {type(error).__name__}: {error}\nFix the cause and prepare it again (data-stack prepare {self._name}). The "
            f"retrieved sources {'and all finished steps and shards are kept' if keeps else 'are kept, and nothing else'}."
        )

    def _forget(self, prepared: PreparedResources) -> None:
        """Remove what a failed preparation made; an empty journal stays, so that no incomplete store is adopted."""
        names = {record.identifier for step in prepared.journal.steps for record in step.resources}
        names.update(record.identifier for record in prepared.records())
        manifest = self.stored.manifest()
        in_use = set() if manifest is None else {record.identifier for record in manifest.prepared}
        if self.stored.ready_manifest() is not None:
            return  # the work of another process
        with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
            self.stored.write_journal(replace(prepared.journal, steps=()))
            self.stored.remove_staged()
            for name in sorted(names - in_use):
                self.stored.delete(name)

    def _incompleteness(self, made: list[ResourceRecord]) -> str | None:
        """Which resources are missing that ``preprocess()`` should have made, if any."""
        names = {record.identifier for record in made}
        if missing := [
            name for name in self._definition.prepared_resources or () if name not in names
        ]:
            return f"preprocess() has not created {', '.join(missing)}, which prepared_resources declares"
        return (
            None
            if made
            else "preprocess() has created nothing; store what open() reads with prepared.create()"
        )

    def _check_opens(self, made: list[ResourceRecord]) -> None:
        """Open each split before the dataset counts as ready."""
        for split in self._definition.splits:
            try:
                self._read_ends(split, made)
            except MissingDependencyError as error:  # other machines may have it
                logger.warning(
                    "dataset %r: could not check that split %r opens: %s", self._name, split, error
                )
            except Exception as error:
                if not all(self.stored.holds(record) for record in made):
                    raise Superseded from error  # another process that works without a lease is replacing it
                if isinstance(error, StorageError):
                    raise
                raise PreparationError(
                    f"split {split!r} cannot be opened: open() of {self._definition.factory}, or reading its first or last "
                    f"sample, failed with {type(error).__name__}: {error}\nFix open() and prepare {self._name} again; if "
                    f"preprocess() stays as it is, --keep-steps (keep_steps=True) reuses the prepared resources."
                ) from error

    def _read_ends(self, split: str, made: list[ResourceRecord]) -> None:
        """Read the first and last sample of a split, unless ``open()`` has a required option."""
        if not any(self._definition.options.values()):
            resources = Resources(self._connector, self._definition.folder, made)
            iterator = self._definition.open_split(self.factory, split, resources, {})
            for index in {0, len(iterator) - 1} if len(iterator) else ():
                self._definition.check_sample(iterator[index])

    # ------------------------------------------------------------------ provenance

    def _fingerprint(self, sources: list[SourceRecord] | tuple[SourceRecord, ...]) -> str:
        return fingerprint(
            self._name, self._definition.card.version, self._definition.factory, sources
        )

    def _manifest(
        self, sources: list[SourceRecord], prepared: list[ResourceRecord], *, adopted: bool
    ) -> Manifest:
        version, factory = self._definition.card.version, self._definition.factory
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        seconds = None if adopted else round(sum(seconds for _, seconds in self._timings), 3)
        how = (tuple(sources), tuple(prepared), adopted, now, distribution_of(__name__), seconds)
        return Manifest(self._name, version, factory, distribution_of(factory), *how)
