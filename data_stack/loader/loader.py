"""Batches of any stack of iterators for a training loop: in an exact order, from workers of any kind, resumable anywhere."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, SupportsIndex, TypeVar

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.contract import Indexable, as_iterator
from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.recipes.recipe import fingerprint
from data_stack.exception import ConfigError, LoaderStateError, LoadingError
from data_stack.io.progress import new_bar, shows_progress
from data_stack.loader.arguments import check_bool, check_function, check_shard, check_timeout, chosen_order
from data_stack.loader.collation import Collation
from data_stack.loader.conversion import Conversion
from data_stack.loader.jobs import BatchMaker, EpochStacks, Job
from data_stack.loader.orders import Order
from data_stack.loader.plan import Plan, Uneven
from data_stack.loader.schedule import NEVER, Schedule
from data_stack.loader.session import Session
from data_stack.loader.sources import StepSource
from data_stack.loader.state import LoaderState
from data_stack.loader.statistics import LoaderStatistics
from data_stack.loader.workers.automatic import WorkerKind, workers_of_kind

__all__ = ["Loader", "TensorFlowLoader"]

_Self = TypeVar("_Self", bound="Loader")


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
        iterator: any stack of iterators, a :class:`~data_stack.loader.sources.StepSource` too, or whatever has ``len`` and
            ``[i]``. It stays the caller's to close.
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
            long as the worker lives and works. After 5 s without a batch there is a warning.
        progress: whether a bar is drawn on standard error; None: if that is a terminal, and in a notebook.

    Raises:
        ConfigError: an argument is out of range, or does not suit another.
    """

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
        self._iterator = as_iterator(iterator)
        self._redraws = check_bool("redraw", redraw)
        self._stacks = EpochStacks(self._iterator, self._redraws and not self._is_endless)
        checked_seed = check_integer("the seed of a loader", seed)
        self._epochs = None if epochs is None else check_integer("epochs", epochs, at_least=1)
        self._order = chosen_order(shuffle).for_iterator(self._iterator)
        rank, world = check_shard(shard)
        plan = Plan(
            len(self._iterator),
            check_integer("batch_size", batch_size, at_least=1),
            rank=rank,
            world=world,
            drop_last=check_bool("drop_last", drop_last),
            uneven=uneven,
        )
        if not isinstance(collate, Collation):
            check_function("collate", collate, "a collation such as Padded(), or a function of a list of samples")
        check_function("transform", transform, "or a function of a batch")
        self._maker = BatchMaker(self._stacks, collate=collate, transform=transform)
        make_workers = functools.partial(
            workers_of_kind,
            worker_kind,
            self._maker,
            None if workers is None else check_integer("workers", workers, at_least=0),
            prefetch=check_integer("prefetch", prefetch, at_least=1),
            timeout_seconds=check_timeout(timeout_seconds),
        )
        make_workers()  # so that wrong arguments fail here; nothing runs yet
        self._device, self._pin_memory = device, check_bool("pin_memory", pin_memory)
        self._progress = None if progress is None else check_bool("progress", progress)
        self._conversion: Conversion | None = None
        self._session = Session(plan, checked_seed, shard is not None, make_workers)

    # ------------------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, see the class.

        Raises (while iterating):
            LoadingError: a batch could not be made; the message names the sample.
            WorkerError: a worker died, or does nothing any more.
            RuntimeError: another iteration has begun since, or a state was loaded.
            ConfigError: no index comes from the order for some position, or random layers cannot be drawn anew for an epoch.
        """
        if self._conversion is None and (self._device is not None or self._pin_memory):
            return iter(self.torch())
        session = self._session
        session.end_iteration()
        session.find_shard()
        session.go_to(*session.tell())  # until it gives a batch, another iteration would begin at the same place
        end_epoch = NEVER if self._epochs is None else session.first_epoch + self._epochs
        schedule = Schedule(self._order, session.seed, self._plan_of, session.epoch, session.position, end_epoch)
        batches = session.iterate(schedule, None if self._conversion is None else self._conversion.convert_all)
        if not shows_progress(self._progress):
            return batches
        return iter(new_bar(batches, total=None if end_epoch == NEVER or self._is_endless else schedule.n_jobs, unit="batch"))

    def __len__(self) -> int:
        """How many batches this rank has in the ``epochs`` epochs of this iteration; if none is under way, of the next one.

        An iteration that goes on from a state has the length that it would have had from its start.

        Raises:
            TypeError: it never ends.
        """
        if self._epochs is None or self._is_endless:
            raise TypeError("this loader has no length: it never ends")
        epoch = self.tell()[2]
        return sum(self._plan_of(number).n_steps() for number in range(epoch, epoch + self._epochs))

    @property
    def epoch(self) -> int:
        """The epoch of the batch that comes next in this iteration; if none is under way, that with which the next one begins."""
        return self.tell()[0]

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration begin with this epoch, at its start; an iteration that is under way is ended.

        After :meth:`load_state_dict` in the middle of this very epoch nothing changes: training loops that name the epoch before
        each iteration, as they do for torch's DistributedSampler, go on where they were.
        """
        number = check_integer("the epoch of a loader", epoch, at_least=0)
        session = self._session
        if not (session.goes_on and session.position and number == session.epoch):
            self.seek(number, 0, number)

    def tell(self) -> tuple[int, int, int]:
        """Which batch comes next: epoch, how many samples of it all ranks have received, epoch with which its iteration began."""
        return self._session.tell()

    def seek(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration go on where :meth:`tell` said that; one that is under way is ended."""
        self._session.go_to(epoch, position, first_epoch)

    @property
    def is_inside(self) -> bool:
        """Whether the next iteration goes on in the middle of one, as after :meth:`load_state_dict`."""
        return self._session.is_inside

    def end_iteration(self) -> None:
        """End the iteration that is under way, if there is one; workers stay inside of ``with``."""
        self._session.end_iteration()

    @property
    def batch_size(self) -> int:
        """Samples of each batch, of each rank."""
        return self._session.plan.batch_size

    @property
    def plan(self) -> Plan:
        """Which samples each batch of epoch 0 has; in other epochs there may be another number of samples."""
        self._session.find_shard()
        return self._session.plan

    @property
    def shard(self) -> tuple[int, int]:
        """``(rank, world)``; as long as none was given and there is no process group, ``(0, 1)``."""
        plan = self.plan
        return plan.rank, plan.world

    def __repr__(self) -> str:
        plan, seed = self._session.plan, self._session.seed
        where = f", rank {plan.rank} of {plan.world}" if plan.world > 1 else ""
        made = "" if self._conversion is None else f", as {self._conversion.name}"
        return f"<Loader: batches of {self.batch_size} of {self._iterator!r}, {self._order!r}, seed {seed}{where}{made}>"

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
        loaded.check_is_of(own, self._iterator)
        if loaded.n_samples != (n_samples := self._plan_of(loaded.epoch).n_samples):
            raise LoaderStateError(
                f"this state was taken when epoch {loaded.epoch} had {loaded.n_samples:,} samples, now it has {n_samples:,}; "
                f"a dataset that has grown since is another one: begin anew"
            )
        first_epoch = loaded.first_epoch
        if self._epochs is not None:  # saved in an iteration of more epochs, or of all: what is left of its epoch is given here
            first_epoch = max(first_epoch, loaded.epoch - self._epochs + 1)
        self.seek(loaded.epoch, loaded.position, first_epoch)
        self._session.seed = loaded.seed

    def save(self) -> dict[str, Any]:
        """:meth:`state_dict`, by the name that Granular's loader has for it."""
        return self.state_dict()

    def load(self, state: Mapping[str, Any]) -> None:
        """:meth:`load_state_dict`, by the name that Granular's loader has for it."""
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
        """What decides which samples stand where, as JSON gives it back."""
        content = self._order.content()
        if not self._redraws:
            content = {**content, "redraw": False}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain

    # ------------------------------------------------------------------------------------------------------------- frameworks

    def convert(self: _Self, conversion: Conversion) -> _Self:
        """This loader, with something else made of its batches.

        Both are one loader in everything else, its state included: an iteration of the one ends that of the other.
        The state is behind a batch when what was made of it is handed out, whatever was made ahead.

        Args:
            conversion: what is made of each; in place of one that this loader has.
        """
        return self._twin(type(self), conversion)

    def torch(self, *, device: Any = None, pin_memory: bool | None = None) -> Loader:
        """This loader, with torch tensors for arrays, see :class:`data_stack.loader.torch.TorchConversion` and :meth:`convert`.

        Args:
            device: where to; None for that of this loader.
            pin_memory: whether to put them in page-locked memory; None for what this loader says.

        Raises:
            ConfigError: there is no such device.
            MissingDependencyError: torch is not installed.
        """
        from data_stack.loader.torch import TorchConversion

        conversion = TorchConversion(
            device=self._device if device is None else device,
            pin_memory=self._pin_memory if pin_memory is None else pin_memory,
        )
        return self._twin(Loader, conversion)

    def tensorflow(self) -> TensorFlowLoader:
        """This loader, with TensorFlow's tensors for arrays, see :class:`data_stack.loader.tensorflow.TensorFlowConversion`.

        Raises:
            MissingDependencyError: TensorFlow is not installed.
        """
        from data_stack.loader.tensorflow import TensorFlowConversion

        return self._twin(TensorFlowLoader, TensorFlowConversion())

    def jax(self, *, device: Any = None) -> Loader:
        """This loader, with JAX arrays for numpy's, see :class:`data_stack.loader.jax.JaxConversion` and :meth:`convert`.

        Args:
            device: a device or sharding of JAX's; None for its default device.

        Raises:
            MissingDependencyError: JAX is not installed.
        """
        from data_stack.loader.jax import JaxConversion

        return self._twin(Loader, JaxConversion(device))

    def example_batches(self) -> list[tuple[Any, int]]:
        """Batches of the next epoch, each with its number of samples: the first two and the last, or what there is.

        They are made here and now, unconverted; the state stays as it is.
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
        """What the current or last iteration did, and how long the consumer waited, see :class:`LoaderStatistics`."""
        return self._session.statistics()

    def close(self) -> None:
        """End the iteration that is under way, and all workers. The loader can be iterated over again."""
        self._session.close()

    def __enter__(self: _Self) -> _Self:
        """Keep workers between iterations, until the end of the block; those that were asked for by kind start now."""
        self._session.keep_workers()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        self._session.find_shard()  # a process that gets it may be of the same rank, and have no group
        return {**self.__dict__, "_session": copy.copy(self._session)}  # a copy goes its own way

    # --------------------------------------------------------------------------------------------------------------- private

    def _twin(self, kind: type[_Self], conversion: Conversion) -> _Self:
        twin = object.__new__(kind)
        twin.__dict__.update(self.__dict__, _conversion=conversion)
        return twin

    def _plan_of(self, epoch: int) -> Plan:
        plan = self.plan
        try:
            n_samples = len(self._stacks.at(epoch))
        except ConfigError:
            raise
        except Exception as error:  # whatever a layer raises that reads when it is made
            raise LoadingError(f"the stack of epoch {epoch} could not be made", error, epoch=epoch, step=0) from error
        return plan if n_samples == plan.n_samples else replace(plan, n_samples=n_samples)


class TensorFlowLoader(Loader):
    """A loader whose batches are TensorFlow's tensors; made by :meth:`Loader.tensorflow`."""

    def dataset(self, output_signature: Any = None) -> Any:
        """The batches as a ``tf.data.Dataset``, for Keras and for who goes on with ``map`` and ``prefetch``.

        ::

            model.fit(loader.tensorflow().dataset(), epochs=10)

        Each iteration over it is one of the loader, so the next epoch. An own loop over the loader is faster: tf.data takes about
        half a millisecond for each batch of a Python generator.

        Its form (``element_spec``) is found from the first two batches of the epoch and the last one, which are made for that and
        thrown away; the loader's state stays as it is. The dimension of the samples and dimensions in which these batches
        differ are None. A batch that does not fit later is an error that says so: give the form then. Lists count as tuples.

        Its cardinality is ``len(loader)``, infinite for a loader that never ends, and unknown while the loader is in the middle
        of an epoch: after ``load_state_dict`` the first iteration gives fewer batches, so make the dataset after it.

        The state counts batches that tf.data has taken. Behind a ``prefetch`` these are more than the training has seen; who
        saves states iterates without one, or over this loader itself.

        Args:
            output_signature: nested tuples and dicts of ``tf.TypeSpec``, as for ``tf.data.Dataset.from_generator``; None: found
                as above.

        Raises:
            ConfigError: a column has something that TensorFlow has no tensors for, or there is no sample to find the form from.
            LoadingError: one of these batches could not be made. While iterating, errors are TensorFlow's, with our text in them.
        """
        from data_stack.loader.tensorflow import dataset_of

        return dataset_of(self, output_signature)
