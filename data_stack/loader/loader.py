"""Batches of any stack of iterators for a training loop: in an exact order, from workers of any kind, resumable anywhere."""

from __future__ import annotations

import copy
import functools
import json
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.iterator.names_of_others import LOADER_ARGUMENTS, explains
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader.collation import Collation
from data_stack.loader.conversion import Conversion
from data_stack.loader.jobs import BatchMaker, EpochStacks, Job
from data_stack.loader.orders import InOrder, Order, Shuffled, warn_of_scattered_reads
from data_stack.loader.page import LoaderPage
from data_stack.loader.plan import Plan, Uneven
from data_stack.loader.ranks import check_ranks_agree, warn_without_shard
from data_stack.loader.schedule import NEVER, Schedule
from data_stack.loader.session import LoaderStatistics, Session
from data_stack.loader.sources import StepSource
from data_stack.loader.state import LoaderState
from data_stack.loader.workers.automatic import WorkerKind, workers_of_kind

_Self = TypeVar("_Self", bound="Loader")


class Loader:
    """Batches of ``iterator``'s samples, in an order that the seed and the epoch alone decide.

    ::

        with Loader(train, 256, shuffle=True, seed=7) as loader:
            for epoch in range(10):
                for images, labels, tags in loader:      # len(loader) batches, in another order in each epoch
                    ...

    A batch is what ``iterator.read_batch`` returns: a tuple of arrays of shape ``(batch_size, ...)`` for tuple samples, a dict of
    arrays for dict samples, one array for bare samples. Its arrays may be kept and changed: nothing else uses their memory.
    :meth:`torch`, :meth:`tensorflow` and :meth:`jax` give tensors instead.

    **Iterations.** ``iter(loader)`` begins the next epoch at its start (first epoch 0; later the epoch after the last one that
    gave a batch), and gives ``epochs`` whole epochs. Only after :meth:`load_state_dict` it continues inside of an epoch.
    There is one iteration at a time: a new one ends the one before.

    **Order.** The order is a pure function of the iterator, the seed and the epoch (:mod:`data_stack.loader.orders`). The ranks
    of ``shard`` divide each step (:mod:`data_stack.loader.plan`), so together they have each sample exactly once per epoch
    (except for the last few, see ``uneven``), and equally many steps, if they all have the same iterator, seed and arguments; the
    ranks of a process group compare these. Batches do not depend on the kind and number of workers.
    Random layers of the stack (``shuffle``, ``mix``, ``map(…, seed=…)``) are drawn anew for each epoch.

    **Workers.** Gathers are fastest in the consumer's own thread, decoders that release the GIL in threads, Python code in
    processes; "auto" measures the first batches, keeps the fastest kind, and chooses again when an epoch begins. Worker
    processes are forks of a fresh interpreter, which the first loader starts; they get the pickled iterator and functions, also
    functions of a notebook or script. Their batches arrive in anonymous shared memory, without a copy. Workers end with the
    iteration; inside of ``with`` they stay for the next one.

    Args:
        iterator: any stack of iterators, also a :class:`~data_stack.loader.sources.StepSource`, or an object with ``len`` and
            ``[i]``. The caller closes it.
        batch_size: samples of each batch, of each rank.
        shuffle: False for the iterator's order; True for another order of all samples in each epoch; or an
            :class:`~data_stack.loader.orders.Order` such as :class:`~data_stack.loader.orders.BlockShuffled` or
            :class:`~data_stack.loader.buckets.Bucketed`.
        seed: any integer; decides the order and the draws of the transform.
        epochs: the number of epochs of an iteration; None: it never ends.
        drop_last: whether a shorter last batch of an epoch is left out.
        shard: ``(rank, world)`` of this process among those that train together. None: those of the default group of
            ``torch.distributed`` as soon as it is initialised (checked when an iteration begins, and by ``len()`` and
            :attr:`shard`), and ``(0, 1)`` without a group. An explicit ``(0, 1)`` gives all samples to every rank.
        uneven: how to treat samples that ``world`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad" (some are
            repeated), "drop" (some are left out) or "keep" (ranks may differ by one sample, and by one step).
        workers: threads or processes; None for one for each processor, 0 for none.
        worker_kind: "auto", "inline", "threads", "processes"; or "in_process", which chooses as "auto" does, but no processes.
        prefetch: batches that each worker makes ahead of the consumer, at least 1; fewer where they take more than 32 MiB
            together, but at least one for each worker and one more.
        collate: None for columns; a :class:`~data_stack.loader.collation.Collation` such as
            :class:`~data_stack.loader.collation.Padded`; or a function of the list of samples of a batch, as torch's
            ``collate_fn``.
        transform: a function of each collated batch, which runs in the worker. A parameter ``rng`` gets a generator that depends
            on seed, epoch and position alone.
        redraw: False keeps the random layers of the stack the same in all epochs.
        timeout_seconds: how long the consumer waits for a batch before a :class:`~data_stack.exception.WorkerError`; None: as
            long as the worker lives. After 5 s without a batch it warns.

    Raises:
        ConfigError: an argument is out of range, or two arguments conflict.
    """

    @explains(LOADER_ARGUMENTS)
    def __init__(
        self,
        iterator: DatasetIteratorIF | Indexable,
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
        timeout_seconds: float | None = None,
    ) -> None:
        self._is_endless = isinstance(iterator, StepSource) and iterator.n_steps is None
        if self._is_endless and (shuffle is not False or epochs not in (1, None)):
            raise ConfigError(
                "a step source has its own order and no end: use Epochs(source, shuffle=…) instead of shuffle= and epochs="
            )
        self._iterator = as_iterator(iterator)
        self._redraws = _check_bool("redraw", redraw)
        self._stacks = EpochStacks(self._iterator, self._redraws and not self._is_endless)
        checked_seed = check_integer("the seed of a loader", seed)
        self._epochs = None if epochs is None else check_integer("epochs", epochs, at_least=1)
        if not isinstance(shuffle, Order):
            shuffle = Shuffled() if _check_bool("shuffle", shuffle) else InOrder()
        self._order = shuffle.for_iterator(self._iterator)
        try:
            rank, world = (0, 1) if shard is None else shard
        except (TypeError, ValueError):
            raise ConfigError(f"shard is (rank, world), for example (0, 4), got {shard!r:.80}") from None
        plan = Plan(
            len(self._iterator),
            check_integer("batch_size", batch_size, at_least=1),
            rank=check_integer("the rank of a loader's shard", rank),
            world=check_integer("the world of a loader's shard", world),
            drop_last=_check_bool("drop_last", drop_last),
            uneven=uneven,
        )
        for name, function in (("collate", None if isinstance(collate, Collation) else collate), ("transform", transform)):
            if not (function is None or callable(function)):
                raise ConfigError(f"{name} must be a function, or None, got {function!r:.80}")
        self._maker = BatchMaker(self._stacks, collate=collate, transform=transform)
        make_workers = functools.partial(
            workers_of_kind,
            worker_kind,
            self._maker,
            None if workers is None else check_integer("workers", workers, at_least=0),
            prefetch=check_integer("prefetch", prefetch, at_least=1),
            timeout_seconds=_check_timeout(timeout_seconds),
        )
        self._conversion: Conversion | None = None
        self._session = Session(plan, checked_seed, shard is not None, make_workers)

    # ------------------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, see the class.

        Raises (while iterating):
            LoadingError: a batch could not be made; the message names the sample.
            WorkerError: a worker died or is stuck.
            RuntimeError: another iteration has begun since, or a state was loaded.
            ConfigError: the order returned no integers, random layers cannot be drawn anew for an epoch, or ranks of the process
                group have different datasets, seeds, states or arguments.

        Warns:
            UserWarning: this is one of several processes that train together, and there is neither ``shard`` nor a process group;
                or the order reads a remote store sample by sample.
        """
        session = self._session
        session.end_iteration()
        session.find_shard()
        self._meet_ranks()
        session.go_to(*session.tell())  # another iteration begins at the same place, until this one gives a batch
        end_epoch = NEVER if self._epochs is None else session.first_epoch + self._epochs
        schedule = Schedule(self._order, session.seed, self._plan_of, session.epoch, session.position, end_epoch)
        return session.iterate(schedule, None if self._conversion is None else self._conversion.convert_all)

    def __len__(self) -> int:
        """The number of this rank's batches in the current iteration, or else in the next one.

        An iteration that continues from a state counts from its original start.

        Raises:
            TypeError: it never ends.
        """
        if self._epochs is None or self._is_endless:
            raise TypeError("this loader has no length: it never ends")
        epoch = self.tell()[2]
        return sum(self._plan_of(number).n_steps() for number in range(epoch, epoch + self._epochs))

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self.tell()[0]

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration begin at the start of this epoch; this ends the current iteration.

        After :meth:`load_state_dict` inside of this very epoch nothing changes: training loops that set the epoch before each
        iteration, as for torch's DistributedSampler, continue where they were.
        """
        number = check_integer("the epoch of a loader", epoch, at_least=0)
        session = self._session
        if not (session.goes_on and session.position and number == session.epoch):
            self.seek(number, 0, number)

    def tell(self) -> tuple[int, int, int]:
        """The next batch: its epoch, how many samples of it all ranks have received, and the first epoch of its iteration."""
        return self._session.tell()

    def seek(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration continue where :meth:`tell` returned this; this ends the current iteration."""
        self._session.go_to(epoch, position, first_epoch)

    @property
    def is_inside(self) -> bool:
        """Whether the next iteration continues another one, as after :meth:`load_state_dict`."""
        return self._session.is_inside

    def end_iteration(self) -> None:
        """End the current iteration, if any; workers stay inside of ``with``."""
        self._session.end_iteration()

    @property
    def batch_size(self) -> int:
        """Samples of each batch, of each rank."""
        return self._session.plan.batch_size

    @property
    def plan(self) -> Plan:
        """The plan of epoch 0; other epochs may have another number of samples."""
        self._session.find_shard()
        return self._session.plan

    @property
    def shard(self) -> tuple[int, int]:
        """``(rank, world)``; ``(0, 1)`` if no shard was given and there is no process group yet."""
        plan = self.plan
        return plan.rank, plan.world

    def __repr__(self) -> str:
        plan, seed = self._session.plan, self._session.seed
        where = f", rank {plan.rank} of {plan.world}" if plan.world > 1 else ""
        made = "" if self._conversion is None else f", as {self._conversion.name}"
        return f"<Loader: batches of {self.batch_size} of {self._iterator!r}, {self._order!r}, seed {seed}{where}{made}>"

    def __str__(self) -> str:
        return str(self._page())

    def _repr_html_(self) -> str:
        return self._page().to_html()

    def _page(self) -> LoaderPage:
        session, conversion = self._session, None if self._conversion is None else self._conversion.name
        place = (session.epoch, session.position)
        return LoaderPage(self._iterator, session.plan, self._order, session.seed, self._epochs, place, conversion)

    # ----------------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer: plain JSON data that any loader of the same samples can load, see :class:`LoaderState`.

        It counts what the consumer has *received*, not what workers have made ahead. All ranks have the same state after the
        same step, so saving that of one is enough.

        The first call computes the fingerprint of the stack, which hashes arrays in memory and files without a known digest.
        """
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a state, on any number of ranks and workers; this ends the current iteration.

        It gives the batches that the interrupted iteration would have given. With another world or batch size it gives the
        remaining samples once each, in the same order over all ranks.

        Raises:
            LoaderStateError: the state is of other samples or another order, or is no state; the loader stays as it was.
        """
        loaded = LoaderState.from_dict(state)
        own = self._state()
        loaded.check_is_of(own, self._iterator)
        if loaded.n_samples != (n_samples := self._plan_of(loaded.epoch).n_samples):
            raise LoaderStateError(
                f"this state was taken when epoch {loaded.epoch} had {loaded.n_samples:,} samples, now it has {n_samples:,}; "
                f"it is another dataset now: begin anew"
            )
        first_epoch = loaded.first_epoch
        if self._epochs is not None:  # saved in an iteration of more epochs: give the rest of the current one
            first_epoch = max(first_epoch, loaded.epoch - self._epochs + 1)
        self.seek(loaded.epoch, loaded.position, first_epoch)
        self._session.seed, self._session.met_with_shard = loaded.seed, None

    def save(self) -> dict[str, Any]:
        """:meth:`state_dict`, by the name of Granular's loader."""
        return self.state_dict()

    def load(self, state: Mapping[str, Any]) -> None:
        """:meth:`load_state_dict`, by the name of Granular's loader."""
        self.load_state_dict(state)

    def _state(self) -> LoaderState:
        session = self._session
        if session.fingerprint is None:
            session.fingerprint = fingerprint(self._iterator)
        return LoaderState(
            seed=session.seed,
            epoch=session.epoch,
            position=session.position,
            first_epoch=session.first_epoch,
            n_samples=self._plan_of(session.epoch).n_samples,
            order=self._order_content(),
            fingerprint=session.fingerprint,
        )

    def _order_content(self) -> dict[str, Any]:
        """What identifies the order, as JSON returns it."""
        content = self._order.content()
        if not self._redraws:
            content = {**content, "redraw": False}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain

    # ------------------------------------------------------------------------------------------------------------- frameworks

    def convert(self: _Self, conversion: Conversion) -> _Self:
        """This loader with converted batches.

        Both share everything else, also the state: an iteration of the one ends that of the other. The state counts batches that
        were handed out after conversion.

        Args:
            conversion: replaces that of this loader.
        """
        return self._twin(type(self), conversion)

    def torch(self, *, device: Any = None, pin_memory: bool = False) -> Loader:
        """This loader with torch tensors for arrays, see :class:`data_stack.loader.torch.TorchConversion` and :meth:`convert`.

        Args:
            device: the target device, e.g. ``"cuda"``; None leaves tensors in main memory.
            pin_memory: whether to use page-locked memory.

        Raises:
            ConfigError: there is no such device.
            MissingDependencyError: torch is not installed.
        """
        from data_stack.loader.torch import TorchConversion

        return self._twin(Loader, TorchConversion(device=device, pin_memory=pin_memory))

    def tensorflow(self) -> TensorFlowLoader:
        """This loader with TensorFlow's tensors for arrays, see :class:`data_stack.loader.tensorflow.TensorFlowConversion`.

        Raises:
            MissingDependencyError: TensorFlow is not installed.
        """
        from data_stack.loader.tensorflow import TensorFlowConversion

        return self._twin(TensorFlowLoader, TensorFlowConversion())

    def jax(self, *, device: Any = None) -> Loader:
        """This loader with JAX arrays for numpy's, see :class:`data_stack.loader.jax.JaxConversion` and :meth:`convert`.

        Args:
            device: a device or sharding of JAX's; None for its default device.

        Raises:
            MissingDependencyError: JAX is not installed.
        """
        from data_stack.loader.jax import JaxConversion

        return self._twin(Loader, JaxConversion(device))

    def example_batches(self) -> list[tuple[Any, int]]:
        """The first two and the last batch of the next epoch, unconverted, each with its number of samples.

        They are made in this thread; the state does not change.
        """
        epoch, seed = self._session.tell()[0], self._session.seed
        plan = self._plan_of(epoch)
        n_steps = plan.n_steps()
        steps = sorted({0, min(1, n_steps - 1), n_steps - 1}) if n_steps else []
        parts = [plan.part(step) for step in steps] or [range(min(1, plan.n_samples))]
        examples = []
        for step, part in enumerate(parts):
            positions = plan.positions([part])
            indices = self._order.indices(positions, plan.n_samples, seed, epoch) if len(part) else positions
            made = self._maker.make(Job(epoch, step, part.start, indices, seed))
            examples.append((made.batch, len(part)))
        return examples

    # ------------------------------------------------------------------------------------------------------- workers, figures

    def stats(self) -> LoaderStatistics:
        """The figures of the current or last iteration, see :class:`LoaderStatistics`."""
        return self._session.statistics()

    def close(self) -> None:
        """End the current iteration and all workers. The loader can be iterated over again."""
        self._session.close()

    def __enter__(self: _Self) -> _Self:
        """Keep workers between iterations until the end of the block; threads and processes start now, unless by "auto"."""
        self._session.keep_workers()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        self._session.find_shard()  # the process that unpickles it may have no group
        return {**self.__dict__, "_session": copy.copy(self._session)}  # copies iterate independently

    # --------------------------------------------------------------------------------------------------------------- private

    def _meet_ranks(self) -> None:
        session = self._session
        if session.met_with_shard is session.knows_shard:
            return
        warn_of_scattered_reads(self._order, self._iterator, stacklevel=3)
        if session.knows_shard:
            place = (session.seed, *session.tell()[:2]) if self._order.shares_seed else None
            check_ranks_agree(session.plan, place, self._order_content(), self._iterator)
        else:
            remedy = (
                "Pass shard=shard_of_process() of data_stack.loader, or initialise the process group before the first batch; "
                "shard=(0, 1) if each process needs all samples"
            )
            warn_without_shard("this loader has no shard=, and torch.distributed has no process group", remedy, stacklevel=3)
        session.met_with_shard = session.knows_shard

    def _twin(self, kind: type[_Self], conversion: Conversion) -> _Self:
        twin = object.__new__(kind)
        twin.__dict__.update(self.__dict__, _conversion=conversion)
        return twin

    def _plan_of(self, epoch: int) -> Plan:
        plan, n_samples = self.plan, len(self._stacks.at(epoch))
        return plan if n_samples == plan.n_samples else replace(plan, n_samples=n_samples)


class TensorFlowLoader(Loader):
    """A loader whose batches are TensorFlow's tensors, see :meth:`Loader.tensorflow`."""

    def dataset(self, output_signature: Any = None) -> Any:
        """The batches as a ``tf.data.Dataset``, for Keras and for ``map`` and ``prefetch``.

        ::

            model.fit(loader.tensorflow().dataset(), epochs=10)

        Each iteration over it is one of the loader, so the next epoch. A loop over the loader itself is faster: tf.data takes
        about half a millisecond for each batch of a Python generator.

        Its form (``element_spec``) comes from the first two batches of the epoch and the last one, which are made for this
        purpose; the loader's state stays as it is. The dimension of the samples, and dimensions in which these batches differ,
        are None. A later batch of another form is an error. Lists count as tuples.

        Its cardinality is ``len(loader)``, infinite for an endless loader, and unknown while the loader is inside of an epoch:
        after ``load_state_dict`` the first iteration gives fewer batches, so make the dataset after it.

        The state counts batches that tf.data has taken. With ``prefetch`` these are more than the training has seen; to save
        states, iterate without it, or over this loader itself.

        Args:
            output_signature: nested tuples and dicts of ``tf.TypeSpec``, as for ``tf.data.Dataset.from_generator``; None: found
                as above.

        Raises:
            ConfigError: TensorFlow has no tensors for a column, or there is no sample to find the form.
            LoadingError: one of these batches could not be made. While iterating, errors are TensorFlow's, with our text in them.
        """
        from data_stack.loader.tensorflow import dataset_of

        return dataset_of(self, output_signature)


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):  # "no" and "false" of a configuration file count as true
        raise ConfigError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def _check_timeout(value: Any) -> float | None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < value < math.inf):
        raise ConfigError(f"timeout_seconds must be a positive number or None, got {value!r:.80}")
    return None if value is None else float(value)
