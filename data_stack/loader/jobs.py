"""Makes batches: reads the samples of a job, collates and transforms them, and names the sample at which that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.ownership import copy_value, detach
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.seeds import derive_generator, derive_seed
from data_stack.dataset.recipes.recipe import at_epoch, list_draws
from data_stack.exception import LoadingError
from data_stack.loader.collation import Collation
from data_stack.util.forks import ForkLock
from data_stack.util.functions import has_parameter


class Job(NamedTuple):  # a frozen dataclass takes 1 us to make
    """One batch to make.

    Attributes:
        epoch: whose stack the samples are of.
        step: number of the batch in the epoch, counted from where the iteration entered the epoch.
        position: of its first sample in the epoch's order.
        indices: of its samples, shape ``(n,)``, at least one.
        seed: of the draws of the transform.
        ahead: one sample of each block that is needed soon, shape ``(n,)``, for the source to prefetch; None for no change.
    """

    epoch: int
    step: int
    position: int
    indices: IndexArrayOfInts
    seed: int = 0
    ahead: IndexArrayOfInts | None = None

    @property
    def samples(self) -> str:
        """The indices of its samples for a message, or the first of them."""
        return ", ".join(map(str, self.indices[:8].tolist())) + (", …" if len(self.indices) > 8 else "")

    def __str__(self) -> str:
        return f"step {self.step} of epoch {self.epoch} (samples {self.samples})"


@dataclass(slots=True)
class MadeBatch:
    """A batch with its figures.

    Attributes:
        batch: the samples, collated and transformed.
        n_bytes: of its arrays.
        read_seconds: to read the samples.
        collate_seconds: to collate them.
        transform_seconds: of the transform.
    """

    batch: Any
    n_bytes: int = 0
    read_seconds: float = 0.0
    collate_seconds: float = 0.0
    transform_seconds: float = 0.0


class EpochStacks:
    """A stack of iterators in each epoch, with its random layers drawn anew. Threads may share it.

    Args:
        iterator: the stack in epoch 0.
        redraw: whether it differs from epoch to epoch.
    """

    def __init__(self, iterator: DatasetIteratorIF, redraw: bool) -> None:
        self._iterator, self._redraw, self._lock = iterator, redraw, ForkLock()
        self._drawn: dict[int, DatasetIteratorIF] = {}  # of the last two epochs: at an epoch's end batches of both are made

    @property
    def iterator(self) -> DatasetIteratorIF:
        """The stack in epoch 0."""
        return self._iterator

    def at(self, epoch: int) -> DatasetIteratorIF:
        """The stack of an epoch.

        Raises:
            ConfigError: it cannot be drawn anew, see :func:`data_stack.dataset.recipes.recipe.at_epoch`.
        """
        if not self._redraw:
            return self._iterator
        with self._lock:
            if epoch not in self._drawn:
                drawn = at_epoch(self._iterator, epoch)
                self._drawn = {number: each for number, each in self._drawn.items() if abs(number - epoch) <= 1}
                self._drawn[epoch] = drawn
            return self._drawn[epoch]

    def __getstate__(self) -> dict[str, Any]:
        # layers that hold epoch 0 in memory pickle without the sources of other epochs
        held = list_draws(self._iterator) if self._redraw else []
        sources = [(layer, layer.underlying_iterators) for layer in held]
        return {"_iterator": self._iterator, "_redraw": self._redraw, "_sources": sources}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for layer, source in state["_sources"]:
            layer.attach_source(source)
        self.__init__(state["_iterator"], state["_redraw"])  # type: ignore[misc]


class BatchMaker:
    """Makes the batches of jobs, the same in every thread and process. It pickles if its arguments do.

    Args:
        stacks: the samples.
        collate: None for the columns as ``read_batch`` gives them; a :class:`~data_stack.loader.collation.Collation`; or a
            function of a list of samples.
        transform: None, or a function of the collated batch. If it has a parameter ``rng``, it gets a ``numpy.random.Generator``
            that depends on seed, epoch and the batch's first position.
    """

    def __init__(
        self,
        stacks: EpochStacks,
        *,
        collate: Collation | Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self.stacks = stacks
        self._collate, self._transform = collate, transform
        self._reads_columns = collate is None or isinstance(collate, Collation)
        self._joins: bool | None = None
        self._transform_draws = transform is not None and has_parameter(transform, "rng")

    @property
    def can_join(self) -> bool:
        """Whether the samples of several jobs may be read in one request, without a cost and with the same batches."""
        if self._joins is None:
            self._joins = self._reads_columns and (self._samples.fixed_columns or self._samples.releases_gil)
        return self._joins

    @property
    def only_gathers(self) -> bool:
        """Whether it only copies rows out of arrays."""
        return self._collate is None and self._transform is None and self._samples.fixed_columns

    @property
    def releases_gil(self) -> bool:
        """Whether it only reads from a source that releases the GIL."""
        return self._collate is None and self._transform is None and self._samples.releases_gil

    @property
    def _samples(self) -> SampleAccess:
        return access_to(self.stacks.iterator)

    def make(self, job: Job) -> MadeBatch:
        """The batch of a job.

        Raises:
            LoadingError: a sample could not be read, or the batch not be collated or transformed.
        """
        return next(self.make_several([job]))

    def make_several(self, jobs: Sequence[Job]) -> Iterator[MadeBatch]:
        """The batches of jobs of one epoch, one by one; their samples are read in one request if they :attr:`can_join`.

        Each is collated and transformed when it is asked for, so that the batches before a failing one arrive.

        Raises (while iterating):
            LoadingError: as :meth:`make`; no batch comes after it.
        """
        started = time.perf_counter()
        joined = self._read_together(jobs) if len(jobs) > 1 and self.can_join else None
        if joined is None:
            for job in jobs:
                started = time.perf_counter()
                batch = self._read(job)
                seconds = time.perf_counter() - started
                self._prefetch(job)
                yield self._finish(job, batch, seconds)
            return
        seconds = (time.perf_counter() - started) / len(jobs)
        if asking := [job for job in jobs if job.ahead is not None]:
            self._prefetch(asking[-1])  # the blocks of earlier jobs have been read already
        stop = 0
        for job in jobs:
            start, stop = stop, stop + len(job.indices)
            yield self._finish(job, _part_of(joined, start, stop), seconds)

    def _read(self, job: Job) -> Any:
        try:
            samples = access_to(self.stacks.at(job.epoch))
            if self._reads_columns:
                return detach(samples.batch(job.indices))
            return list(map(copy_value, samples.samples(job.indices)))
        except Exception as error:
            raise self._blame(job, error) from error

    def _read_together(self, jobs: Sequence[Job]) -> Any:
        """The samples of several jobs as columns; None if they cannot be read in one request."""
        try:
            samples = access_to(self.stacks.at(jobs[0].epoch))
            joined = detach(samples.batch(np.concatenate([job.indices for job in jobs])))
        except Exception:  # noqa: BLE001  # reading each job by itself shows which one fails
            return None
        if not self._samples.fixed_columns and _has_objects(joined):
            # values differ in shape, those of a single batch perhaps not
            self._joins = False
            return None
        return joined

    def _prefetch(self, job: Job) -> None:
        """Let the source prefetch for a job; errors are raised when the samples are read."""
        if job.ahead is not None and len(job.ahead):
            with contextlib.suppress(Exception):
                access_to(self.stacks.at(job.epoch)).prefetch(job.ahead)

    def _finish(self, job: Job, batch: Any, read_seconds: float) -> MadeBatch:
        started = time.perf_counter()
        if self._collate is not None:
            try:
                batch = self._collate.collate(batch) if isinstance(self._collate, Collation) else self._collate(batch)
            except Exception as error:
                raise _failure("a batch could not be collated", job, error) from error
        collated = time.perf_counter()
        if self._transform is not None:
            try:
                if self._transform_draws:
                    seed = derive_seed("transform", job.seed, job.epoch)
                    batch = self._transform(batch, rng=derive_generator(seed, job.position))
                else:
                    batch = self._transform(batch)
            except Exception as error:
                raise _failure("the transform of a batch failed", job, error) from error
        ended = time.perf_counter()
        return MadeBatch(batch, _n_bytes_of(batch), read_seconds, collated - started, ended - collated)

    def _blame(self, job: Job, error: Exception) -> LoadingError:
        """The error of the first sample of a job that cannot be read by itself."""
        try:
            samples = access_to(self.stacks.at(job.epoch))
        except Exception:  # noqa: BLE001  # the same error as before
            return LoadingError(f"the stack of epoch {job.epoch} could not be made", error, epoch=job.epoch, step=job.step)
        for index in job.indices.tolist():
            try:
                samples.sample(index)
            except Exception as its_error:  # noqa: BLE001  # any error of a source
                place = None
                with contextlib.suppress(Exception):
                    place = samples.locate(index)
                sample = f"sample {index}" if place is None else f"sample {index} ({place})"
                return LoadingError(f"{sample} could not be read", its_error, epoch=job.epoch, step=job.step, index=index)
        return _failure("a batch could not be read", job, error)


def _has_objects(batch: Any) -> bool:
    if isinstance(batch, (dict, tuple)):  # of n-grams dicts of dicts
        return any(map(_has_objects, batch.values() if isinstance(batch, dict) else batch))
    return bool(batch.dtype == object)


def _part_of(batch: Any, start: int, stop: int) -> Any:
    if isinstance(batch, dict):  # of n-grams dicts of dicts
        return {key: _part_of(column, start, stop) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple([column[start:stop] for column in batch])
    return batch[start:stop]


def _n_bytes_of(batch: Any) -> int:
    """Bytes of the arrays and tensors in a batch; of columns of objects, those of the references."""
    if isinstance(batch, dict):
        return sum(map(_n_bytes_of, batch.values()))
    if isinstance(batch, (tuple, list)):
        return sum(map(_n_bytes_of, batch))
    n_bytes = getattr(batch, "nbytes", 0)
    return n_bytes if isinstance(n_bytes, int) else 0


def _failure(problem: str, job: Job, error: Exception) -> LoadingError:
    return LoadingError(f"{problem} (of the samples {job.samples})", error, epoch=job.epoch, step=job.step)
