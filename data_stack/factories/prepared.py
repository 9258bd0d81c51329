"""The resources that the author's ``preprocess()`` has made so far."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from data_stack.exception import (
    ConfigError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.journal import WHOLE, Journal, Step
from data_stack.factories.resource_names import STAGED, ResourceNames
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.resources import Resources as Resources
from data_stack.factories.stored import StoredDataset
from data_stack.io.job_threads import JobThreads
from data_stack.io.progress import shows_progress, with_bar
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.util.logger import logger

#: Up to this number, each step is recorded as soon as it is finished. Each record lists all steps.
_MAX_STEPS_RECORDED_AT_ONCE = 100

#: Beyond it, recording takes at most this share of the time: one part of 1 + 20.
_PAUSE_FACTOR = 20

#: Renaming a resource takes a few requests to a server, or a copy.
_N_RENAMING_THREADS = 8


class Superseded(BaseException):
    """Another process has made the dataset ready, so this preparation stops.

    Not an Exception, so that ``except Exception`` in an author's code does not catch it. Never
    leaves this package.
    """


class PreparedResources(Resources):
    """The resources that ``preprocess()`` has made so far; creates more.

    ::

        for split in prepared.steps(self.splits):  # finished steps are not repeated after a crash
            # It is stored when the block ends without error.
            with prepared.create(f"preprocessed/{split}.npy") as file:
                numpy.save(file, ...)

    Threads may create resources concurrently. It does not pickle; send ``raw`` to workers, and
    create from their results.

    Args:
        stored: the dataset in its store.
        journal: the steps that were finished before.
        hold: store all resources under temporary names until :meth:`publish`, because the earlier
            ones are in use.
        progress: show a bar over the steps; None shows it on a terminal and in a notebook.
        opening: the token of the attempt at one shard, see :meth:`StoredDataset.open_shards`; None
            for the leading process.
    """

    #: The dataset in its store.
    stored: StoredDataset

    #: Whether to show a bar over the steps.
    shows_progress: bool

    #: The step whose body is running.
    current_step: str | None

    #: (step, seconds), in order.
    timings: list[tuple[str, float]]

    #: The journal as it was; its steps are in ``_steps``.
    _journal: Journal

    #: The finished steps by name, in the order of completion.
    _steps: dict[str, Step]

    #: The names that are used below the dataset.
    _names: ResourceNames

    #: The temporary names of resources, by name.
    _staged: dict[str, str]

    #: Whether resources are stored under temporary names.
    _hold: bool

    #: The token of the attempt at one shard, see :meth:`StoredDataset.open_shards`; None in the
    #: leading process.
    _opening: str | None

    #: Guards the names, and the records of what threads have made.
    _lock: threading.RLock

    #: What the current step has made.
    _made_in_step: list[str]

    #: The steps that were asked for.
    _seen_steps: set[str]

    #: When the journal is stored again, on the monotonic clock.
    _record_at: float

    def __init__(
        self,
        stored: StoredDataset,
        journal: Journal,
        *,
        hold: bool,
        progress: bool | None,
        opening: str | None = None,
    ) -> None:
        super().__init__(stored.connector, stored.definition.folder, ())
        self.stored = stored
        self.shows_progress = shows_progress(progress)
        self.current_step = None
        self.timings = []
        self._journal = journal
        self._steps = {step.name: step for step in journal.steps}
        source_names = (source.identifier for source in stored.definition.sources)
        self._names = ResourceNames(self._dataset, source_names)
        self._staged = {}
        self._hold = hold
        self._opening = opening
        self._lock = threading.RLock()
        self._made_in_step = []
        self._seen_steps = set()
        self._record_at = 0.0

    # ----------------------------------------------------------------------------- for authors

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[ResourceWriter]:
        """Write a resource as a file that can also read and seek.

        ``with prepared.create("preprocessed/a.h5") as file: …``. It is stored when the block ends
        without error.

        Raises:
            MalformedIdentifierError: the name is not a valid identifier.
            ConfigError: a source, another resource, the manifest or the journal has the name.
            StorageError: it could not be written.
        """
        with self._lock:
            self._names.take(name)
        stored_as = name
        if self._hold:
            stored_as = f"{STAGED}{secrets.token_hex(16)}"
        try:
            with self._connector.create(f"{self._dataset}/{stored_as}") as writer:
                yield writer
                self.check_wanted()
            with self._lock:
                self._records[name] = ResourceRecord(name, writer.digest.size, writer.digest.sha256)
                self._made_in_step.append(name)
                if self._hold:
                    self._staged[name] = stored_as
        except BaseException:
            with self._lock:
                self._names.release(name)
            raise

    def steps(self, names: Iterable[str]) -> Iterator[str]:
        """Iterate over the steps that are not finished.

        A step is finished when the loop's body ends without error. A finished step is repeated only
        if its resources were lost or changed.

        Raises:
            ConfigError: a name occurs twice, or is not a string.
        """
        title = f"{self.stored.definition.card.name}: preparing"
        if isinstance(names, str):
            # Its characters would be taken for names.
            raise self._invalid_steps(names)
        name: Any
        for name in with_bar(names, self.shows_progress, desc=title, unit="step"):
            if not isinstance(name, str) or name in self._seen_steps or name == WHOLE:
                raise self._invalid_steps(names)
            self._seen_steps.add(name)
            if self.take_over(name):
                logger.info("dataset %r: step %r was finished before", self._dataset, name)
                continue
            self.current_step = name
            self._made_in_step = []
            started_at = time.perf_counter()
            yield name
            self.timings.append((name, time.perf_counter() - started_at))
            self.current_step = None
            self._note_step(name, self._made_in_step)

    # --------------------------------------------------------------------- for the preparation

    @property
    def journal(self) -> Journal:
        """The finished steps."""
        return replace(self._journal, steps=tuple(self._steps.values()))

    def note_whole(self) -> None:
        """Record that all resources are published."""
        self._steps.clear()
        self._note_step(WHOLE, self._records)

    def step_that_made(self, name: str) -> Step | None:
        """Return a finished step with the current names of its resources.

        Returns:
            The step; None if it is not finished, or lost a resource.
        """
        step = self._steps.get(name)
        if step is None:
            return None
        staged_names: list[str | None] = []
        for record, staged_name in zip(step.resources, step.staged, strict=True):
            if staged_name is not None and self.stored.holds(record, staged_name):
                staged_names.append(staged_name)
            elif self.stored.holds(record):
                # It has its final name, or was renamed before the interruption.
                staged_names.append(None)
            else:
                return None
        return replace(step, staged=tuple(staged_names))

    def note(self, done: Step) -> None:
        """Record a finished step, or a shard that another process has finished.

        Storing the journal takes a twentieth of the time at most.
        """
        if self._opening is not None:
            # The steps within a shard are not recorded: an interrupted shard starts over.
            return
        # The journal has the steps in the order of completion.
        self._steps.pop(done.name, None)
        self._steps[done.name] = done
        started_at = time.monotonic()
        if started_at >= self._record_at:
            self.stored.write_journal(self.journal)
            stopped_at = time.monotonic()
            self._record_at = stopped_at + _PAUSE_FACTOR * (stopped_at - started_at)

    def take_over(self, name: str) -> bool:
        """Take over the resources of a finished step.

        Those with temporary names are renamed by :meth:`publish`.

        Returns:
            Whether the step is finished.

        Raises:
            ConfigError: a name is used already.
        """
        step = self.step_that_made(name)
        if step is None:
            return False
        for record, staged_name in zip(step.resources, step.staged, strict=True):
            self._names.take(record.identifier)
            self._records[record.identifier] = record
            if staged_name is not None:
                self._staged[record.identifier] = staged_name
        return True

    def is_whole(self) -> bool:
        """Return whether all resources are still there."""
        for name, record in self._records.items():
            if not self.stored.holds(record, self._staged.get(name)):
                return False
        return True

    def publish(self) -> None:
        """Rename resources from their temporary names."""
        with self._lock:
            if self._staged:
                self._make_way()
                JobThreads(list(self._staged), self._publish_one, _N_RENAMING_THREADS).run()
            self._staged.clear()
            self._hold = False

    def discard(self, *, keep_steps: bool = False) -> None:
        """Remove resources with temporary names.

        If that fails, they are removed when the dataset is ready.

        Args:
            keep_steps: keep those of finished steps.
        """
        kept_names = set[str | None]()
        if keep_steps:
            for step in self._steps.values():
                kept_names.update(step.staged)
        while self._staged:
            _, staged_name = self._staged.popitem()
            if staged_name not in kept_names:
                with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
                    self.stored.delete(staged_name)

    def records(self) -> tuple[ResourceRecord, ...]:
        """Return all resources, of this attempt and of earlier ones."""
        return tuple(self._records.values())

    def step_of(self, name: str, made: Iterable[str]) -> Step:
        """Return a finished step that made these resources."""
        names = list(made)
        return Step(
            name,
            resources=tuple(self._records[resource] for resource in names),
            staged=tuple(self._staged.get(resource) for resource in names),
        )

    def check_wanted(self) -> None:
        """Check that the results of this preparation are still wanted, before one is stored.

        A resource that is stored under its final name replaces an older one.

        Raises:
            Superseded: another process has prepared the dataset.
        """
        if self._opening is not None and not self.stored.wants_shards(self._opening):
            raise Superseded
        if not self._hold:
            self._make_way()

    # ---------------------------------------------------------------------------------- inside

    def _identifier(self, name: str) -> str:
        """Return the identifier in the store of a resource, which may have a temporary name."""
        staged_name = self._staged.get(name)
        if staged_name is not None:
            return f"{self._dataset}/{staged_name}"
        return super()._identifier(name)

    def _invalid_steps(self, names: object) -> ConfigError:
        return ConfigError(
            f'steps of {self._dataset!r} need distinct names such as ("train", "test"), '
            f"got {names!r:.80}"
        )

    def _make_way(self) -> None:
        """Remove an old manifest before a resource is replaced.

        Raises:
            Superseded: the dataset has become ready.
        """
        if self.stored.ready_manifest() is not None:
            raise Superseded
        self.stored.invalidate()

    def _publish_one(self, name: str) -> None:
        """Rename a resource from its temporary name."""
        source = self.stored.identifier(self._staged[name])
        try:
            # If the store cannot delete, the resource is copied, and its temporary name stays.
            with contextlib.suppress(UnsupportedStorageOperationError):
                self._connector.move_resource(source, self.stored.identifier(name))
        except ResourceNotFoundError:
            if not self.stored.holds(self._records[name]):
                # Another process has finished and cleaned up.
                raise Superseded from None

    def _note_step(self, name: str, made: Iterable[str]) -> None:
        """Record a step that this process has finished, and the resources that it made."""
        if len(self._steps) < _MAX_STEPS_RECORDED_AT_ONCE:
            # Store the journal now.
            self._record_at = 0.0
        self.note(self.step_of(name, made))
