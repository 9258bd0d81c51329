"""Batches of any stack of iterators for a training loop."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.dataset.iterator.names_of_others import LOADER_ARGUMENTS
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.loader.agreement import check_ranks_agree
from data_stack.loader.arguments import (
    check_bool,
    check_function,
    check_timeout,
    parse_shuffle,
)
from data_stack.loader.batch_maker import BatchMaker
from data_stack.loader.budgets.budget import Budget, Cost, parse_budget
from data_stack.loader.budgets.budget_batches import BudgetBatches
from data_stack.loader.budgets.unread_batches import warn_of_unread_batches
from data_stack.loader.collation.collation import Collation
from data_stack.loader.continuation import find_continuation
from data_stack.loader.conversion import Conversion
from data_stack.loader.damage_record import DamageRecord
from data_stack.loader.damaged_sample import DamagedSample
from data_stack.loader.delivery import DeliveryObserver
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.error_log import parse_error_log
from data_stack.loader.error_policy import OnError, parse_error_policy
from data_stack.loader.meshes import DeviceMesh, ProcessGroup
from data_stack.loader.metrics import MetricsReporter
from data_stack.loader.model_speed import SpeedWithoutLoading
from data_stack.loader.orders.in_order import InOrder
from data_stack.loader.orders.order import Order
from data_stack.loader.orders.scattered_reads import warn_of_scattered_reads
from data_stack.loader.place import LoaderPlace
from data_stack.loader.plan import Plan, Uneven
from data_stack.loader.ranks import LoaderShard, warn_without_shard
from data_stack.loader.saved_states import SavedStates
from data_stack.loader.session import Session
from data_stack.loader.state import find_place
from data_stack.loader.statistics import LoaderStatistics
from data_stack.loader.step_samples import SampleOfStep, StepSamples, find_jobs_of_step
from data_stack.loader.timetable import Timetable
from data_stack.loader.trace import TraceWriter
from data_stack.loader.workers.base import WorkerKind
from data_stack.loader.workers.make_workers import make_workers
from data_stack.show.markup import Heading, as_html
from data_stack.util.unknown_arguments import explains_arguments

if TYPE_CHECKING:
    from data_stack.loader.torch import BatchDataset, StepSampler

_Self = TypeVar("_Self", bound="Loader")


class Loader:
    """Batches of an iterator's samples, in an order that only the seed and the epoch determine.

    ::

        with Loader(train, 256, shuffle=True, seed=7) as loader:
            for epoch in range(10):
                # len(loader) batches, in another order in each epoch
                for images, labels, tags in loader:
                    ...

    A batch is what ``iterator.read_batch`` returns: a tuple of arrays of shape
    ``(batch_size, ...)`` for tuple samples, a dict of arrays for dict samples, one array for bare
    samples. You may keep and modify its arrays: nothing else uses their memory. :meth:`torch`,
    :meth:`tensorflow` and :meth:`jax` return tensors instead.

    **Iterations.** ``iter(loader)`` begins the next epoch at its start (epoch 0 first, then the
    epoch after the last one that returned a batch), and runs ``epochs`` whole epochs. After
    :meth:`load_state_dict` it continues inside an epoch. A loader has one iteration at a time: a
    new one ends the previous one.

    **Order.** The order is a pure function of the iterator, the seed and the epoch
    (:mod:`data_stack.loader.orders`). The ranks of ``shard`` divide each step
    (:mod:`data_stack.loader.plan`). Together they read each sample exactly once per epoch (except
    for the last few, see ``uneven``), and they run the same number of steps, provided that all have
    the same iterator, seed and arguments; the ranks of a process group compare these. Batches do
    not depend on the kind or number of workers. Random layers of the stack (``shuffle``, ``mix``,
    ``map(…, seed=…)``) are redrawn for each epoch.

    **Workers.** The consumer's own thread gathers arrays fastest, threads suit decoders that
    release the GIL, and processes suit Python code; "auto" measures the first batches, and
    continues with the fastest kind. Worker processes are forks of a fresh interpreter, which the
    first loader starts; they receive the pickled iterator and functions, also those of a notebook
    or script. Their batches arrive in anonymous shared memory, without a copy. Workers end with the
    iteration; inside ``with`` they stay for the next one.

    Args:
        iterator: any stack of iterators, or an object with ``len`` and ``[i]``. The caller closes
            it.
        batch_size: the number of samples of each batch, of each rank; None with a budget.
        shuffle: False for the iterator's order; True for another order of all samples in each
            epoch; or an :class:`~data_stack.loader.orders.Order` such as
            :class:`~data_stack.loader.orders.BlockShuffled` or
            :class:`~data_stack.loader.orders.Bucketed`.
        seed: any integer; determines the order and the draws of the transform.
        epochs: the number of epochs of an iteration; None for an endless one.
        drop_last: whether to skip a shorter last batch of an epoch.
        shard: ``(rank, world)`` of this process among those that train together. None: those of the
            default group of ``torch.distributed`` as soon as it is initialised (checked when an
            iteration begins, and by ``len()`` and :attr:`shard`), and ``(0, 1)`` without a group.
            "auto": those of the group, or else of JAX, ``torchrun``, Horovod, MPI or Slurm, see
            :func:`~data_stack.loader.shard_of_process`. With an explicit ``(0, 1)`` every rank
            reads all samples. A device mesh of torch's data-parallel dimensions, as
            ``mesh["dp"]`` or ``mesh["dp_replicate", "dp_shard"]``: the place of this process in it,
            in row-major order. A process group of torch's: the rank and size of the group. With
            model parallelism, processes of the same rank read the same batches, see
            :mod:`data_stack.loader.agreement`.
        uneven: how to treat samples that ``world`` does not divide, see
            :class:`~data_stack.loader.plan.Plan`: "pad" repeats some, "drop" skips some, and with
            "keep" ranks may differ by one sample, and by one step.
        workers: the number of threads or processes; None for one per processor, 0 for none.
        worker_kind: "inline" makes batches in the calling thread, for arrays, memory maps and
            records of fixed size. "threads" suit network files, and JPEG, inflate and other code
            that releases the GIL. "processes" suit Python code: transforms, tokenizers, parsers.
            "auto" measures which one is fastest. "in_process" does so without processes, for
            transforms that must run in this process, such as one that counts.
        prefetch: the number of batches that each worker makes ahead of the consumer, at least 1. A
            thread makes up to 32 times as many, if they have at most 2 MiB together. There are
            fewer if all batches exceed 32 MiB together, but at least one per worker plus one.
        collate: None for columns; a :class:`~data_stack.loader.collation.Collation` such as
            :class:`~data_stack.loader.collation.Padded`; or a function of the list of a batch's
            samples, like torch's ``collate_fn``.
        transform: a function of each collated batch, which runs in the worker. A parameter ``rng``
            receives a generator that depends only on seed, epoch and position.
        redraw: False keeps the random layers of the stack the same in all epochs.
        timeout_seconds: how long the consumer waits for a batch before a
            :class:`~data_stack.exception.WorkerError`; None: as long as the worker lives. It warns
            after 5 s without a batch.
        compare_workers: whether this process makes the first batch of worker processes as well, and
            compares the two to the last bit. A worker process does not have what the program sets
            at run time, such as a value in a module. Functions that draw by themselves are not
            compared.
        on_error: what happens to a damaged sample, whose bytes cannot be decoded or do not have
            their checksum. "raise": a :class:`~data_stack.exception.LoadingError`. "skip": its
            batch is shorter. "replace": another sample takes its place, which seed, epoch and
            position determine; not with a budget. All ranks run the same number of steps. Later
            epochs and resumed runs pass over the sample without reading it. Other errors, such as a
            lost server or one of a function of yours, are raised.
        max_errors: how many different samples may be damaged in the whole training, of this rank;
            with one more there is a :class:`~data_stack.exception.TooManyDamagedSamplesError`.
            None means 100. This argument and the next two go with "skip" and "replace" only.
        errors: classes of exceptions that count as damage as well, where reading a sample raises
            them.
        error_log: the path of a file to which damaged samples are appended, one JSON object a line.
        budget: what a batch may cost, in place of ``batch_size``: an integer, or a
            :class:`~data_stack.loader.Budget` for further options. Batches then have as many
            samples as the budget allows, of similar cost if they are shuffled. A position, the
            plan, ``drop_last`` and ``uneven`` then count batches instead of samples.
        cost: what a sample costs of the budget: the name or position of a column, of numbers or of
            arrays that cost their lengths; a function of a sample; or one integer for each sample.
        trace: the path of a file that shows what the loader did, batch by batch and worker by
            worker, in https://ui.perfetto.dev; see :class:`~data_stack.loader.trace.TraceWriter`.
            None writes none.

    Raises:
        ConfigError: an argument is out of range, two arguments conflict, or ``trace`` cannot be
            written.
    """

    #: The arguments of the constructor but ``iterator``, ``shard`` and those of budgets, with which
    #: no loader continues another one.
    _arguments: dict[str, Any]
    #: The samples.
    _iterator: DatasetIteratorIF
    #: Whether random layers are redrawn for each epoch.
    _redraws: bool
    #: The stack of each epoch.
    _stacks: EpochStacks
    #: The order of the samples in an epoch.
    _order: Order
    #: The batches of each epoch by budget; None for batches of one size.
    _budget_batches: BudgetBatches | None
    #: The number of epochs of an iteration; None for an endless one.
    _epochs: int | None
    #: Makes batches.
    _maker: BatchMaker
    #: Converts batches; None for numpy's arrays.
    _conversion: Conversion | None
    #: What changes while the loader is used; loaders that :meth:`convert` makes share it.
    _session: Session

    @explains_arguments(LOADER_ARGUMENTS)
    def __init__(
        self,
        iterator: DatasetIteratorIF | Indexable,
        batch_size: SupportsIndex | None = None,
        *,
        shuffle: bool | Order = False,
        seed: SupportsIndex = 0,
        epochs: SupportsIndex | None = 1,
        drop_last: bool = False,
        shard: (
            tuple[SupportsIndex, SupportsIndex] | DeviceMesh | ProcessGroup | Literal["auto"] | None
        ) = None,
        uneven: Uneven = "pad",
        workers: SupportsIndex | None = None,
        worker_kind: WorkerKind = "auto",
        prefetch: SupportsIndex = 2,
        collate: Collation | Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        redraw: bool = True,
        timeout_seconds: float | None = None,
        compare_workers: bool = True,
        on_error: OnError = "raise",
        max_errors: SupportsIndex | None = None,
        errors: type[Exception] | Sequence[type[Exception]] = (),
        error_log: str | PathLike[str] | None = None,
        budget: Budget | SupportsIndex | None = None,
        cost: Cost | None = None,
        trace: str | PathLike[str] | None = None,
    ) -> None:
        # continue_with() makes another loader with these. It has no budget, whose function of costs
        # may not pickle.
        self._arguments = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "epochs": epochs,
            "drop_last": drop_last,
            "uneven": uneven,
            "workers": workers,
            "worker_kind": worker_kind,
            "prefetch": prefetch,
            "collate": collate,
            "transform": transform,
            "redraw": redraw,
            "timeout_seconds": timeout_seconds,
            "compare_workers": compare_workers,
            "on_error": on_error,
            "max_errors": max_errors,
            "errors": errors,
            "error_log": error_log,
            "trace": trace,
        }

        # What an epoch consists of, and in which order.
        self._iterator = as_iterator(iterator)
        self._redraws = check_bool("redraw", redraw)
        self._stacks = EpochStacks(self._iterator, self._redraws)
        self._order = parse_shuffle(shuffle).for_iterator(self._iterator)
        checked_seed = check_integer("the seed of a loader", seed)
        self._epochs = None
        if epochs is not None:
            self._epochs = check_integer("epochs", epochs, at_least=1)

        # What a batch consists of: as many samples as batch_size, or as a budget allows.
        self._budget_batches = None
        checked_budget = parse_budget(batch_size, budget, cost)
        if checked_budget is None:
            n_parts = len(self._iterator)
            n_parts_of_batch = check_integer("batch_size", batch_size, at_least=1)
        else:
            self._budget_batches = BudgetBatches(checked_budget, self._order, self._stacks)
            n_parts = self._budget_batches.n_batches(0, checked_seed)
            n_parts_of_batch = 1

        # How ranks divide it.
        loader_shard = LoaderShard(shard)
        plan = Plan(
            n_parts,
            n_parts_of_batch,
            rank=loader_shard.shard.rank,
            world=loader_shard.shard.world,
            drop_last=check_bool("drop_last", drop_last),
            uneven=uneven,
        )

        # Who makes the batches.
        if not isinstance(collate, Collation):
            check_function("collate", collate)
        check_function("transform", transform)
        check_timeout(timeout_seconds)
        n_workers = None
        if workers is not None:
            n_workers = check_integer("workers", workers, at_least=0)
        policy = parse_error_policy(on_error, max_errors, errors, has_log=error_log is not None)
        if checked_budget is not None and policy.on_error == "replace":
            raise ConfigError(
                "on_error='replace' does not go with budget=, as another sample may cost more than "
                "the damaged one; use on_error='skip'"
            )
        self._maker = BatchMaker(self._stacks, collate=collate, transform=transform, policy=policy)
        make_own_workers = functools.partial(
            make_workers,
            self._maker,
            worker_kind,
            n_workers=n_workers,
            prefetch=check_integer("prefetch", prefetch, at_least=1),
            timeout_seconds=timeout_seconds,
            compares_batches=check_bool("compare_workers", compare_workers),
        )

        # Who is told of the batches.
        observers: list[DeliveryObserver] = [MetricsReporter()]
        if trace is not None:
            observers.append(TraceWriter(trace))

        # What runs.
        self._conversion = None
        self._session = Session(
            plan,
            checked_seed,
            loader_shard,
            make_own_workers,
            self._maker.stop_prefetching,
            DamageRecord(policy, parse_error_log(error_log)),
            observers,
        )

    # ------------------------------------------------------------------ iteration

    def __iter__(self) -> Iterator[Any]:
        """Begin an iteration, see the class.

        Raises (while iterating):
            LoadingError: a batch could not be made; the message names the sample.
            WorkerError: a worker died or is stuck.
            WorkerDifferenceError: ``worker_kind="processes"``, and a worker makes another batch
                than this process; the message names the column, and the values of modules that
                differ.
            RuntimeError: another iteration has begun since, or a state was loaded.
            ConfigError: the order did not return integers, random layers cannot be redrawn for an
                epoch, or ranks of the process group have different datasets, seeds, states or
                arguments; or the variables of a launcher are wrong.

        Warns:
            UserWarning: one of several training processes has no ``shard``; the order reads a
                remote store sample by sample; or an epoch of a budget was left after as many
                batches as another epoch has.
        """
        session = self._session
        session.end_iteration()
        session.update_shard()
        self._warn_of_unread_batches(stacklevel=2)
        if session.compares_ranks:
            warn_of_scattered_reads(self._order, self._iterator, stacklevel=2)
            self._compare_ranks()
            session.compares_ranks = False

        # Begin where tell() says. This is also where another iteration would begin, until this one
        # returns a batch.
        epoch, position, first_epoch = self.tell()
        session.go_to(epoch, position, first_epoch)
        return session.iterate(self._place.schedule_from_here, self._conversion)

    def __len__(self) -> int:
        """Return the number of this rank's batches in an iteration.

        It is the same in an iteration that continues from a state. No sample is read: all epochs
        count as many samples as epoch 0. If a layer such as ``filter`` above a random layer selects
        another number of samples in each epoch, this is an estimate.

        With a budget, each epoch has its own number of batches. They are counted exactly, which
        takes about 0.1 s for a million samples, once for each epoch.

        Raises:
            TypeError: the loader is endless.
        """
        if self._epochs is None:
            raise TypeError("an endless loader (epochs=None) has no length")
        _, _, first_epoch = self.tell()
        return self._timetable.count_steps(range(first_epoch, first_epoch + self._epochs))

    @property
    def n_batches_left(self) -> int:
        """The number of this rank's batches that the iteration has left.

        Before an iteration these are all its batches. Inside of one, and after
        :meth:`load_state_dict` inside of an epoch, these are the batches that follow. Later epochs
        of the iteration count as for ``len(loader)``.

        Raises:
            TypeError: the loader is endless.
        """
        if self._epochs is None:
            raise TypeError("an endless loader (epochs=None) has no number of batches")
        epoch, position, first_epoch = self.tell()
        later_epochs = range(epoch + 1, first_epoch + self._epochs)
        timetable = self._timetable
        return timetable.plan_of(epoch).n_steps(position) + timetable.count_steps(later_epochs)

    def stats(self) -> LoaderStatistics:
        """Return the figures of the current or last iteration."""
        return self._session.statistics()

    def damaged_samples(self) -> list[DamagedSample]:
        """Return the damaged samples that this rank has met, or loaded with a state.

        They are in the order in which they were met.
        """
        return self._session.damage.samples

    def speed_without_loading(self, n_batches: SupportsIndex = 100) -> SpeedWithoutLoading:
        """Return the first batch of the next epoch, to be used again and again.

        ::

            alone = loader.speed_without_loading()
            for images, labels, tags in alone:
                ...  # the step of the training
            print(alone.samples_per_second)

        A loop over it is as fast as the training would be if loading took no time. :meth:`stats`
        shows its speed beside that of the loader. The batch is converted once. The place and the
        state of the loader stay as they are.

        Args:
            n_batches: how often the batch is returned, at least 2.

        Raises:
            ConfigError: there is no batch.
            LoadingError: the batch could not be made.
        """
        n_steps = check_integer("n_batches", n_batches, at_least=2)
        batch, n_samples = self.example_batch()
        if n_samples == 0:
            raise ConfigError("the loader has no batch by which to measure a training step")
        if self._conversion is not None:
            batch = self._conversion.convert(batch)
        return SpeedWithoutLoading(batch, n_samples, n_steps, self._session.note_model_speed)

    def example_batch(self) -> tuple[Any, int]:
        """Return the first batch of the next epoch, unconverted, and its number of samples.

        The number is 0 if there is no batch.
        """
        epoch, _, _ = self.tell()
        schedule = self._timetable.schedule(epoch, 0, epoch + 1)
        first_job = next(schedule.jobs(), None)
        if first_job is None:
            return None, 0
        made = self._maker.make(self._session.damage.inform(first_job))
        n_samples = len(first_job.indices)
        if made.damage is not None:
            n_samples -= made.damage.n_skipped
        return made.batch, n_samples

    @property
    def _timetable(self) -> Timetable:
        """The batches of all epochs of this rank."""
        return self._place.timetable

    # ------------------------------------------------------------------ the place

    @property
    def _place(self) -> LoaderPlace:
        """Where this loader is."""
        return LoaderPlace(
            session=self._session,
            stacks=self._stacks,
            order=self._order,
            budget_batches=self._budget_batches,
            n_epochs=self._epochs,
        )

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        epoch, _, _ = self.tell()
        return epoch

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration begin at the start of an epoch.

        This ends the current iteration, if its first batch has been requested; otherwise the
        current iteration begins at that epoch. After :meth:`load_state_dict` inside the same epoch
        nothing changes: training loops that set the epoch before each iteration, as for torch's
        DistributedSampler, continue where they stopped.
        """
        number = check_integer("the epoch of a loader", epoch, at_least=0)
        progress = self._session.progress
        continues_inside = progress.resumes_here and progress.position > 0
        if continues_inside and number == progress.epoch:
            return
        is_redirected = self._session.redirect_iteration(number)
        if not is_redirected:
            self._warn_of_unread_batches(stacklevel=2)
            self.seek(number, 0, number)

    def tell(self) -> tuple[int, int, int]:
        """Return the place of the next batch.

        Returns:
            The epoch, the number of its samples that all ranks have received, and the first epoch
            of the iteration.
        """
        return self._place.tell()

    def seek(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration continue at a place that :meth:`tell` returned.

        This ends the current iteration.
        """
        self._session.go_to(epoch, position, first_epoch)

    @property
    def is_inside(self) -> bool:
        """Whether the next iteration continues another one, as after :meth:`load_state_dict`."""
        progress = self._session.progress
        if not progress.resumes_here:
            return False
        return progress.position > 0 or progress.epoch != progress.first_epoch

    # ------------------------------------------------------------------ the state

    @property
    def _states(self) -> SavedStates:
        """The states of this loader."""
        return SavedStates(self._place, self._iterator, self._redraws)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the consumer as JSON data, see :class:`LoaderState`.

        Any loader of the same samples can load it. It counts the samples that the consumer has
        *received*, not those that workers have prefetched. It is enough to save that of one rank,
        if all ranks are at the same step, and have not ended their iteration before others.

        The first call computes the fingerprint of the stack, which hashes arrays in memory and
        files without a known digest.
        """
        return self._states.make().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a state, on any number of ranks and workers.

        This ends the current iteration. The next one returns the batches that the interrupted
        iteration would have returned. With another world or batch size it returns each remaining
        sample once, in the same order over all ranks.

        Any rank may have saved the state. With ``uneven="keep"`` and several epochs, ranks may be
        in different epochs at a step; a state of such a step has to be loaded on as many ranks,
        with the same batch size.

        Raises:
            LoaderStateError: the state is invalid, belongs to other samples, another order or, as
                just said, other ranks; the loader stays as it was.
        """
        # Check everything first, so that a wrong state changes nothing.
        loaded = self._states.read(state)
        timetable = self._timetable.of_state(loaded)
        place = find_place(loaded, timetable.plan, timetable.plan_of)

        # An iteration has to reach the epoch that was interrupted. If this loader has fewer epochs
        # than the interrupted iteration, the next one counts its epochs from a later one on.
        first_epoch = loaded.first_epoch
        if self._epochs is not None:
            first_epoch = max(first_epoch, place.last_epoch + 1 - self._epochs)

        self.seek(place.epoch, place.position, first_epoch)
        self._session.progress.origin = place.origin
        self._session.progress.n_batches = place.n_batches
        self._session.damage.load_state(loaded.damaged)
        self._session.seed = loaded.seed
        self._session.cursors = timetable.cursors
        if self._budget_batches is not None:
            self._session.plan = timetable.plan_of(0)  # the seed decides the number of batches
        self._session.compares_ranks = True

    # ------------------------------------------------------------------ the samples of a step

    def samples_of(
        self,
        step: SupportsIndex,
        *,
        epoch: SupportsIndex | None = None,
        state: Mapping[str, Any] | None = None,
        rank: SupportsIndex | Literal["all"] | None = None,
    ) -> StepSamples:
        """Return which samples a step reads, and the files and rows that they come from.

        ::

            print(loader.samples_of(1000))  # the step of a training that ran in one go
            print(loader.samples_of(1000 - 900, state=checkpoint["loader"], rank="all"))

        No sample is read, and the iteration goes on as before; but random layers are drawn for each
        epoch up to that of the step, which may read what they need, and is cheaper with ``epoch``
        or ``state``. The loader needs the arguments that the training had: the iterator, batch size
        or budget, shard and order. With ``on_error``, a damaged sample is left out or replaced if
        this loader has met it, or if ``state`` names it.

        Args:
            step: the number of the batch, from 0. It is counted from the start of epoch 0, through
                all epochs; with ``epoch`` from the start of that epoch; with ``state`` from the
                state, so that 0 is the batch that follows it, and -1 the one before.
            epoch: the epoch.
            state: what :meth:`state_dict` returned, from which ``step`` is counted. Steps behind it
                are those of this loader's ranks and batch size. A training that was continued on
                other ranks, or with another batch size, has other steps: pass the last state before
                the step.
            rank: the rank; None for that of this loader; "all" for all ranks, in their order.

        Raises:
            ConfigError: there is no such step or rank, or both ``epoch`` and ``state`` were passed.
            LoaderStateError: as :meth:`load_state_dict`.
        """
        if epoch is not None and state is not None:
            raise ConfigError("samples_of() takes epoch= or state=, not both")
        timetable = self._timetable
        damage = self._session.damage
        loaded = None
        if state is None:
            step_number = check_integer("step", step, at_least=0)
        else:
            step_number = check_integer("step", step)
            loaded = self._states.read(state)
            timetable = timetable.of_state(loaded)
            damage = damage.with_state(loaded.damaged)
        epoch_number = None
        if epoch is not None:
            epoch_number = check_integer("epoch", epoch, at_least=0)

        samples: list[SampleOfStep] = []
        jobs = find_jobs_of_step(
            timetable, step_number, self._parse_ranks(rank), epoch=epoch_number, state=loaded
        )
        for rank_number, job in jobs:
            informed_job = damage.inform(job)
            access = self._stacks.access_of(informed_job)
            for index in self._maker.choose_samples(informed_job).tolist():
                origins = tuple(access.origins(index))
                samples.append(SampleOfStep(rank_number, job.epoch, index, origins))
        return StepSamples(step_number, tuple(samples))

    def _parse_ranks(self, rank: SupportsIndex | Literal["all"] | None) -> list[int]:
        """Return the ranks that an argument names, at least one."""
        plan = self.plan
        if rank is None:
            return [plan.rank]
        if isinstance(rank, str):
            if rank != "all":
                raise ConfigError(f'rank must be a number, None or "all", got {rank!r:.80}')
            return list(range(plan.world))
        return [check_integer("rank", rank, at_least=0, at_most=plan.world - 1)]

    def continue_with(self: _Self, iterator: DatasetIteratorIF) -> _Self:
        """Return a loader that continues where this one is, with another mixture.

        The stacks of both loaders have a :meth:`mix <data_stack.DatasetIteratorIF.mix>` with names
        for the sources at their top, or below layers such as ``map`` and ``cache``. Each source
        goes on with its next sample: no sample is read twice before its source was read whole.
        The weights may differ, and sources may be added or left out. A source that comes back goes
        on where it was left. Sources are the same if they have the same name::

            loader = Loader(mixed, 8)
            for batch in loader:
                train(batch)
                if loss < 2:
                    break
            loader = loader.continue_with(mixed_with_more_code)

        The new loader has the arguments of this one, and its seed, rank, epoch and conversion. Its
        ``n_samples``, schedule and positions count from the new mix's first sample. The sources go
        on until the end of the epoch; in the next epoch they begin anew, as always. The state of
        the new loader has what a loader of the new mixture needs to go on from it, on any number of
        ranks. Damaged samples that are known stay known in the sources that go on; in windows and
        packs of shuffled samples they are met anew.

        This ends the current iteration, and closes this loader's workers. It computes fingerprints
        of the sources, which hashes arrays in memory and files without a known digest.

        Args:
            iterator: the stack with the other mix, of the same seed. The caller closes it.

        Raises:
            ConfigError: this loader shuffles, or has a budget or ``redraw=False``; a stack has no
                such mix; the mixes have different seeds; a source has other samples than the one of
                this name before; the mixes before had all samples of the new one; or, with
                ``uneven="keep"``, ranks are in different epochs. This loader stays as it was.
        """
        session = self._session
        session.update_shard()
        self._check_reads_first_samples()

        # Where each source goes on, and which samples are known to be damaged.
        epoch, position = session.progress.place
        continuation = find_continuation(
            self._stacks,
            EpochStacks(as_iterator(iterator), self._redraws),
            epoch=epoch,
            position=position,
            cursors=session.cursors,
            damaged_samples=session.damage.samples,
        )

        # A loader of a subclass keeps the attributes that the subclass has added.
        loader = object.__new__(type(self))
        loader.__dict__.update(self.__dict__)
        Loader.__init__(loader, iterator, shard=self.shard, **self._arguments)
        loader._conversion = self._conversion
        loader._session.continue_from(session, continuation.cursors, continuation.damaged_samples)
        loader._timetable.plan_of(epoch)  # a mix that ends too early fails here
        self.close()
        return loader

    def _check_reads_first_samples(self) -> None:
        """Check that all ranks together have read the first samples of a mix.

        Raises:
            ConfigError: they have not.
        """
        if not isinstance(self._order, InOrder) or self._budget_batches is not None:
            raise ConfigError(
                "a loader that shuffles or has a budget= cannot continue with another mix, as it "
                "has not read the first samples of its own. A mix is shuffled already: pass "
                "shuffle=False"
            )
        if not self._redraws:
            raise ConfigError(
                "a loader with redraw=False reads the same epoch again and again, so it cannot "
                "continue with another mix in the middle of one; leave redraw= out"
            )
        if self._place.are_ranks_apart():
            raise ConfigError(
                'with uneven="keep" the ranks of this loader are in different epochs at this step; '
                'change the mix at another step, or pass uneven="pad" or "drop"'
            )

    # ------------------------------------------------------------------ ranks

    @property
    def batch_size(self) -> int | None:
        """The number of samples of each batch, of each rank; None with a budget."""
        if self._budget_batches is not None:
            return None
        return self._session.plan.batch_size

    @property
    def n_samples(self) -> int:
        """The number of samples of epoch 0, of all ranks together."""
        return len(self._iterator)

    @property
    def plan(self) -> Plan:
        """The plan of epoch 0; other epochs may have another number of samples.

        With a budget it divides batches instead of samples: ``n_samples`` is the number of batches,
        and ``batch_size`` is 1.
        """
        return self._place.plan

    @property
    def shard(self) -> tuple[int, int]:
        """``(rank, world)``; ``(0, 1)`` if no shard was given and there is no process group yet."""
        plan = self.plan
        return plan.rank, plan.world

    def _compare_ranks(self) -> None:
        """Compare the iteration that begins with those of the other ranks.

        Without a shard there is nothing to compare: warn if there are other ranks all the same.
        """
        session = self._session
        if not session.shard.is_final and not session.shard.is_automatic:
            warn_without_shard(
                "this loader has no shard=, and torch.distributed has no process group",
                'Pass shard="auto", or initialise the process group before the first batch; '
                "shard=(0, 1) if each process needs all samples",
                stacklevel=3,
            )
            return

        facts: dict[str, Any] = {
            "epochs": self._epochs,
            "order": self._states.describe_order(),
            "on_error": self._maker.policy.on_error,
        }
        if session.cursors is not None:
            facts["cursors"] = session.cursors.to_dict()
        epoch, position, _ = self.tell()
        start = {"seed": session.seed, "epoch": epoch, "position": position}
        if self._place.are_ranks_apart():
            # Their places differ, but all came from the same origin by as many batches.
            start["epoch"], start["position"] = session.progress.origin
            start["batches of each rank"] = session.progress.n_batches
        check_ranks_agree(
            session.shard,
            session.plan,
            start,
            facts,
            self._iterator,
            # Otherwise each rank has an order of its own, and may begin it anywhere.
            start_together=self._order.shares_seed,
        )

    def _warn_of_unread_batches(self, stacklevel: int) -> None:
        """Warn if a trainer has left an epoch by counting the batches of another one."""
        progress = self._session.progress
        if self._budget_batches is None or progress.resumes_here or progress.position == 0:
            return
        warn_of_unread_batches(progress, self._timetable, self._budget_batches, stacklevel + 1)

    # ------------------------------------------------------------------ conversion

    def convert(self: _Self, conversion: Conversion) -> _Self:
        """Return this loader with converted batches.

        Both loaders share their state and workers: an iteration of one ends that of the other. The
        state counts batches that were returned after conversion. ``conversion`` replaces that of
        this loader.
        """
        return self._with_conversion(type(self), conversion)

    def torch(self, *, device: Any = None, pin_memory: bool = False) -> TorchLoader:
        """Return this loader with torch tensors for arrays, on the same memory where possible.

        Text and dates become lists. See :class:`data_stack.loader.torch.TorchConversion` and
        :meth:`convert`.

        Args:
            device: the target device, e.g. ``"cuda"``; None leaves tensors in main memory.
            pin_memory: whether to use page-locked memory.

        Raises:
            ConfigError: the device does not exist.
        """
        from data_stack.loader.torch import TorchConversion

        conversion = TorchConversion(device=device, pin_memory=pin_memory)
        return self._with_conversion(TorchLoader, conversion)

    def tensorflow(self) -> TensorFlowLoader:
        """Return this loader with TensorFlow's tensors for arrays.

        Columns of text and bytes become tensors of ``tf.string``, arrays that differ in their first
        dimension a ``tf.RaggedTensor``. Dates and other values without tensors become lists.
        See :class:`data_stack.loader.tensorflow.TensorFlowConversion` and :meth:`convert`.
        """
        from data_stack.loader.tensorflow import TensorFlowConversion

        return self._with_conversion(TensorFlowLoader, TensorFlowConversion())

    def jax(self, *, device: Any = None) -> Loader:
        """Return this loader with JAX arrays instead of numpy's.

        They share memory where JAX can compute on it. As always in JAX, 64-bit types become 32-bit
        ones unless ``jax_enable_x64`` is on; a number that 32 bits do not hold is an error. Text
        and dates become lists. See :class:`data_stack.loader.jax.JaxConversion` and
        :meth:`convert`.

        Args:
            device: a device or sharding of JAX's; None for its default device.
        """
        from data_stack.loader.jax import JaxConversion

        return self._with_conversion(Loader, JaxConversion(device))

    def _with_conversion(self, loader_class: type[_Self], conversion: Conversion) -> _Self:
        """Return a loader of a class that shares everything with this one but the conversion.

        ``copy.copy`` would copy the session as well, as ``__getstate__`` does.
        """
        loader = object.__new__(loader_class)
        loader.__dict__.update(self.__dict__)
        loader._conversion = conversion
        return loader

    # ------------------------------------------------------------------ workers and copies

    def close(self) -> None:
        """End the current iteration and all workers. A new iteration starts them again."""
        self._session.close()

    def __enter__(self: _Self) -> _Self:
        """Keep workers between iterations until the end of the block.

        Threads and processes start now, except with "auto".
        """
        self._session.keep_workers()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        self._session.update_shard()  # the process that unpickles it may not have a group
        return {**self.__dict__, "_session": copy.copy(self._session)}

    def __repr__(self) -> str:
        plan = self._session.plan
        rank = ""
        if plan.world > 1:
            rank = f", rank {plan.rank} of {plan.world}"
        conversion = ""
        if self._conversion is not None:
            conversion = f", as {self._conversion.name}"
        size = str(plan.batch_size)
        if self._budget_batches is not None:
            size = f"a cost of {self._budget_batches.budget.max_cost}"
        return (
            f"<Loader: batches of {size} of {self._iterator!r}, {self._order!r}, "
            f"seed {self._session.seed}{rank}{conversion}>"
        )

    def _repr_html_(self) -> str:
        from data_stack.show.page import IteratorPage  # takes long to import

        blocks = IteratorPage(self._iterator).document(2)
        return as_html([Heading(1, repr(self)), *blocks])


class TorchLoader(Loader):
    """A loader whose batches are torch's tensors, see :meth:`Loader.torch`.

    It has the attributes of ``torch.utils.data.DataLoader`` by which Lightning and the Trainer of
    Hugging Face begin an epoch, and skip batches after a checkpoint.

    Attributes:
        num_workers: as of a ``DataLoader`` over :attr:`dataset`: 0, as the loader has workers of
            its own.
        prefetch_factor: likewise, None.
    """

    num_workers = 0
    prefetch_factor = None

    @property
    def sampler(self) -> StepSampler:
        """The numbers of the batches of an iteration.

        Lightning calls its ``set_epoch`` before each of its epochs.
        """
        from data_stack.loader.torch import StepSampler

        return StepSampler(self)

    @property
    def batch_sampler(self) -> StepSampler:
        """The :attr:`sampler` again, as a batch is one element of :attr:`dataset`."""
        return self.sampler

    @property
    def dataset(self) -> BatchDataset:
        """The batches of an iteration by their numbers; its length is the number of samples."""
        from data_stack.loader.torch import BatchDataset

        return BatchDataset(self)

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        """Return the batch as it is, which :attr:`dataset` has made."""
        return batch

    def begin_training_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration be that of an epoch of the trainer.

        The first epoch of the trainer is 0, and each is one iteration of this loader. Nothing
        changes if this iteration has begun, as after :meth:`Loader.load_state_dict` inside of it,
        or if this loader is endless.
        """
        number = check_integer("the epoch of a trainer", epoch, at_least=0)
        if self._epochs is None:
            return
        wanted_first_epoch = number * self._epochs
        _, _, first_epoch = self.tell()
        has_begun = self.is_inside and first_epoch == wanted_first_epoch
        if not has_begun:
            self.set_epoch(wanted_first_epoch)

    def seek_step(self, step: int) -> None:
        """Let the next iteration begin with one of its batches, by its number.

        This ends the current iteration.
        """
        _, _, first_epoch = self.tell()

        # Find the epoch of the batch. An epoch without batches ends the search, as all later ones
        # of an endless iteration may be empty, too.
        epoch = first_epoch
        step_of_epoch = step
        plan = self._timetable.plan_of(epoch)
        while step_of_epoch >= plan.n_steps() and plan.n_steps() > 0:
            step_of_epoch -= plan.n_steps()
            epoch += 1
            plan = self._timetable.plan_of(epoch)
        self.seek(epoch, step_of_epoch * plan.samples_per_step, first_epoch)


class TensorFlowLoader(Loader):
    """A loader whose batches are TensorFlow's tensors, see :meth:`Loader.tensorflow`."""

    def dataset(self, output_signature: Any = None) -> Any:
        """Return the batches as a ``tf.data.Dataset``, for Keras and for ``map`` and ``prefetch``.

        ::

            model.fit(loader.tensorflow().dataset(), epochs=10)

        Each iteration over it is an iteration of the loader, so the next epoch. A loop over the
        loader itself is faster: tf.data takes about half a millisecond for each batch of a Python
        generator.

        Its cardinality is ``len(loader)``, and infinite for an endless loader. It is unknown with a
        budget, for a stack with random layers, and while the loader is inside an epoch: make the
        dataset after ``load_state_dict``, as its first iteration is shorter.

        The state counts batches that tf.data has taken. With ``prefetch`` these are more than the
        training has used; to save states, iterate without it, or over this loader itself.

        Args:
            output_signature: nested tuples and dicts of ``tf.TypeSpec``, as for
                ``tf.data.Dataset.from_generator``. None for that of the epoch's first batch, which
                is made for this purpose: the dimension of the samples, and those of ragged values,
                are None. Pass it where others differ, as with ``Padded()``: a batch of another form
                is an error.

        Raises:
            ConfigError: TensorFlow has no tensors for a column, or there is no sample to find the
                form.
            LoadingError: the first batch could not be made. While iterating, errors are
                TensorFlow's, with our text in them.
        """
        from data_stack.loader.tensorflow import dataset_of

        # The batches of a budget are others in each epoch.
        has_fixed_length = not self._stacks.differ and self._budget_batches is None
        return dataset_of(self, output_signature, has_fixed_length=has_fixed_length)
