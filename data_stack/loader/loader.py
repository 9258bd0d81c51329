"""Batches of any stack of iterators for a training loop: in an exact order, from workers of any kind, resumable anywhere."""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.iterator import Indexable, adapted, checked_integer
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.exception import ConfigError, LoaderStateError, LoadingError
from data_stack.io.progress import new_bar, shows_progress
from data_stack.loader.collation import Collation
from data_stack.loader.iteration import Conversion, Iteration
from data_stack.loader.jobs import BatchMaker, EpochStacks
from data_stack.loader.orders import InOrder, Order, Shuffled
from data_stack.loader.place import Place
from data_stack.loader.plan import Plan, Uneven
from data_stack.loader.process_group import group_shard
from data_stack.loader.schedule import NEVER, Schedule
from data_stack.loader.sources import StepSource
from data_stack.loader.state import LoaderState
from data_stack.loader.statistics import Counters, LoaderStatistics
from data_stack.loader.workers.kinds import WorkerKind, workers_of_kind
from data_stack.loader.workers.workers import Workers
from data_stack.util.logger import logger

if TYPE_CHECKING:
    from data_stack.loader.jax import JaxLoader
    from data_stack.loader.tensorflow import TensorFlowLoader
    from data_stack.loader.torch import TorchLoader

__all__ = ["Loader"]


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
    epoch (but for the last few, see ``uneven``), and equally many steps. Kind and number of workers change nothing about the
    batches. Layers of the stack that are random (``shuffle``, ``mix``, ``map(…, seed=…)``) are drawn anew for each epoch.

    **Workers.** Gathers are fastest in the consumer's own thread, decoders that release the GIL in threads, Python code in
    processes; "auto" tries what may be worth it on the first batches, keeps the fastest, and chooses again when an epoch
    begins. Worker processes are fresh interpreters to which the
    iterator and the functions are sent, functions of a notebook or script too. Their batches lie in shared memory that has no
    name, and are handed out without a copy. Workers end with the iteration; inside of ``with`` they stay for the next one.

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
        shard: ``(rank, world)``: which of how many processes this is that train together. None for those of the default group of
            ``torch.distributed``, which is looked for whenever an iteration begins, or ``len()`` or :attr:`shard` is asked for,
            until it is initialised, and then kept; ``(0, 1)`` where there is none. Given, it stays: ``(0, 1)`` has all samples
            on every rank.
        uneven: what becomes of samples that ``world`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad" (some are
            repeated), "drop" (some are left out) or "keep" (ranks may differ by one sample, and by one step).
        workers: threads or processes; None for as many as there are processors, 0 for none.
        worker_kind: "auto", "inline", "threads" or "processes".
        prefetch: batches that each worker makes ahead of the consumer, at least 1; where these take more than 32 MiB in all there
            are fewer, down to one a worker and one more.
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
        progress: whether a bar is drawn on standard error; None: if that is a terminal, and in a notebook.

    Raises:
        ConfigError: an argument is out of range, or does not suit another.
    """

    def __init__(
        self,
        iterator: DatasetIteratorIF | StepSource | Indexable,
        batch_size: SupportsIndex,
        *,
        shuffle: bool | Order = False,
        seed: SupportsIndex = 0,
        epochs: SupportsIndex | None = 1,
        drop_last: bool = False,
        shard: tuple[SupportsIndex, SupportsIndex] | None = None,
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
        self._order = _order(shuffle).for_iterator(self._iterator)
        self._knows_shard = shard is not None
        try:
            rank, world = (0, 1) if shard is None else shard
        except (TypeError, ValueError):
            raise ConfigError(f"shard is (rank, world), for example (0, 4), got {shard!r:.80}") from None
        self._plan = Plan(
            len(self._iterator),
            checked_integer("batch_size", batch_size, at_least=1),
            rank=checked_integer("the rank of a loader's shard", rank, at_least=0),
            world=checked_integer("the world of a loader's shard", world, at_least=1),
            drop_last=_checked_bool("drop_last", drop_last),
            uneven=uneven,
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
        self._place = Place()
        self._workers: Workers | None = None
        self._workers_pid = 0
        self._keeps_workers = False
        self._iteration: Iteration | None = None
        self._counters = Counters()
        self._make_workers()  # so that wrong arguments fail here; nothing runs yet

    # ------------------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, see the class.

        Raises (while iterating):
            LoadingError: a batch could not be made; the message names the sample.
            WorkerError: a worker died, or does nothing any more.
            RuntimeError: another iteration has begun since, or a state was loaded.
            ConfigError: no index comes from the order for some position, or random layers cannot be drawn anew for an epoch.
        """
        if self._device is not None or self._pin_memory:
            return iter(self.torch())
        return self._iterate(None)

    def __len__(self) -> int:
        """How many batches this rank has in the ``epochs`` epochs of this iteration; if none is under way, of the next one.

        An iteration that goes on from a state has the length that it would have had from its start.

        Raises:
            TypeError: it never ends.
        """
        if self._epochs is None or self._is_endless:
            raise TypeError("this loader has no length: it never ends")
        epoch = self._place.next_first_epoch if self._iteration is None else self._iteration.first_epoch
        return sum(self._plan_of(number).n_steps() for number in range(epoch, epoch + self._epochs))

    @property
    def epoch(self) -> int:
        """The epoch of the batch that comes next in this iteration; if none is under way, that with which the next one begins."""
        return self._place.next_epoch if self._iteration is None else self._place.epoch

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration begin with this epoch, at its start; an iteration that is under way is ended.

        After :meth:`load_state_dict` in the middle of this very epoch nothing changes: training loops that name the epoch before
        each iteration, as they do for torch's DistributedSampler, go on where they were.
        """
        number = checked_integer("the epoch of a loader", epoch, at_least=0)
        if self._place.goes_on and self._place.position and number == self._place.epoch:
            return
        self._end_iteration()
        self._place.go_to(number, 0, first_epoch=number)

    @property
    def batch_size(self) -> int:
        """Samples of each batch, of each rank."""
        return self._plan.batch_size

    @property
    def shard(self) -> tuple[int, int]:
        """``(rank, world)``; as long as none was given and there is no process group, ``(0, 1)``."""
        self._find_shard()
        return self._plan.rank, self._plan.world

    def __repr__(self) -> str:
        rank, world = self._plan.rank, self._plan.world
        where = f", rank {rank} of {world}" if world > 1 else ""
        return f"<Loader: batches of {self.batch_size} of {self._iterator!r}, {self._order!r}, seed {self._seed}{where}>"

    # ----------------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is: plain JSON data from which any loader of the same samples goes on, see :class:`LoaderState`.

        It names what the consumer has *received*: between two batches it is where the second one begins, however many were made
        ahead. All ranks have the same state after the same step, so saving that of one is enough.

        The fingerprint of the stack is taken at the first call, which hashes arrays in memory and files without a known digest.
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
        if not loaded.has_order(own.order):
            raise LoaderStateError(
                f"this state is of another order: {dict(loaded.order)}, that of this loader is {dict(own.order)}; "
                f"give the loader the same shuffle= and redraw="
            )
        if loaded.n_samples != (n_samples := self._plan_of(loaded.epoch).n_samples):
            raise LoaderStateError(
                f"this state was taken when epoch {loaded.epoch} had {loaded.n_samples:,} samples, now it has {n_samples:,}; "
                f"a dataset that has grown since is another one: begin anew"
            )
        first_epoch = loaded.first_epoch
        if self._epochs is not None:  # saved in an iteration of more epochs, or of all: what is left of its epoch is given here
            first_epoch = max(first_epoch, loaded.epoch - self._epochs + 1)
        self._end_iteration()
        self._seed = loaded.seed
        self._place.go_to(loaded.epoch, loaded.position, first_epoch)

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
            epoch=self._place.epoch,
            position=self._place.position,
            first_epoch=self._place.first_epoch,
            n_samples=self._plan_of(self._place.epoch).n_samples,
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

        Args:
            device: a device or sharding of JAX's; None for its default device.

        Raises:
            MissingDependencyError: JAX is not installed.
        """
        from data_stack.loader.jax import JaxLoader

        return JaxLoader(self, device=device)

    # ------------------------------------------------------------------------------------------------------- workers, figures

    def stats(self) -> LoaderStatistics:
        """What the current or last iteration did, and how long the consumer waited, see :class:`LoaderStatistics`."""
        return self._counters.statistics(self._workers)

    def close(self) -> None:
        """End the iteration that is under way, and all workers. The loader can be iterated over again."""
        self._end_iteration()
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
        self._find_shard()  # a process that gets it may be of the same rank, and have no group
        own = {"_workers": None, "_workers_pid": 0, "_iteration": None, "_keeps_workers": False, "_counters": Counters()}
        return {**self.__dict__, **own, "_place": replace(self._place)}

    # --------------------------------------------------------------------------------------------------------------- private

    def _find_shard(self) -> None:
        """Take the shard of the process group, if none was given and there is one by now."""
        if self._knows_shard or self._iteration is not None or (shard := group_shard()) is None:
            return
        self._knows_shard = True
        rank, world = shard
        if world > 1:
            self._plan = replace(self._plan, rank=rank, world=world)
            logger.info(
                "a loader was given no shard: it takes (%d, %d), the rank and world of torch.distributed's group, so this "
                "process gets its part of the samples; Loader(…, shard=(0, 1)) gives it all of them",
                *shard,
            )

    def _plan_of(self, epoch: int) -> Plan:
        self._find_shard()
        try:
            n_samples = len(self._stacks.at(epoch))
        except ConfigError:
            raise
        except Exception as error:  # whatever a layer raises that reads when it is made
            raise LoadingError(f"the stack of epoch {epoch} could not be made", error, epoch=epoch, step=0) from error
        return self._plan if n_samples == self._plan.n_samples else replace(self._plan, n_samples=n_samples)

    def _iterate(self, convert: Conversion | None) -> Iterator[Any]:
        """Begin an iteration, whose batches are converted if that is asked for."""
        self._end_iteration()
        self._find_shard()
        place = self._place
        place.begin()
        end_epoch = NEVER if self._epochs is None else place.first_epoch + self._epochs
        self._counters = Counters()
        self._iteration = Iteration(
            Schedule(self._order, self._seed, self._plan_of, place.epoch, place.position, end_epoch),
            place,
            workers=self._running_workers,
            counters=self._counters,
            progress=self._bar,
            when_over=self._iteration_is_over,
        )
        return self._iteration.batches(convert)

    def _end_iteration(self) -> None:
        if self._iteration is not None:
            self._iteration.end()

    def _iteration_is_over(self, iteration: Iteration) -> None:
        """Count no further, and let go of the workers, or of what they were to make."""
        self._counters.end(self._workers)
        if self._iteration is iteration:
            self._iteration = None
        if self._workers is not None and self._keeps_workers:
            self._workers.cancel()
        else:
            self._close_workers()

    def _bar(self) -> Any:
        """What draws the progress, if there is somebody to look at it."""
        if not shows_progress(self._progress):
            return None
        if self._epochs is None or self._is_endless:
            return new_bar(unit="batch")
        place, n_steps = self._place, len(self)
        n_received = sum(self._plan_of(epoch).n_steps() for epoch in range(place.first_epoch, place.epoch + 1))
        n_received -= self._plan_of(place.epoch).n_steps(place.position)
        return new_bar(total=n_steps, initial=min(n_received, n_steps), unit="batch")

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
            self._workers.close()  # they are kept, with what they know of the batches, for the next iteration to start them


def _order(shuffle: bool | Order) -> Order:
    if isinstance(shuffle, Order):
        return shuffle
    if not isinstance(shuffle, (bool, np.bool_)):
        raise ConfigError(f"shuffle must be a bool or an order such as BlockShuffled(block_lengths=1000), got {shuffle!r:.80}")
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
