"""Batches of any stack of iterators for a training loop: in an exact order, from workers of any kind, resumable anywhere."""

from __future__ import annotations

import json
import math
import numbers
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.iterator import adapted, checked_integer
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.exception import ConfigError, LoaderStateError, LoadingError
from data_stack.io.progress import shows_progress
from data_stack.loader.collation import Collation
from data_stack.loader.jobs import BatchMaker, EpochStacks, Job
from data_stack.loader.orders import InOrder, Order, Shuffled
from data_stack.loader.plan import Plan, Uneven
from data_stack.loader.sources import StepSource
from data_stack.loader.state import LoaderState
from data_stack.loader.statistics import Counters, LoaderStatistics
from data_stack.loader.workers.kinds import WorkerKind, workers_of_kind
from data_stack.loader.workers.workers import Workers

if TYPE_CHECKING:
    from data_stack.loader.jax import JaxLoader
    from data_stack.loader.tensorflow import TensorFlowLoader
    from data_stack.loader.torch import TorchLoader

__all__ = ["Conversion", "Loader"]

Conversion = Callable[[Iterator[tuple[Any, Any]]], Iterator[tuple[Any, Any]]]
"""Makes something else of batches, one by one and in their order: ``(batch, mark)`` becomes ``(converted, mark)``. It may take
the next batch before it gives the one before."""

# The order is asked for so many positions at once; what that costs by itself then weighs nothing.
_MOST_POSITIONS = 1 << 14


