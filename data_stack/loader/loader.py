"""Batches of any stack of iterators for a training loop."""

from __future__ import annotations

import copy
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, get_args

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.dataset.iterator.described import LOADER_ARGUMENTS
from data_stack.dataset.positions import check_integer
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader.collation import Collation
from data_stack.loader.conversion import Conversion
from data_stack.loader.jobs import BatchMaker, EpochStacks, InlineWorkers, Workers
from data_stack.loader.orders import InOrder, Order, Shuffled, warn_of_scattered_reads
from data_stack.loader.plan import (
    NEVER,
    Plan,
    Schedule,
    Uneven,
    check_ranks_agree,
    parse_shard,
    place_after,
    warn_without_shard,
)
from data_stack.loader.session import LoaderState, LoaderStatistics, Session
from data_stack.loader.workers import AutomaticWorkers, ThreadWorkers, WorkerKind
from data_stack.show.markup import Heading, as_html
from data_stack.util.executor import n_processors
from data_stack.util.unknown_arguments import explains_arguments

if TYPE_CHECKING:
    from data_stack.loader.torch import BatchDataset, StepSampler

_Self = TypeVar("_Self", bound="Loader")


class Loader:
    """Batches of an iterator's samples, in an order that only the seed and the epoch determine.

    ::

        with Loader(train, 256, shuffle=True, seed=7) as loader:
            for epoch in range(10):
                for images, labels, tags in loader:      # len(loader) batches, in another order in each epoch
                    ...

    A batch is what ``iterator.read_batch`` returns: a tuple of arrays of shape ``(batch_size, ...)`` for tuple samples, a dict of
    arrays for dict samples, one array for bare samples. You may keep and modify its arrays: nothing else uses their memory.
    :meth:`torch`, :meth:`tensorflow` and :meth:`jax` return tensors instead.

    **Iterations.** ``iter(loader)`` begins the next epoch at its start (epoch 0 first, then the epoch after the last one that
    returned a batch), and runs ``epochs`` whole epochs. After :meth:`load_state_dict` it continues inside an epoch.
    A loader has one iteration at a time: a new one ends the previous one.

    **Order.** The order is a pure function of the iterator, the seed and the epoch (:mod:`data_stack.loader.orders`). The ranks
    of ``shard`` divide each step (:mod:`data_stack.loader.plan`). Together they read each sample exactly once per epoch (except
    for the last few, see ``uneven``), and they run the same number of steps, provided that all have the same iterator, seed and
    arguments; the ranks of a process group compare these. Batches do not depend on the kind or number of workers.
    Random layers of the stack (``shuffle``, ``mix``, ``map(…, seed=…)``) are redrawn for each epoch.

    **Workers.** The consumer's own thread gathers arrays fastest, threads suit decoders that release the GIL, and processes suit
    Python code; "auto" measures the first batches, and continues with the fastest kind. Worker processes are forks of a fresh
    interpreter, which the first loader starts; they receive the pickled iterator and functions, also those of a notebook or
    script. Their batches arrive in anonymous shared memory, without a copy. Workers end with the
    iteration; inside ``with`` they stay for the next one.

    Args:
        iterator: any stack of iterators, or an object with ``len`` and ``[i]``. The caller closes it.
        batch_size: samples of each batch, of each rank.
        shuffle: False for the iterator's order; True for another order of all samples in each epoch; or an
            :class:`~data_stack.loader.orders.Order` such as :class:`~data_stack.loader.orders.BlockShuffled` or
            :class:`~data_stack.loader.orders.Bucketed`.
        seed: any integer; determines the order and the draws of the transform.
        epochs: the number of epochs of an iteration; None for an endless one.
        drop_last: whether to skip a shorter last batch of an epoch.
        shard: ``(rank, world)`` of this process among those that train together. None: those of the default group of
            ``torch.distributed`` as soon as it is initialised (checked when an iteration begins, and by ``len()`` and
            :attr:`shard`), and ``(0, 1)`` without a group. "auto": those of the group, or else of JAX, ``torchrun``, Horovod, MPI
            or Slurm, see :func:`~data_stack.loader.shard_of_process`. With an explicit ``(0, 1)`` every rank reads all samples.
        uneven: how to treat samples that ``world`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad" repeats
            some, "drop" skips some, and with "keep" ranks may differ by one sample, and by one step.
        workers: number of threads or processes; None for one per processor, 0 for none.
        worker_kind: "auto", "inline", "threads", "processes"; or "in_process", which chooses as "auto" does, without processes.
        prefetch: batches that each worker makes ahead of the consumer, at least 1; fewer if they exceed 32 MiB together, but at
            least one per worker plus one.
        collate: None for columns; a :class:`~data_stack.loader.collation.Collation` such as
            :class:`~data_stack.loader.collation.Padded`; or a function of the list of a batch's samples, like torch's
            ``collate_fn``.
        transform: a function of each collated batch, which runs in the worker. A parameter ``rng`` receives a generator that
            depends only on seed, epoch and position.
        redraw: False keeps the random layers of the stack the same in all epochs.
        timeout_seconds: how long the consumer waits for a batch before a :class:`~data_stack.exception.WorkerError`; None: as
            long as the worker lives. It warns after 5 s without a batch.
        compare_workers: whether this process makes the first batch of worker processes as well, and compares the two to the last
            bit. A worker process does not have what the program sets at run time, such as a value in a module. Functions that
            draw by themselves are not compared.

    Raises:
        ConfigError: an argument is out of range, or two arguments conflict.
    """

    @explains_arguments(LOADER_ARGUMENTS)
    def __init__(
        self,
        iterator: DatasetIteratorIF | Indexable,
        batch_size: SupportsIndex,
        *,
        shuffle: bool | Order = False,
        seed: SupportsIndex = 0,
        epochs: SupportsIndex | None = 1,
        drop_last: bool = False,
        shard: tuple[SupportsIndex, SupportsIndex] | Literal["auto"] | None = None,
        uneven: Uneven = "pad",
        workers: SupportsIndex | None = None,
        worker_kind: WorkerKind = "auto",
        prefetch: SupportsIndex = 2,
        collate: Collation | Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        redraw: bool = True,
        timeout_seconds: float | None = None,
        compare_workers: bool = True,
    ) -> None:
        self._iterator = as_iterator(iterator)
        self._redraws = _check_bool("redraw", redraw)
        self._stacks = EpochStacks(self._iterator, self._redraws)
        checked_seed = check_integer("the seed of a loader", seed)
        self._epochs = None if epochs is None else check_integer("epochs", epochs, at_least=1)
        if not isinstance(shuffle, Order):
            shuffle = Shuffled() if _check_bool("shuffle", shuffle) else InOrder()
        self._order = shuffle.for_iterator(self._iterator)
        (rank, world), find_shard = parse_shard(shard)
        plan = Plan(
            len(self._iterator),
            check_integer("batch_size", batch_size, at_least=1),
            rank=rank,
            world=world,
            drop_last=_check_bool("drop_last", drop_last),
            uneven=uneven,
        )
        for name, function in (
            ("collate", None if isinstance(collate, Collation) else collate),
            ("transform", transform),
        ):
            if not (function is None or callable(function)):
                raise ConfigError(f"{name} must be a function, or None, got {function!r:.80}")
        is_number = isinstance(timeout_seconds, (int, float, np.number)) and not isinstance(
            timeout_seconds, bool
        )
        if timeout_seconds is not None and not (is_number and 0 < timeout_seconds < math.inf):
            raise ConfigError(
                f"timeout_seconds must be a positive number or None, got {timeout_seconds!r:.80}"
            )
        self._maker = BatchMaker(self._stacks, collate=collate, transform=transform)
        make_workers = functools.partial(
            workers_of_kind,
            worker_kind,
            self._maker,
            None if workers is None else check_integer("workers", workers, at_least=0),
            prefetch=check_integer("prefetch", prefetch, at_least=1),
            timeout_seconds=timeout_seconds,
            compares=_check_bool("compare_workers", compare_workers),
        )
        self._conversion: Conversion | None = None
        self._session = Session(plan, checked_seed, find_shard, make_workers)

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, see the class.

        Raises (while iterating):
            LoadingError: a batch could not be made; the message names the sample.
            WorkerError: a worker died or is stuck.
            WorkerDifferenceError: ``worker_kind="processes"``, and a worker makes another batch than this process; the message
                names the column, and the values of modules that differ.
            RuntimeError: another iteration has begun since, or a state was loaded.
            ConfigError: the order did not return integers, random layers cannot be redrawn for an epoch, or ranks of the process
                group have different datasets, seeds, states or arguments; or the variables of a launcher are wrong.

        Warns:
            UserWarning: one of several training processes has no ``shard``; or the order reads a remote store sample by sample.
        """
        session = self._session
        session.end_iteration()
        session.find_shard()
        self._meet_ranks()
        # another iteration begins at the same place, until this one returns a batch
        session.go_to(*self.tell())
        convert = iter if self._conversion is None else self._conversion.convert_all
        return session.iterate(self._schedule, convert)

    def _schedule(self) -> Schedule:
        """The batches from here to the end of the iteration."""
        session = self._session
        return Schedule(
            self._order,
            session.seed,
            self._plan_of,
            session.epoch,
            session.position,
            self._end_epoch(),
        )

    def __len__(self) -> int:
        """The number of this rank's batches in an iteration, also in one that continues from a state.

        No sample is read: all epochs count as many samples as epoch 0. If a layer such as ``filter`` above a random layer selects
        another number of samples in each epoch, this is an estimate.

        Raises:
            TypeError: the loader is endless.
        """
        if self._epochs is None:
            raise TypeError("an endless loader (epochs=None) has no length")
        return self._epochs * self._plan_for(self._iterator).n_steps()

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self.tell()[0]

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration begin at the start of an epoch; this ends the current iteration, if it has returned a batch.

        After :meth:`load_state_dict` inside the same epoch nothing changes: training loops that set the epoch before each
        iteration, as for torch's DistributedSampler, continue where they stopped.
        """
        number = check_integer("the epoch of a loader", epoch, at_least=0)
        session = self._session
        is_inside = session.goes_on and session.position > 0 and number == session.epoch
        if not is_inside and not session.move_waiting(number):
            self.seek(number, 0, number)

    def tell(self) -> tuple[int, int, int]:
        """The place of the next batch: epoch, samples of it that all ranks have received, first epoch of the iteration."""
        session = self._session
        epoch, position, first_epoch = session.tell()
        if (epoch, position) == (session.epoch, session.position) or not self._ranks_differ():
            return epoch, position, first_epoch
        # The iteration has been stopped: all ranks begin with the same epoch.
        last_rank = session.plan.world - 1
        furthest_epoch, furthest_position = self._place_of(last_rank)
        epoch = furthest_epoch + (furthest_position > 0)
        return epoch, 0, epoch

    def seek(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration continue at a place that :meth:`tell` returned; this ends the current iteration."""
        self._session.go_to(epoch, position, first_epoch)

    @property
    def is_inside(self) -> bool:
        """Whether the next iteration continues another one, as after :meth:`load_state_dict`."""
        session = self._session
        return session.goes_on and (session.position > 0 or session.epoch != session.first_epoch)

    @property
    def batch_size(self) -> int:
        """The number of samples in a batch of each rank."""
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
        rank = f", rank {plan.rank} of {plan.world}" if plan.world > 1 else ""
        made = "" if self._conversion is None else f", as {self._conversion.name}"
        return f"<Loader: batches of {self.batch_size} of {self._iterator!r}, {self._order!r}, seed {seed}{rank}{made}>"

    def _repr_html_(self) -> str:
        from data_stack.show.page import IteratorPage  # takes long to import

        return as_html([Heading(1, repr(self)), *IteratorPage(self._iterator).document(2)])

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer as JSON data, which any loader of the same samples can load, see :class:`LoaderState`.

        It counts the samples that the consumer has *received*, not those that workers have prefetched. It is enough to save
        that of one rank, if all ranks are at the same step, and have not ended their iteration before others.

        The first call computes the fingerprint of the stack, which hashes arrays in memory and files without a known digest.
        """
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a state, on any number of ranks and workers; this ends the current iteration.

        It returns the batches that the interrupted iteration would have returned. With another world or batch size it returns
        each remaining sample once, in the same order over all ranks.

        Any rank may have saved the state. With ``uneven="keep"`` and several epochs, ranks may be in different epochs at a step;
        a state of such a step has to be loaded on as many ranks, with the same batch size.

        Raises:
            LoaderStateError: the state is invalid, belongs to other samples, another order or, as just said, other ranks; the
                loader stays as it was.
        """
        loaded = LoaderState.from_dict(state)
        own = self._state()
        loaded.check_is_of(own, self._iterator)
        if loaded.n_samples != (n_samples := self._plan_of(loaded.epoch).n_samples):
            raise LoaderStateError(
                f"epoch {loaded.epoch} had {loaded.n_samples:,} samples when this state was saved, and has {n_samples:,} now: "
                f"the dataset has changed. Start a new training"
            )
        (epoch, position), last_epoch = self._own_place(loaded)
        # saved in an iteration of more epochs: only the rest of the current one
        earliest = 0 if self._epochs is None else last_epoch - self._epochs + 1
        self.seek(epoch, position, max(loaded.first_epoch, earliest))
        session = self._session
        session.seed = loaded.seed
        session.met_with_shard = None
        session.origin = (epoch, position)
        session.n_batches = 0
        if loaded.ranks is not None and loaded.ranks["differ"]:
            session.origin = (loaded.ranks["origin_epoch"], loaded.ranks["origin_position"])
            session.n_batches = loaded.ranks["n_batches"]

    def _own_place(self, loaded: LoaderState) -> tuple[tuple[int, int], int]:
        """This rank's epoch and position in a state, and the last epoch in which a rank is.

        Raises:
            LoaderStateError: the ranks of the state are in different places, and others than these.
        """
        if loaded.ranks is None or not loaded.ranks["differ"]:
            return (loaded.epoch, loaded.position), loaded.epoch
        plan = self.plan
        own = {"batch_size": plan.batch_size, "world": plan.world}
        saved = {name: loaded.ranks[name] for name in own}
        if saved != own or plan.uneven != "keep":
            raise LoaderStateError(
                f"this state was saved when its {saved['world']} ranks were in different epochs, as "
                f'uneven="keep" lets them in an iteration of several epochs. Load it with '
                f'uneven="keep", batch_size={saved["batch_size"]} and {saved["world"]} ranks, not '
                f'uneven="{plan.uneven}", batch_size={plan.batch_size} and {plan.world}; or save '
                f"states in iterations of one epoch (epochs=1)"
            )
        place_of = functools.partial(
            place_after,
            loaded.ranks["n_batches"],
            (loaded.ranks["origin_epoch"], loaded.ranks["origin_position"]),
            plan_of=self._plan_of,
            end_epoch=loaded.ranks["end_epoch"],
        )
        last_epoch, _ = place_of(rank=plan.world - 1)  # the last rank is ahead of all
        return place_of(rank=plan.rank), last_epoch

    def _place_of(self, rank: int) -> tuple[int, int]:
        """Where a rank is after as many batches as this one has received."""
        session = self._session
        return place_after(
            session.n_batches, session.origin, rank, self._plan_of, self._end_epoch()
        )

    def _end_epoch(self) -> int:
        """The epoch after the last one of the iteration."""
        return NEVER if self._epochs is None else self._session.first_epoch + self._epochs

    def _ranks_differ(self) -> bool:
        """Whether ranks are in different places after as many batches as this one has received."""
        plan = self._session.plan
        if plan.uneven != "keep" or plan.world == 1 or self._session.n_batches == 0:
            return False
        # the first rank has the most steps in an epoch, the last one the fewest
        return self._place_of(0) != self._place_of(plan.world - 1)

    def _state(self) -> LoaderState:
        session = self._session
        if session.fingerprint is None:
            session.fingerprint = fingerprint(self._iterator)
        place = (
            session.seed,
            session.epoch,
            session.position,
            session.first_epoch,
            self._plan_of(session.epoch).n_samples,
        )
        ranks = None
        if session.plan.uneven == "keep":
            ranks = {
                "origin_epoch": session.origin[0],
                "origin_position": session.origin[1],
                "end_epoch": self._end_epoch(),
                "n_batches": session.n_batches,
                "batch_size": session.plan.batch_size,
                "world": session.plan.world,
                "differ": int(self._ranks_differ()),
            }
        return LoaderState(*place, self._order_content(), session.fingerprint, ranks)

    def _order_content(self) -> dict[str, Any]:
        """What identifies the order, as JSON returns it."""
        content: dict[str, Any] = json.loads(json.dumps(self._order.content()))
        return content if self._redraws else {**content, "redraw": False}

    def convert(self: _Self, conversion: Conversion) -> _Self:
        """This loader with converted batches.

        Both loaders share their state and workers: an iteration of one ends that of the other. The state counts batches that were
        returned after conversion. ``conversion`` replaces that of this loader.
        """
        return self._twin(type(self), conversion)

    def torch(self, *, device: Any = None, pin_memory: bool = False) -> TorchLoader:
        """This loader with torch tensors for arrays, see :class:`data_stack.loader.torch.TorchConversion` and :meth:`convert`.

        Args:
            device: the target device, e.g. ``"cuda"``; None leaves tensors in main memory.
            pin_memory: whether to use page-locked memory.

        Raises:
            ConfigError: the device does not exist.
        """
        from data_stack.loader.torch import TorchConversion

        return self._twin(TorchLoader, TorchConversion(device=device, pin_memory=pin_memory))

    def tensorflow(self) -> TensorFlowLoader:
        """This loader with TensorFlow's tensors for arrays, see :class:`data_stack.loader.tensorflow.TensorFlowConversion`."""
        from data_stack.loader.tensorflow import TensorFlowConversion

        return self._twin(TensorFlowLoader, TensorFlowConversion())

    def jax(self, *, device: Any = None) -> Loader:
        """This loader with JAX arrays instead of numpy's, see :class:`data_stack.loader.jax.JaxConversion` and :meth:`convert`.

        ``device`` is a device or sharding of JAX's; None for its default device.
        """
        from data_stack.loader.jax import JaxConversion

        return self._twin(Loader, JaxConversion(device))

    def example_batch(self) -> tuple[Any, int]:
        """The first batch of the next epoch, unconverted, and its number of samples, 0 if there is no batch."""
        epoch = self.tell()[0]
        for job in Schedule(
            self._order, self._session.seed, self._plan_of, epoch, 0, epoch + 1
        ).jobs():
            return self._maker.make(job).batch, len(job.indices)
        return None, 0

    def stats(self) -> LoaderStatistics:
        """The figures of the current or last iteration."""
        return self._session.statistics()

    def close(self) -> None:
        """End the current iteration and all workers. A new iteration starts them again."""
        self._session.close()

    def __enter__(self: _Self) -> _Self:
        """Keep workers between iterations until the end of the block. Threads and processes start now, except with "auto"."""
        self._session.keep_workers()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        self._session.find_shard()  # the process that unpickles it may not have a group
        return {
            **self.__dict__,
            "_session": copy.copy(self._session),
        }  # copies iterate independently

    def _meet_ranks(self) -> None:
        session = self._session
        if session.met_with_shard is session.knows_shard:
            return
        warn_of_scattered_reads(self._order, self._iterator, stacklevel=3)
        if session.knows_shard or session.is_automatic:
            facts = {"epochs": self._epochs, "order": self._order_content()}
            place = (session.seed, *self.tell()[:2]) if self._order.shares_seed else None
            if place is not None and self._ranks_differ():
                place = (session.seed, *session.origin)
                facts["batches of each rank"] = session.n_batches
            check_ranks_agree(session.plan, place, facts, self._iterator)
        else:
            remedy = (
                'Pass shard="auto", or initialise the process group before the first batch; shard=(0, 1) if each process needs '
                "all samples"
            )
            warn_without_shard(
                "this loader has no shard=, and torch.distributed has no process group",
                remedy,
                stacklevel=3,
            )
        session.met_with_shard = session.knows_shard

    def _twin(self, kind: type[_Self], conversion: Conversion) -> _Self:
        twin = object.__new__(kind)
        twin.__dict__.update(self.__dict__, _conversion=conversion)
        return twin

    def _plan_of(self, epoch: int) -> Plan:
        return self._plan_for(self._stacks.at(epoch))

    def _plan_for(self, iterator: DatasetIteratorIF) -> Plan:
        plan, n_samples = self.plan, len(iterator)
        return plan if n_samples == plan.n_samples else replace(plan, n_samples=n_samples)


class TorchLoader(Loader):
    """A loader whose batches are torch's tensors, see :meth:`Loader.torch`.

    It has the attributes of ``torch.utils.data.DataLoader`` by which Lightning and the Trainer of Hugging Face begin an epoch,
    and skip batches after a checkpoint.

    Attributes:
        num_workers: of a ``DataLoader`` over :attr:`dataset`: 0, as the loader has workers of its own.
        prefetch_factor: likewise, None.
    """

    num_workers = 0
    prefetch_factor = None

    @property
    def sampler(self) -> StepSampler:
        """The numbers of the batches of an iteration; Lightning calls its ``set_epoch`` before each of its epochs."""
        from data_stack.loader.torch import StepSampler

        return StepSampler(self)

    @property
    def batch_sampler(self) -> StepSampler:
        """As :attr:`sampler`: a batch is one element of :attr:`dataset`."""
        return self.sampler

    @property
    def dataset(self) -> BatchDataset:
        """The batches of an iteration by their numbers; its length is the number of samples."""
        from data_stack.loader.torch import BatchDataset

        return BatchDataset(self)

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        """The batch as it is, which :attr:`dataset` has made."""
        return batch

    def begin_training_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration be that of an epoch of the trainer: the first is 0, and each is one iteration of this loader.

        Nothing changes if this iteration has begun, as after :meth:`Loader.load_state_dict` inside of it, or if this loader is
        endless.
        """
        number = check_integer("the epoch of a trainer", epoch, at_least=0)
        if self._epochs is None:
            return
        first_epoch = number * self._epochs
        if not (self.is_inside and self.tell()[2] == first_epoch):
            self.set_epoch(first_epoch)

    def seek_step(self, step: int) -> None:
        """Let the next iteration begin with a batch of it, by its number; this ends the current iteration."""
        _, _, epoch = self.tell()
        first_epoch = epoch
        n_left = step
        while n_left >= self._plan_of(epoch).n_steps() > 0:
            n_left -= self._plan_of(epoch).n_steps()
            epoch += 1
        self.seek(epoch, n_left * self._plan_of(epoch).samples_per_step, first_epoch)


class TensorFlowLoader(Loader):
    """A loader whose batches are TensorFlow's tensors, see :meth:`Loader.tensorflow`."""

    def dataset(self, output_signature: Any = None) -> Any:
        """The batches as a ``tf.data.Dataset``, for Keras and for ``map`` and ``prefetch``.

        ::

            model.fit(loader.tensorflow().dataset(), epochs=10)

        Each iteration over it is an iteration of the loader, so the next epoch. A loop over the loader itself is faster: tf.data
        takes about half a millisecond for each batch of a Python generator.

        Its cardinality is ``len(loader)``, and infinite for an endless loader. It is unknown for a stack with random layers, and
        while the loader is inside an epoch: make the dataset after ``load_state_dict``, as its first iteration is shorter.

        The state counts batches that tf.data has taken. With ``prefetch`` these are more than the training has used; to save
        states, iterate without it, or over this loader itself.

        Args:
            output_signature: nested tuples and dicts of ``tf.TypeSpec``, as for ``tf.data.Dataset.from_generator``. None for that
                of the epoch's first batch, which is made for this purpose: the dimension of the samples, and those of ragged
                values, are None. Pass it where others differ, as with ``Padded()``: a batch of another form is an error.

        Raises:
            ConfigError: TensorFlow has no tensors for a column, or there is no sample to find the form.
            LoadingError: the first batch could not be made. While iterating, errors are TensorFlow's, with our text in them.
        """
        from data_stack.loader.tensorflow import dataset_of

        return dataset_of(self, output_signature, has_fixed_length=not self._stacks.differ)


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(
        value, (bool, np.bool_)
    ):  # "no" and "false" of a configuration file count as true
        raise ConfigError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def workers_of_kind(
    kind: WorkerKind,
    maker: BatchMaker,
    n_workers: int | None,
    *,
    prefetch: int,
    timeout_seconds: float | None,
    compares: bool = True,
    max_bytes: float = math.inf,
) -> Workers:
    """Make workers, which do not run yet.

    Args:
        kind: of the workers.
        maker: makes the batches.
        n_workers: number of threads or processes; None for one per processor, 0 for inline.
        prefetch: batches that each thread or process makes ahead.
        timeout_seconds: how long to wait for a batch; None for as long as its worker lives.
        compares: whether to compare the first batch of processes with that of this process.
        max_bytes: of the arrays that processes may be sent.

    Raises:
        ConfigError: the kind is unknown, or does not fit this number of workers.
    """
    if kind not in get_args(WorkerKind):
        raise ConfigError(
            f"worker_kind must be 'auto', 'in_process', 'inline', 'threads' or 'processes', got {kind!r:.80}"
        )
    if n_workers if kind == "inline" else kind in ("threads", "processes") and n_workers == 0:
        raise ConfigError(
            f"worker_kind={kind!r} does not go with workers={n_workers}; leave one of them out"
        )
    if kind == "inline" or n_workers == 0:
        return InlineWorkers(maker)
    number = n_processors() if n_workers is None else n_workers
    if kind in ("auto", "in_process"):
        make = functools.partial(
            workers_of_kind,
            maker=maker,
            n_workers=number,
            prefetch=prefetch,
            timeout_seconds=timeout_seconds,
            compares=compares,
        )
        return AutomaticWorkers(maker, number, make, with_processes=kind == "auto")
    if kind == "threads":
        return ThreadWorkers(
            maker,
            number,
            prefetch=prefetch,
            timeout_seconds=timeout_seconds,
            max_bytes=max_bytes,
        )
    from data_stack.loader.processes import ProcessWorkers  # needs cloudpickle, which takes 15 ms

    return ProcessWorkers(
        maker,
        number,
        prefetch=prefetch,
        timeout_seconds=timeout_seconds,
        max_bytes=max_bytes,
        compares=compares,
    )
