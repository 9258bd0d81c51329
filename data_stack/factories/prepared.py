"""The resources of one dataset, as the author's code uses them."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from data_stack.exception import (
    ConfigError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.journal import WHOLE, Journal, Step
from data_stack.factories.resource_names import STAGED, ResourceNames
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.stored import StoredDataset
from data_stack.io.job_threads import JobThreads
from data_stack.io.progress import shows_progress, with_bar
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.util.logger import logger
from data_stack.util.suggestions import did_you_mean

_ALL_NOTED = 100  # steps that are recorded at once; each record lists all of them


class Resources(Mapping[str, StreamedResource]):
    """The stored resources of one dataset by their names relative to the dataset.

    ``resources["raw/digits.csv.gz"]`` returns a resource that opens when it is first read; the caller closes it. If it was
    replaced since the preparation, reading it is an error. Pickles with its storage connector.

    Args:
        storage_connector: the store; None for a dataset that stores nothing.
        dataset: the folder of its resources, ``name/version``.
        records: the resources as they were stored.
    """

    def __init__(
        self,
        storage_connector: StorageConnector | None,
        dataset: str,
        records: Iterable[ResourceRecord],
    ) -> None:
        self._connector: Any = storage_connector
        self._dataset = dataset
        self._records = {record.identifier: record for record in records}

    def __getitem__(self, name: str) -> StreamedResource:
        """Open a resource, lazily.

        Raises:
            ResourceNotFoundError: the dataset has no such resource, or the store has lost it.
            ResourceChangedError: it was replaced since the dataset was found ready.
        """
        info = self.stat(name)
        resource: StreamedResource = self._connector.get_resource(info.identifier)
        # Pinned, as it is opened later. A third party's connector may return another kind of stream.
        if isinstance(resource, StreamedResource):
            resource.reopen_by(self._connector).pin(info.sha256)
        return resource

    def stat(self, name: str) -> ResourceInfo:
        """Size and digest of a resource, without opening it.

        Raises:
            ResourceNotFoundError, ResourceChangedError: as for ``resources[name]``.
        """
        identifier = self._identifier(name)
        record = self._records[name]
        info = self._connector.stat(identifier)
        for expected, actual in ((record.size, info.size), (record.sha256, info.sha256)):
            if None not in (expected, actual) and expected != actual:
                raise ResourceChangedError(identifier, str(expected), str(actual))
        return ResourceInfo(identifier, info.size, info.sha256 or record.sha256, info.modified)

    @property
    def checks_reads(self) -> bool:
        """Whether the store checks each read against digests."""
        return getattr(self._connector, "checks_reads", False)

    def get_resource(self, name: str) -> StreamedResource:
        """``resources[name]``, as storage connectors open it."""
        return self[name]

    def has_resource(self, name: str) -> bool:
        """Whether the dataset has such a resource."""
        return name in self

    def list_resources(self, prefix: str = "") -> list[str]:
        """The names that begin with ``prefix``, sorted."""
        return sorted(name for name in self if name.startswith(prefix))

    # Mapping builds these on KeyError, which ResourceNotFoundError is not.

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def get(self, name: str, default: Any = None) -> Any:
        """The resource, or ``default`` if the dataset has no such name."""
        return self[name] if name in self else default  # noqa: SIM401  # this is get

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dataset!r}: {', '.join(self) or 'none'}>"

    def _identifier(self, name: str) -> str:
        if name not in self:
            hint = f"{did_you_mean(name, self)}; it has: {', '.join(self) or 'none'}"
            raise ResourceNotFoundError(
                f"dataset {self._dataset!r} has no resource {name!r:.80}{hint}"
            )
        return f"{self._dataset}/{name}"


class Superseded(BaseException):
    """Another process has made the dataset ready, so this preparation stops.

    Not an Exception, so that ``except Exception`` in an author's code does not catch it. Never leaves this package.
    """


class PreparedResources(Resources):
    """The resources that ``preprocess()`` has made so far; creates more.

    ::

        for split in prepared.steps(self.splits):                      # finished steps are not repeated after a crash
            with prepared.create(f"preprocessed/{split}.npy") as file:  # stored when the block ends without error
                numpy.save(file, ...)

    Threads may create resources concurrently. It does not pickle; send ``raw`` to workers, and create from their results.

    Args:
        stored: the dataset in its store.
        journal: the steps that were finished before.
        hold: store all resources under temporary names until :meth:`publish`, because the earlier ones are in use.
        progress: show a bar over the steps; None shows it on a terminal and in a notebook.
        opening: of the attempt at one shard, see :meth:`StoredDataset.open_shards`; None for the leading process.

    Attributes:
        current_step: the step whose body is running.
        timings: (step, seconds), in order.
    """

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
        self.stored, self._journal, self._opening = stored, journal, opening
        self._steps = {step.name: step for step in journal.steps}
        self._names = ResourceNames(
            self._dataset, (source.identifier for source in stored.definition.sources)
        )
        self._staged: dict[str, str] = {}  # temporary names of resources
        self._hold = hold
        self.shows_progress = shows_progress(progress)
        self._lock = threading.RLock()
        self.current_step: str | None = None
        self._made_in_step: list[str] = []
        self._seen_steps: set[str] = set()
        self._next_note = 0.0
        self.timings: list[tuple[str, float]] = []

    # ------------------------------------------------------------------ for authors

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[ResourceWriter]:
        """Write a resource as a file that can also read and seek: ``with prepared.create("preprocessed/a.h5") as file: …``.

        It is stored when the block ends without error.

        Raises:
            MalformedIdentifierError: the name is not a valid identifier.
            ConfigError: a source, another resource, the manifest or the journal has the name.
            StorageError: it could not be written.
        """
        with self._lock:
            self._names.take(name)
        try:
            stored_as = f"{STAGED}{secrets.token_hex(16)}" if self._hold else name
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
        """Iterate over the steps that are not finished; a step is finished when the loop's body ends without error.

        A finished step is repeated only if its resources were lost or changed.

        Raises:
            ConfigError: a name occurs twice, or is not a string.
        """
        given: Iterable[Any] = [None] if isinstance(names, str) else names
        for name in with_bar(
            given,
            self.shows_progress,
            desc=f"{self.stored.definition.card.name}: preparing",
            unit="step",
        ):
            if not isinstance(name, str) or name in self._seen_steps or name == WHOLE:
                raise ConfigError(
                    f'steps of {self._dataset!r} need distinct names such as ("train", "test"), got {names!r:.80}'
                )
            self._seen_steps.add(name)
            if self.take_over(name):
                logger.info("dataset %r: step %r was finished before", self._dataset, name)
                continue
            self.current_step, self._made_in_step = name, []
            started = time.perf_counter()
            yield name
            self.timings.append((name, time.perf_counter() - started))
            self.current_step = None
            self._note_step(name, self._made_in_step)

    # ------------------------------------------------------------------ for the preparation

    @property
    def journal(self) -> Journal:
        """The finished steps."""
        return replace(self._journal, steps=tuple(self._steps.values()))

    def note_whole(self) -> None:
        """Record that all resources are published."""
        self._steps.clear()
        self._note_step(WHOLE, self._records)

    def step_that_made(self, name: str) -> Step | None:
        """A finished step with the current places of its resources; None if it is not finished, or lost a resource."""
        done = self._steps.get(name)
        if done is None:
            return None
        where: list[str | None] = []
        for record, staged in zip(done.resources, done.staged, strict=True):
            is_staged = staged is not None and self.stored.holds(record, staged)
            if not is_staged and not self.stored.holds(
                record
            ):  # it may have been renamed before the interruption
                return None
            where.append(staged if is_staged else None)
        return replace(done, staged=tuple(where))

    def note(self, done: Step) -> None:
        """Record a finished step; the store is written a twentieth of the time at most, and not for the steps of a shard."""
        if self._opening is not None:
            return
        self._steps.pop(done.name, None)  # the journal has them in the order of completion
        self._steps[done.name] = done
        started = time.monotonic()
        if started >= self._next_note:
            self.stored.write_journal(self.journal)
            self._next_note = time.monotonic() + 20 * (time.monotonic() - started)

    def take_over(self, name: str) -> bool:
        """Take over the resources of a finished step; those with temporary names are renamed by :meth:`publish`.

        Raises:
            ConfigError: a name is used already.
        """
        done = self.step_that_made(name)
        if done is None:
            return False
        for record, staged in zip(done.resources, done.staged, strict=True):
            self._names.take(record.identifier)
            self._records[record.identifier] = record
            if staged is not None:
                self._staged[record.identifier] = staged
        return True

    def is_whole(self) -> bool:
        """Whether all resources are still there."""
        return all(
            self.stored.holds(record, self._staged.get(name))
            for name, record in self._records.items()
        )

    def publish(self) -> None:
        """Rename resources from their temporary names."""
        with self._lock:
            if self._staged:
                self._make_way()
                # Renaming a resource takes a few requests to a server, or a copy.
                JobThreads(self._staged.items(), lambda item: self._move(*item), 8).run()
            self._staged.clear()
            self._hold = False

    def discard(self, *, keep_steps: bool = False) -> None:
        """Remove resources with temporary names; if that fails, they are removed when the dataset is ready.

        Args:
            keep_steps: keep those of finished steps.
        """
        kept = (
            {staged for step in self._steps.values() for staged in step.staged}
            if keep_steps
            else set()
        )
        while self._staged:
            if (staged := self._staged.popitem()[1]) not in kept:
                with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
                    self.stored.delete(staged)

    def records(self) -> tuple[ResourceRecord, ...]:
        """All resources, of this attempt and of earlier ones."""
        return tuple(self._records.values())

    # ------------------------------------------------------------------ inside

    def _identifier(self, name: str) -> str:
        return (
            f"{self._dataset}/{self._staged[name]}"
            if name in self._staged
            else super()._identifier(name)
        )

    def check_wanted(self) -> None:
        """Called before a resource is stored; without temporary names it is about to replace an older one."""
        if self._opening is not None and not self.stored.wants_shards(self._opening):
            raise Superseded
        if not self._hold:
            self._make_way()

    def _make_way(self) -> None:
        """Called before a resource is replaced: stops if the dataset has become ready, otherwise removes an old manifest."""
        if self.stored.ready_manifest() is not None:
            raise Superseded
        self.stored.invalidate()

    def _move(self, name: str, staged: str) -> None:
        try:
            with contextlib.suppress(UnsupportedStorageOperationError):  # copied, but not deleted
                self._connector.move_resource(
                    self.stored.identifier(staged), self.stored.identifier(name)
                )
        except ResourceNotFoundError:
            if not self.stored.holds(self._records[name]):
                raise Superseded from None  # another process has finished and cleaned up

    def _note_step(self, name: str, made: Iterable[str]) -> None:
        if len(self._steps) < _ALL_NOTED:
            self._next_note = 0.0
        self.note(self.step_of(name, made))

    def step_of(self, name: str, made: Iterable[str]) -> Step:
        """A finished step with these resources."""
        names = list(made)
        return Step(
            name, tuple(self._records[each] for each in names), tuple(map(self._staged.get, names))
        )