class Loader:
    """Batches of ``iterator``'s samples, in an order that the seed and the epoch alone decide.

    ::

        with Loader(train, 256, shuffle=True, seed=7) as loader:
            for epoch in range(10):
                for images, labels, tags in loader:      # len(loader) batches, in another order in each epoch
                    ...

    A batch is what ``iterator.read_batch`` gives: a tuple of arrays of shape ``(batch_size, ...)`` for tuple samples, a dict of
    arrays for dict samples, one array for bare samples. Its arrays are the receiver's: nothing else uses their memory.
    :meth:`torch`, :meth:`tensorflow` and :meth:`jax` give tensors instead.

    **Iterations.** ``iter(loader)`` begins the next epoch at its start (epoch 0 at first; later the epoch after those that the
    last iteration gave, or of which it gave a batch before it was broken off), and gives ``epochs`` whole epochs. Only after
    :meth:`load_state_dict` it goes on in the middle. There is one iteration at a time: a new one ends the one before.

    **Order.** All of it is a pure function of the iterator, the seed and the epoch (:mod:`data_stack.loader.orders`). The ranks
    of ``shard`` share it out step by step (:mod:`data_stack.loader.plan`), so together they have each sample exactly once per
    epoch, and equally many steps. Kind and number of workers change nothing about the batches. Layers of the stack that are
    random (``shuffle``, ``mix``, ``map(…, seed=…)``) are drawn anew for each epoch.

    **Workers.** Gathers are fastest in the consumer's own thread, decoders that leave Python's lock in threads, Python code in
    processes; "auto" measures the first batches and decides. Worker processes are fresh interpreters to which the iterator and
    the functions are sent, functions of a notebook or script too. Their batches lie in shared memory that has no name, and are
    handed out without a copy. Workers end with the iteration; inside of ``with`` they stay for the next one.

    Args:
        iterator: any stack of iterators, or whatever has ``len`` and ``[i]``; or a
            :class:`~data_stack.loader.sources.StepSource`. It stays the caller's to close.
        batch_size: samples of each batch, of each rank.
        shuffle: False for the iterator's order; True for another order of all samples in each epoch; or an
            :class:`~data_stack.loader.orders.Order` of its own, such as :class:`~data_stack.loader.orders.BlockShuffled` and
            :class:`~data_stack.loader.buckets.Bucketed`.
        seed: any integer; decides the order and the draws of the transform.
        epochs: how many an iteration gives; None: it never ends.
        drop_last: whether the last batch of an epoch is left out if it is shorter.
        shard: ``(rank, world)``: which of how many processes this is that train together.
        uneven: what becomes of samples that ``world`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad" (some are
            repeated), "drop" (some are left out) or "keep" (ranks may differ by one sample, and by one step).
        workers: threads or processes; None for as many as there are processors, 0 for none.
        worker_kind: "auto", "inline", "threads" or "processes".
        prefetch: batches that each worker makes ahead of the consumer, at least 1.
        collate: None for columns; a :class:`~data_stack.loader.collation.Collation` such as
            :class:`~data_stack.loader.collation.Padded`; or a function that gets the list of samples of a batch (a ``collate_fn``
            of torch's).
        transform: a function that gets each collated batch and gives what is handed out; it runs in the worker. If it has a
            parameter ``rng``, it gets a generator there that depends on seed, epoch and position alone.
        redraw: False keeps the random layers of the stack as they are in all epochs.
        device: torch device, e.g. ``"cuda"``; with it, batches are those of ``loader.torch(device=…)``.
        pin_memory: for torch: whether tensors are put in page-locked memory.
        timeout_seconds: how long the consumer waits for one batch before a :class:`~data_stack.exception.WorkerError`; None: as
            long as the worker lives and works. After 5 s without a batch a warning says what the worker is at.
        progress: whether a bar is drawn on standard error; None: if that is a terminal.

    Raises:
        ConfigError: an argument is out of range, or does not suit another.
    """

    def __init__(
        self,
        iterator: DatasetIteratorIF | StepSource | Any,
        batch_size: SupportsIndex,
        *,
        shuffle: bool | Order = False,
        seed: SupportsIndex = 0,
        epochs: SupportsIndex | None = 1,
        drop_last: bool = False,
        shard: tuple[SupportsIndex, SupportsIndex] = (0, 1),
        uneven: Uneven = "pad",
        workers: SupportsIndex | None = None,
        worker_kind: WorkerKind = "auto",
        prefetch: SupportsIndex = 2,
        collate: Collation | Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        redraw: bool = True,
        device: Any = None,
        pin_memory: bool = False,
        timeout_seconds: float | None = None,
        progress: bool | None = False,
    ) -> None:
        self._is_endless = isinstance(iterator, StepSource) and iterator.n_steps is None
        if self._is_endless and (shuffle is not False or epochs not in (1, None)):
            raise ConfigError(
                "a step source has its own order and no end: shuffle and epochs are those of Epochs(source, shuffle=…)"
            )
        self._iterator = iterator.as_iterator() if isinstance(iterator, StepSource) else adapted(iterator)
        self._redraws = _checked_bool("redraw", redraw)
        self._stacks = EpochStacks(self._iterator, self._redraws and not self._is_endless)
        self._seed = checked_integer("the seed of a loader", seed)
        self._epochs = None if epochs is None else checked_integer("epochs", epochs, at_least=1)
        self._order = _order(shuffle)
        try:
            rank, world = shard
        except (TypeError, ValueError):
            raise ConfigError(f"shard is (rank, world), for example (0, 4), got {shard!r:.80}") from None
        self._plan = Plan(
            len(self._iterator),
            checked_integer("batch_size", batch_size, at_least=1),
            checked_integer("the rank of a loader's shard", rank, at_least=0),
            checked_integer("the world of a loader's shard", world, at_least=1),
            _checked_bool("drop_last", drop_last),
            uneven,
        )
        self._n_workers = None if workers is None else checked_integer("workers", workers, at_least=0)
        self._worker_kind: WorkerKind = worker_kind
        self._prefetch = checked_integer("prefetch", prefetch, at_least=1)
        self._timeout_seconds = _checked_timeout(timeout_seconds)
        if not isinstance(collate, Collation):
            _check_function("collate", collate, "a collation such as Padded(), or a function of a list of samples")
        _check_function("transform", transform, "or a function of a batch")
        self._maker = BatchMaker(self._stacks, collate=collate, transform=transform)
        self._device, self._pin_memory = device, _checked_bool("pin_memory", pin_memory)
        self._progress = None if progress is None else _checked_bool("progress", progress)

        self._fingerprint: str | None = None
        self._epoch, self._position, self._first_epoch = 0, 0, 0
        self._goes_on = True  # whether the next iteration begins at the state, not at the start of the epoch behind it
        self._workers: Workers | None = None
        self._workers_pid = 0
        self._keeps_workers = False
        self._run: _Run | None = None
        self._counters = Counters()
        self._make_workers()  # so that wrong arguments fail here; nothing runs yet

    # ------------------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, see the class.

        Raises (while iterating):
            LoadingError: a batch could not be made; the message names the sample.
            WorkerError: a worker died, or does nothing any more.
            RuntimeError: another iteration has begun since, or a state was loaded.
        """
        if self._device is not None or self._pin_memory:
            return iter(self.torch())
        return self._iterate(None)

    def __len__(self) -> int:
        """How many batches this iteration gives, or with none the next one: those of ``epochs`` whole epochs on this rank.

        An iteration that goes on from a state has the length that it would have had from its start.

        Raises:
            TypeError: it never ends.
        """
        if self._epochs is None or self._is_endless:
            raise TypeError("this loader has no length: it never ends")
        if self._run is not None:
            epoch = self._run.first_epoch
        else:
            epoch = self._first_epoch if self._goes_on else self._next_epoch
        return sum(self._plan_of(number).n_steps() for number in range(epoch, epoch + self._epochs))

    @property
    def epoch(self) -> int:
        """The epoch of the batch that comes next in this iteration; with none, that with which the next one begins."""
        return self._epoch if self._run is not None else self._next_epoch

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration begin with this epoch, at its start; an iteration that is under way is ended.

        After :meth:`load_state_dict` in the middle of this very epoch nothing changes: training loops that name the epoch before
        each iteration, as they do for torch's DistributedSampler, go on where they were.
        """
        number = checked_integer("the epoch of a loader", epoch, at_least=0)
        if self._goes_on and self._position and number == self._epoch:
            return
        self._end_run()
        self._epoch = self._first_epoch = number
        self._position, self._goes_on = 0, True

    @property
    def batch_size(self) -> int:
        """Samples of each batch, of each rank."""
        return self._plan.batch_size

    @property
    def shard(self) -> tuple[int, int]:
        """``(rank, world)``."""
        return self._plan.rank, self._plan.world

    def __repr__(self) -> str:
        rank, world = self.shard
        where = f", rank {rank} of {world}" if world > 1 else ""
        return f"<Loader: batches of {self.batch_size} of {self._iterator!r}, {self._order!r}, seed {self._seed}{where}>"

    # ----------------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is: plain JSON data from which any loader of the same samples goes on, see :class:`LoaderState`.

        It names what the consumer has *received*: between two batches it is where the second one begins, however many were made
        ahead. All ranks have the same state after the same step, so saving that of one is enough.

        The fingerprint of the stack is taken at the first call, which reads arrays that are held in memory once.
        """
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where :meth:`state_dict` was taken, on any number of ranks and workers.

        It gives the very batches that the interrupted iteration would have given. With another world or batch size it gives the
        samples that were left, in the same order over all ranks, each of them once. An iteration that is under way is ended.

        Raises:
            LoaderStateError: the state is of other samples or of another order, or no state; the loader stays as it was.
        """
        loaded = LoaderState.from_dict(state)
        own = self._state()
        if loaded.fingerprint != own.fingerprint:
            raise LoaderStateError(
                f"this state is of another dataset: its stack of iterators has the fingerprint {loaded.fingerprint[:16]}… and "
                f"{loaded.n_samples:,} samples, that of this loader {own.fingerprint[:16]}… and {own.n_samples:,} "
                f"({self._iterator!r}); make the loader of the iterator that it was saved with, or begin anew"
            )
        if dict(loaded.order) != dict(own.order):
            raise LoaderStateError(
                f"this state is of another order: {dict(loaded.order)}, that of this loader is {dict(own.order)}; "
                f"give the loader the same shuffle= and redraw="
            )
        if loaded.n_samples != (n_samples := self._plan_of(loaded.epoch).n_samples):
            raise LoaderStateError(
                f"this state was taken when epoch {loaded.epoch} had {loaded.n_samples:,} samples, now it has {n_samples:,}; "
                f"a dataset that has grown since is another one: begin anew"
            )
        self._end_run()
        self._seed = loaded.seed
        self._epoch, self._position, self._first_epoch = loaded.epoch, loaded.position, loaded.first_epoch
        if self._epochs is not None:  # saved in an iteration of more epochs, or of all: what is left of its epoch is given here
            self._first_epoch = max(self._first_epoch, self._epoch - self._epochs + 1)
        self._goes_on = True

    def save(self) -> dict[str, Any]:
        """:meth:`state_dict`, by the name that Granular's loader has for it."""
        return self.state_dict()

    def load(self, state: Mapping[str, Any]) -> None:
        """:meth:`load_state_dict`, by the name that Granular's loader has for it."""
        self.load_state_dict(state)

    def _state(self) -> LoaderState:
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._iterator)
        return LoaderState(
            seed=self._seed,
            epoch=self._epoch,
            position=self._position,
            first_epoch=self._first_epoch,
            n_samples=self._plan_of(self._epoch).n_samples,
            order=self._order_content(),
            fingerprint=self._fingerprint,
        )

    def _order_content(self) -> dict[str, Any]:
        """What decides which samples stand where, as JSON gives it back."""
        content = self._order.content()
        if not self._redraws:
            content = {**content, "redraw": False}
        try:
            plain: dict[str, Any] = json.loads(json.dumps(content))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the content of {self._order!r:.80} is no JSON data, so it cannot stand in a state: {error}"
            ) from error
        return plain

    # ------------------------------------------------------------------------------------------------------------- frameworks

    def torch(self, *, device: Any = None, pin_memory: bool | None = None) -> TorchLoader:
        """The same loader, with torch tensors for arrays, see :class:`data_stack.loader.torch.TorchLoader`.

        Args:
            device: where to; None for that of this loader.
            pin_memory: whether to put them in page-locked memory; None for what this loader says.

        Raises:
            MissingDependencyError: torch is not installed.
        """
        from data_stack.loader.torch import TorchLoader

        return TorchLoader(
            self,
            device=self._device if device is None else device,
            pin_memory=self._pin_memory if pin_memory is None else pin_memory,
        )

    def tensorflow(self) -> TensorFlowLoader:
        """The same loader, with TensorFlow's tensors for arrays, see :class:`data_stack.loader.tensorflow.TensorFlowLoader`.

        Raises:
            MissingDependencyError: TensorFlow is not installed.
        """
        from data_stack.loader.tensorflow import TensorFlowLoader

        return TensorFlowLoader(self)

    def jax(self, *, device: Any = None) -> JaxLoader:
        """The same loader, with JAX arrays for numpy's, see :class:`data_stack.loader.jax.JaxLoader`.

        Raises:
            MissingDependencyError: JAX is not installed.
        """
        from data_stack.loader.jax import JaxLoader

        return JaxLoader(self, device=device)

    # ------------------------------------------------------------------------------------------------------- workers, figures

    def stats(self) -> LoaderStatistics:
        """What the current or last iteration did, and how long the consumer waited."""
        return self._counters.statistics(self._workers)

    def close(self) -> None:
        """End the iteration that is under way, and all workers. The loader can be iterated over again."""
        self._end_run()
        self._close_workers()

    def __enter__(self) -> Loader:
        """Keep workers between iterations, until the end of the block; those that were asked for by kind start now."""
        self._keeps_workers = True
        self._running_workers().start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._keeps_workers = False
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_workers": None, "_workers_pid": 0, "_run": None, "_keeps_workers": False, "_counters": Counters()}
        return {**self.__dict__, **own}

    # --------------------------------------------------------------------------------------------------------------- private

    @property
    def _next_epoch(self) -> int:
        """With which epoch the next iteration goes on or begins."""
        return self._epoch if self._goes_on or self._position == 0 else self._epoch + 1

    def _plan_of(self, epoch: int) -> Plan:
        try:
            n_samples = len(self._stacks.at(epoch))
        except ConfigError:
            raise
        except Exception as error:  # whatever a layer raises that reads when it is made
            raise LoadingError(f"the stack of epoch {epoch} could not be made", error, epoch=epoch, step=0) from error
        return self._plan if n_samples == self._plan.n_samples else replace(self._plan, n_samples=n_samples)

    def _iterate(self, convert: Conversion | None) -> Iterator[Any]:
        self._end_run()
        if not self._goes_on:
            self._epoch = self._first_epoch = self._next_epoch
            self._position = 0
        self._goes_on = True  # until a batch is received, so that looking at no batch skips none
        self._run = _Run(self)
        return self._run.batches(convert)

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.end()

    def _make_workers(self) -> Workers:
        return workers_of_kind(
            self._worker_kind,
            self._maker,
            n_workers=self._n_workers,
            prefetch=self._prefetch,
            timeout_seconds=self._timeout_seconds,
        )

    def _running_workers(self) -> Workers:
        if self._workers is None or self._workers_pid != os.getpid():  # a forked process has no workers of its own yet
            self._workers, self._workers_pid = self._make_workers(), os.getpid()
        return self._workers

    def _close_workers(self) -> None:
        if self._workers is not None and self._workers_pid == os.getpid():
            self._workers.close()
        self._workers = None


