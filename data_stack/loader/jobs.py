"""Makes batches from jobs."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess
from data_stack.dataset.iterator.access import access_to, copy_value, detach
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_generator, derive_seed
from data_stack.dataset.recipes.recipe import at_epoch, has_random_layers, list_draws
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
        indices: of its samples, shape ``(n,)``, not empty.
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
        """The indices of its samples, or the first of them, for a message."""
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
    """A stack of iterators, whose random layers are redrawn for each epoch. Threads may share it.

    Args:
        iterator: the stack in epoch 0.
        redraw: whether to redraw its random layers, if any, for each epoch.

    Attributes:
        iterator: the stack in epoch 0.
        differ: whether the stacks of two epochs differ.
    """

    def __init__(self, iterator: DatasetIteratorIF, redraw: bool) -> None:
        self.iterator, self.differ, self._lock = iterator, redraw and has_random_layers(iterator), ForkLock()
        self._drawn: dict[int, DatasetIteratorIF] = {}  # of the last two epochs: at an epoch's end batches of both are made

    def at(self, epoch: int) -> DatasetIteratorIF:
        """The stack of an epoch.

        Raises:
            ConfigError: it cannot be redrawn, see :func:`data_stack.dataset.iterator.layer.at_epoch`.
        """
        if not self.differ:
            return self.iterator
        with self._lock:
            if epoch not in self._drawn:
                drawn = at_epoch(self.iterator, epoch)
                self._drawn = {number: each for number, each in self._drawn.items() if abs(number - epoch) <= 1}
                self._drawn[epoch] = drawn
            return self._drawn[epoch]

    def __getstate__(self) -> dict[str, Any]:
        # layers that hold epoch 0 in memory pickle without the sources of other epochs
        held = list_draws(self.iterator) if self.differ else []
        return {"iterator": self.iterator, "differ": self.differ, "sources": [(each, each.underlying_iterators) for each in held]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for layer, source in state["sources"]:
            layer.attach_source(source)
        self.__init__(state["iterator"], state["differ"])  # type: ignore[misc]


class BatchMaker:
    """Makes the batches of jobs, which are the same in every thread and process. It pickles if its arguments do.

    Args:
        stacks: the samples.
        collate: None for the columns that ``read_batch`` returns; a :class:`~data_stack.loader.collation.Collation`; or a
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
        self._transform_draws = transform is not None and has_parameter(transform, "rng")

    @functools.cached_property
    def can_join(self) -> bool:
        """Whether :meth:`make_several` pays off: rows of numbers out of blocks, each of which a request has to find."""
        return self._reads_columns and self._samples.fixed_columns and self._samples.blocks() is not None

    @property
    def only_gathers(self) -> bool:
        """Whether batches are only copied rows of arrays."""
        return self._collate is None and self._transform is None and self._samples.fixed_columns

    @property
    def releases_gil(self) -> bool:
        """Whether batches are only read, from a source that releases the GIL."""
        return self._collate is None and self._transform is None and self._samples.releases_gil

    @property
    def _samples(self) -> SampleAccess:
        return access_to(self.stacks.iterator)

    def make(self, job: Job) -> MadeBatch:
        """The batch of a job.

        Raises:
            LoadingError: a sample could not be read, or the batch could not be collated or transformed.
        """
        started = time.perf_counter()
        batch = self._read(job)
        seconds = time.perf_counter() - started
        self._prefetch(job)
        return self._finish(job, batch, seconds)

    def make_several(self, jobs: Sequence[Job]) -> Iterator[MadeBatch]:
        """The batches of jobs of one epoch, one by one, read in one request; only if :attr:`can_join`.

        Raises (while iterating):
            LoadingError: as :meth:`make`, after the batches of the jobs before.
        """
        started = time.perf_counter()
        try:
            samples = access_to(self.stacks.at(jobs[0].epoch))
            joined = detach(samples.batch(np.concatenate([job.indices for job in jobs])))
        except Exception:  # noqa: BLE001  # reading each job by itself shows which one fails
            yield from map(self.make, jobs)
            return
        seconds, stop = (time.perf_counter() - started) / len(jobs), 0
        for job in [job for job in jobs if job.ahead is not None][-1:]:
            self._prefetch(job)  # the blocks of earlier jobs have been read
        for job in jobs:
            start, stop = stop, stop + len(job.indices)
            yield self._finish(job, _rows_of(joined, start, stop), seconds)

    def _read(self, job: Job) -> Any:
        try:
            samples = access_to(self.stacks.at(job.epoch))
            if self._reads_columns:
                return detach(samples.batch(job.indices))
            return list(map(copy_value, samples.samples(job.indices)))
        except Exception as error:
            raise self._blame(job, error) from error

    def _prefetch(self, job: Job) -> None:
        """Let the source prefetch for a job; reading the samples raises the errors."""
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
        """The error for the first sample of a job that cannot be read by itself."""
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


def _rows_of(batch: Any, start: int, stop: int) -> Any:
    if isinstance(batch, dict):  # n-grams are dicts of dicts
        return {key: _rows_of(column, start, stop) for key, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple([column[start:stop] for column in batch])
    return batch[start:stop]


def _n_bytes_of(batch: Any) -> int:
    """Bytes of the arrays and tensors in a batch; a column of objects counts its references."""
    if isinstance(batch, dict):
        return sum(map(_n_bytes_of, batch.values()))
    if isinstance(batch, (tuple, list)):
        return sum(map(_n_bytes_of, batch))
    n_bytes = getattr(batch, "nbytes", 0)
    return n_bytes if isinstance(n_bytes, int) else 0


def _failure(problem: str, job: Job, error: Exception) -> LoadingError:
    return LoadingError(f"{problem} (of the samples {job.samples})", error, epoch=job.epoch, step=job.step)
