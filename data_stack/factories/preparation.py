"""Prepares a dataset from its sources up to its manifest, safe against crashes.

The order of writes makes it safe: sources; journal; removal of an old manifest; prepared resources,
each stored atomically; manifest; removal of the journal. A valid manifest implies a complete
dataset, so a crash at any point leaves a dataset that is ready or that the next preparation
completes. The same holds for concurrent processes: the lease only avoids duplicate work.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from data_stack.engines.engine import PreparationEngine
from data_stack.exception import ConfigError, PreparationError
from data_stack.factories.adoption import Adoption
from data_stack.factories.code_digest import code_digest
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.journal import Journal
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.new_manifest import make_manifest
from data_stack.factories.opening_checks import OpeningChecks
from data_stack.factories.prepared import Superseded
from data_stack.factories.preprocess_run import PreprocessRun
from data_stack.factories.resource_names import MANIFEST
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.stored import StoredDataset
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.util.logger import logger
from data_stack.util.polling import polls

#: How often a dataset is prepared whose resources other processes replace meanwhile.
_MAX_ATTEMPTS = 4

#: Before the next attempt, a process waits for a random multiple of the time that its last attempt
#: took: of at least this ...
_MIN_WAIT_FACTOR = 0.5

#: ... and after the first attempt at most this.
_MAX_FIRST_WAIT_FACTOR = 2.0

#: The maximum grows by this factor with each further attempt. So processes that disturb each other
#: drift apart until one of them has the time that it needs.
_GROWTH_OF_MAX_WAIT = 3.0


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
            max_factor = _MAX_FIRST_WAIT_FACTOR * _GROWTH_OF_MAX_WAIT**attempt
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
        own_fingerprint = self.stored.journal_fingerprint(manifest.sources)
        if journal is None or journal.fingerprint != own_fingerprint:
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

    def _adopt(self) -> Manifest | None:
        """Return the manifest of a complete store without one; None if there is none to adopt."""
        started_at = time.perf_counter()
        manifest = Adoption(self.stored, self.factory, progress=self.progress).adopt()
        if manifest is not None:
            self._timings.append(("adopt", time.perf_counter() - started_at))
        return manifest

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
            names_read = OpeningChecks(self.stored, self.factory).check(records)
        except Superseded:
            return self._use_other_preparation()
        if self.stored.ready_manifest() is not None:
            return self._use_other_preparation()

        self.stored.write_opening_files(records, names_read)
        # When the manifest is stored, the dataset is ready.
        seconds = sum(step_seconds for _, step_seconds in self._timings)
        manifest = make_manifest(self._definition, sources, records, seconds=seconds)
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
        run = PreprocessRun(
            self.stored,
            self.factory,
            self.engine,
            keep_steps=self.keep_steps,
            progress=self.progress,
        )
        try:
            return run.run(sources, raw, journal)
        finally:
            self._timings.extend(run.timings)


def _nothing_to_do(manifest: Manifest) -> PreparationReport:
    return PreparationReport((), manifest.adopted, already_ready=True)