class _Run:
    """One iteration of a loader.

    Args:
        loader: at whose state it begins.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._pid = os.getpid()
        self._is_over = False
        self._counters = loader._counters = Counters()
        self.first_epoch = loader._first_epoch
        self._end_epoch = sys.maxsize if loader._epochs is None else loader._first_epoch + loader._epochs

    def batches(self, convert: Conversion | None) -> Iterator[Any]:
        """The batches; when one is given, the loader's state is behind it."""
        loader, counters, clock = self._loader, self._counters, time.perf_counter
        self._check()
        counters.begin()
        pairs: Iterator[tuple[Any, _Mark]] = self._made()
        if convert is not None:
            pairs = convert(pairs)
        bar = _bar(loader)
        try:
            while True:
                asked = clock()
                pair = next(pairs, None)
                counters.waiting_seconds += clock() - asked
                if pair is None:
                    # also for a rank that has had a step less than others, or none: all begin the same epoch next
                    self._be_at(self._end_epoch, 0)
                    break
                batch, mark = pair
                del pair
                counters.received(mark.n_samples, mark.n_bytes)
                if bar is not None:
                    bar.update()
                self._be_at(mark.epoch, mark.position)  # last, so that an interruption before it loses no batch
                yield batch
                del batch  # what the consumer lets go of is free before the next one is asked for
                self._check()
        finally:
            if bar is not None:
                bar.close()
            self.end()

    def _be_at(self, epoch: int, position: int) -> None:
        """Let the loader's state be behind what the consumer has received."""
        loader = self._loader
        loader._epoch, loader._position, loader._goes_on = epoch, position, False
        if epoch == self._end_epoch:
            loader._first_epoch = epoch

    def end(self) -> None:
        """Let go of the workers; calling it again does nothing."""
        loader = self._loader
        if self._is_over or self._pid != os.getpid():
            return
        self._is_over = True
        self._counters.end(loader._workers)
        if loader._run is self:
            loader._run = None
        if loader._workers is not None and loader._keeps_workers:
            loader._workers.cancel()
        else:
            loader._close_workers()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("this iteration of a loader was begun in another process; call iter(loader) in this one")
        if self._is_over:
            raise RuntimeError(
                "this iteration of a loader has ended: another one was begun since, or the loader was closed or given a state; "
                "call iter(loader), and make a second loader for a second iteration at the same time"
            )

    def _made(self) -> Iterator[tuple[Any, _Mark]]:
        """The batches as the workers make them."""
        loader, counters, clock = self._loader, self._counters, time.perf_counter
        asked = clock()
        jobs = self._jobs()
        marks: deque[_Mark] = deque()
        workers = loader._running_workers()
        if loader._epoch < self._end_epoch:
            n_epochs = self._end_epoch - loader._epoch
            workers.expect(loader._plan_of(loader._epoch).n_steps(loader._position) + (n_epochs - 1) * loader._plan.n_steps())
        while True:
            while len(marks) < workers.capacity and (job := next(jobs, None)) is not None:
                workers.submit(job[0])
                marks.append(job[1])
            if not marks:
                return
            counters.asked(workers.n_ready)
            made = workers.next()
            counters.made(made)
            mark = marks.popleft()
            mark.n_bytes = made.n_bytes
            counters.making_seconds += clock() - asked
            batch = made.batch
            del made
            yield batch, mark
            del batch
            asked = clock()

    def _jobs(self) -> Iterator[tuple[Job, _Mark]]:
        """What is to be made from the loader's state on to the end of the iteration."""
        loader = self._loader
        order, seed = loader._order, loader._seed
        epoch, position, number = loader._epoch, loader._position, 0
        n_at_once = 1
        while epoch < self._end_epoch:
            plan = loader._plan_of(epoch)
            n_steps = plan.n_steps(position)
            if n_steps == 0 and loader._epochs is None and position == 0:
                raise ConfigError(
                    f"an endless loader gives no batch: epoch {epoch} has {plan.n_samples} samples, a step needs "
                    f"{plan.samples_per_step}{' (drop_last)' if plan.drop_last else ''}; give it samples, or epochs="
                )
            first = 0
            while first < n_steps:
                parts = [plan.part(step, position) for step in range(first, min(first + n_at_once, n_steps))]
                positions = plan.positions(parts)
                indices = order.indices(positions, plan.n_samples, seed, epoch)
                if indices.shape != positions.shape:
                    raise ConfigError(f"{order!r} gave indices of shape {indices.shape} for {len(positions)} positions")
                start = 0
                for step, part in enumerate(parts, first):
                    stop = start + len(part)
                    is_last = step + 1 == n_steps and plan.position_after(step, position) == plan.n_samples
                    mark = _Mark(epoch + 1, 0, stop - start)
                    if not is_last:
                        mark = _Mark(epoch, position + (step + 1) * plan.samples_per_step, stop - start)
                    yield Job(number, epoch, step, part.start, indices[start:stop], seed), mark
                    start = stop
                    number += 1
                first += len(parts)
                # the first batch waits for no other
                n_at_once = max(1, min(4 * n_at_once, _MOST_POSITIONS // plan.batch_size))
            epoch, position = epoch + 1, 0


@dataclass(slots=True)
class _Mark:
    """Where the loader is once a batch has been received: the next batch is of ``epoch``, from ``position`` on."""

    epoch: int
    position: int
    n_samples: int
    n_bytes: int = 0


def _order(shuffle: bool | Order) -> Order:
    if isinstance(shuffle, Order):
        return shuffle
    if not isinstance(shuffle, (bool, np.bool_)):
        raise ConfigError(f"shuffle must be a bool or an order such as BlockShuffled(1000), got {shuffle!r:.80}")
    return Shuffled() if shuffle else InOrder()


def _checked_timeout(value: Any) -> float | None:
    if value is None:
        return None
    seconds = float(value) if not isinstance(value, bool) and isinstance(value, numbers.Real) else math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(f"timeout_seconds must be a positive number or None, got {value!r:.80}")
    return seconds


def _check_function(name: str, value: Any, expected: str) -> None:
    if not (value is None or callable(value)):
        raise ConfigError(f"{name} must be None, {expected}, got {value!r:.80}")


def _checked_bool(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):  # "no" and "false" of a configuration file would be true
        raise ConfigError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def _bar(loader: Loader) -> Any:
    """What draws the progress, if there is somebody to look at it."""
    if not shows_progress(loader._progress):
        return None
    from tqdm import tqdm  # only whoever looks pays for its import

    if loader._epochs is None or loader._is_endless:
        return tqdm(unit="batch", leave=False)
    n_steps = len(loader)
    later = range(loader._epoch + 1, loader._first_epoch + loader._epochs)
    n_left = loader._plan_of(loader._epoch).n_steps(loader._position) + sum(loader._plan_of(number).n_steps() for number in later)
    return tqdm(total=n_steps, initial=max(0, n_steps - n_left), unit="batch", leave=False)
