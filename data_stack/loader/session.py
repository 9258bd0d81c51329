"""The changing parts of a loader."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from data_stack.exception import LoaderStateError
from data_stack.loader.conversion import Pairs
from data_stack.loader.jobs import Job, Workers
from data_stack.loader.plan import Plan, Schedule, find_shard_of_process, group_shard
from data_stack.util.logger import logger
from data_stack.util.untrusted_text import describe_format

_VERSION = 2

#: Fields of a state that are no integers.
_NO_NUMBERS = ("order", "fingerprint", "ranks")

#: What :attr:`LoaderState.ranks` has.
_RANKS = (
    "origin_epoch",
    "origin_position",
    "end_epoch",
    "n_batches",
    "batch_size",
    "world",
    "differ",
)


@dataclass(slots=True)
class LoaderStatistics:
    """Figures of a loader's current or last iteration; seconds are wall time.

    Attributes:
        worker_kind: "inline", "threads" or "processes"; "" before the first batch.
        n_workers: threads or processes; 0 for inline.
        choice: why ``worker_kind="auto"`` chose these; "" if the caller did.
        n_batches: number of delivered batches.
        n_samples: number of delivered samples.
        n_bytes: of the delivered arrays; columns of objects count their references.
        elapsed_seconds: from the start of the iteration to its end, or until now.
        waiting_seconds: how long the consumer waited for batches.
        read_seconds: for reading samples, summed over the workers.
        collate_seconds: for ``collate``, summed over the workers.
        transform_seconds: for ``transform``, summed over the workers.
        convert_seconds: for conversion to tensors and copies to a device, in the consumer's thread.
    """

    worker_kind: str = ""
    n_workers: int = 0
    choice: str = ""
    n_batches: int = 0
    n_samples: int = 0
    n_bytes: int = 0
    elapsed_seconds: float = 0.0
    waiting_seconds: float = 0.0
    read_seconds: float = 0.0
    collate_seconds: float = 0.0
    transform_seconds: float = 0.0
    convert_seconds: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Delivered samples per second; 0 before the first batch."""
        return (
            self.n_samples / self.elapsed_seconds
            if self.elapsed_seconds and self.n_samples
            else 0.0
        )

    @property
    def waiting_share(self) -> float:
        """The share of the time that the consumer waited: near 0 the model is the bottleneck, near 1 the data is."""
        return self.waiting_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    def __str__(self) -> str:
        where = self.worker_kind + (f" ({self.n_workers})" if self.n_workers else "")
        return (
            f"{self.n_samples:,} samples in {self.n_batches:,} batches, {self.samples_per_second:,.0f} samples/s, "
            f"{self.n_bytes / 1e6:,.1f} MB; the consumer waited {self.waiting_seconds:.3f} s of {self.elapsed_seconds:.3f} s "
            f"({self.waiting_share:.1%}); made {where or 'nowhere yet'}: read {self.read_seconds:.3f} s, collate "
            f"{self.collate_seconds:.3f} s, transform {self.transform_seconds:.3f} s, convert {self.convert_seconds:.3f} s"
        )


@dataclass(frozen=True, slots=True)
class LoaderState:
    """What the consumers of all ranks together have received: the same on any number of ranks and workers.

    With ``uneven="keep"`` ranks may be in different epochs after the same number of batches. The state then has what each of
    them needs to find its own place, see :attr:`ranks`.

    Attributes:
        seed: of the order.
        epoch: of the next samples.
        position: number of that epoch's samples that all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        n_samples: of ``epoch``.
        order: what identifies the order, see :meth:`data_stack.loader.orders.Order.content`.
        fingerprint: of the stack of iterators.
        ranks: None unless ``uneven="keep"``; otherwise how the ranks came to where they are: ``n_batches`` that each rank has
            received since all were in ``origin_epoch`` and ``origin_position``, with ``batch_size`` and ``world``, the
            ``end_epoch`` of the iteration, and whether they are in different places (``differ``, 0 or 1). A rank finds its
            place by :func:`data_stack.loader.plan.place_after`.
    """

    seed: int
    epoch: int
    position: int
    first_epoch: int
    n_samples: int
    order: Mapping[str, Any]
    fingerprint: str
    ranks: Mapping[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON data, with a digest of all fields; without ``ranks`` if they are None."""
        content = asdict(self)
        if self.ranks is None:
            del content["ranks"]
        return seal({"data_stack_loader": _VERSION, **content})

    @classmethod
    def from_dict(cls, state: Any) -> LoaderState:
        """Read what :meth:`to_dict` returned, also after a round trip through JSON or a checkpoint.

        Raises:
            LoaderStateError: it is not a state, was changed, or belongs to another version of data_stack.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(state, Mapping) or "ranks" not in state:
            names.remove("ranks")
        number = state.get("data_stack_loader") if isinstance(state, Mapping) else None
        if number != _VERSION or not {*names, "digest"} <= state.keys():
            what = f"expected what state_dict() of a loader returns, got {state!r:.120}"
            raise LoaderStateError(
                what
                if number in (None, _VERSION)
                else f"{what}, which {describe_format(number, _VERSION)}"
            )
        with contextlib.suppress(
            AttributeError, KeyError, TypeError, ValueError, RecursionError
        ):  # not JSON data
            if (
                str(state["digest"])
                == seal({name: state[name] for name in ["data_stack_loader", *names]})["digest"]
            ):
                # some checkpoints make numpy's integers, or arrays, of numbers
                numbers: dict[str, Any] = {
                    name: int(state[name]) for name in names if name not in _NO_NUMBERS
                }
                ranks = None
                if "ranks" in names:
                    ranks = {name: int(state["ranks"][name]) for name in _RANKS}
                return cls(
                    order=state["order"],
                    fingerprint=state["fingerprint"],
                    ranks=ranks,
                    **numbers,
                )
        raise LoaderStateError(
            "this state of a loader was changed or damaged: its digest does not match; load what state_dict() returned"
        )

    def check_is_of(self, own: LoaderState, iterator: object) -> None:
        """Check that this state belongs to the same samples and order as a loader.

        Args:
            own: the present state of the loader.
            iterator: the loader's, for the message.

        Raises:
            LoaderStateError: samples or order differ.
        """
        if self.fingerprint != own.fingerprint:
            raise LoaderStateError(
                f"this state belongs to another dataset: its stack of iterators has the fingerprint {self.fingerprint[:16]}… and "
                f"{self.n_samples:,} samples, the stack of this loader has {own.fingerprint[:16]}… and {own.n_samples:,} "
                f"({iterator!r}); make the loader from the same iterator, or start a new training"
            )
        if dict(self.order) != own.order:
            raise LoaderStateError(
                f"this state belongs to another order: {dict(self.order)}, but the loader has {dict(own.order)}; "
                f"pass the same shuffle= and redraw= to the loader"
            )


def seal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state with the SHA-256 of their canonical JSON, in which numbers of numpy and tensors count as Python's."""
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), default=lambda value: value.tolist()
    )
    return {**fields, "digest": hashlib.sha256(text.encode()).hexdigest()}


class Session:
    """The position of a loader, its workers and its current iteration.

    A loader shares it with all loaders that its method ``convert`` makes. It pickles without workers and iteration.

    Args:
        plan: of the first epoch.
        seed: of the order.
        find_shard: returns rank and world, or None as long as they are unknown; None if those of the plan are final.
        make_workers: returns workers that do not run yet.

    Attributes:
        knows_shard: whether rank and world of the plan are final.
        epoch: of the next samples.
        position: number of that epoch's samples that all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        origin: the last epoch and position in which all ranks were.
        n_batches: number of batches that this rank has received since then.
        goes_on: whether the next iteration begins right here. Otherwise an iteration has delivered a batch, and the next one
            begins at the start of an epoch: of the next epoch, if the iteration stopped inside an epoch.
        fingerprint: of the stack of iterators, once computed.
        met_with_shard: whether the shard was known when an iteration was last compared with other ranks; None before, and
            after a state was loaded.
        workers: of the current or last iteration.
    """

    def __init__(
        self,
        plan: Plan,
        seed: int,
        find_shard: Callable[[], tuple[int, int] | None] | None,
        make_workers: Callable[[], Workers],
    ) -> None:
        self.plan, self.seed, self.knows_shard, self._find_shard = (
            plan,
            seed,
            find_shard is None,
            find_shard,
        )
        self.epoch = self.position = self.first_epoch = 0
        self.origin = (0, 0)
        self.n_batches = 0
        self.goes_on = True
        self.met_with_shard: bool | None = None
        self._figures, self._began = LoaderStatistics(), 0.0  # of the current or last iteration
        self.fingerprint: str | None = None
        self.workers = make_workers()  # wrong arguments fail here
        self._iteration: object | None = None  # the current one
        self._is_waiting = False  # until its first batch is asked for
        self._process: int  # which began it
        self._make_workers = make_workers
        self._keeps_workers = False

    @property
    def is_automatic(self) -> bool:
        """Whether a launcher may state the shard."""
        return self._find_shard is find_shard_of_process

    # ------------------------------------------------------------------------------------------------------------- the place

    def tell(self) -> tuple[int, int, int]:
        """The next batch: its epoch, the position in it, and the first epoch of its iteration."""
        if self.goes_on or self._iteration is not None:
            return self.epoch, self.position, self.first_epoch
        epoch = self.epoch if self.position == 0 else self.epoch + 1
        return epoch, 0, epoch

    def go_to(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration begin here; this ends the current one.

        All ranks are taken to be here, unless this is where the rank is already.
        """
        self.end_iteration()
        self._place(epoch, position, first_epoch)

    def move_waiting(self, epoch: int) -> bool:
        """Let the current iteration, of which no batch was asked for yet, begin at an epoch; False if there is none."""
        if self._iteration is None or not self._is_waiting:
            return False
        self._place(epoch, 0, epoch)
        return True

    def _place(self, epoch: int, position: int, first_epoch: int) -> None:
        if (epoch, position) != (self.epoch, self.position):
            self.origin = (epoch, position)
            self.n_batches = 0
        self.epoch = epoch
        self.position = position
        self.first_epoch = first_epoch
        self.goes_on = True

    def find_shard(self) -> None:
        """Use rank and world of the process group or launcher, unless the shard is known or there is neither."""
        if (
            self.knows_shard
            or self._find_shard is None
            or self._iteration is not None
            or (shard := self._find_shard()) is None
        ):
            return
        self.knows_shard = (
            group_shard() is not None
        )  # a launcher's may not be those of the group that is made later
        if shard != (self.plan.rank, self.plan.world):
            self.plan = replace(self.plan, rank=shard[0], world=shard[1])
            logger.info(
                "a loader %s uses (%d, %d), the rank and world of %s, so this process reads its part of the samples; with "
                "Loader(…, shard=(0, 1)) it reads all of them",
                'with shard="auto"' if self.is_automatic else "without shard=",
                *(*shard, "torch.distributed's group" if self.knows_shard else "its launcher"),
            )

    # --------------------------------------------------------------------------------------------------------- the iteration

    def iterate(
        self, make_schedule: Callable[[], Schedule], convert: Callable[[Pairs], Pairs]
    ) -> Iterator[Any]:
        """Begin an iteration here. When it yields a batch, the position is behind the batch.

        Args:
            make_schedule: returns the batches from here on; called when the first one is asked for.
            convert: converts the batches.
        """
        self._figures = LoaderStatistics()
        self._iteration = object()
        self._process = os.getpid()
        self._is_waiting = True
        return self._batches(self._iteration, make_schedule, convert)

    def end_iteration(self) -> None:
        """End the current iteration, if any: cancel its jobs, and close the workers unless they are kept."""
        if self._iteration is None:
            return
        self._figures, self._iteration = self.statistics(), None
        if self._keeps_workers:
            self.workers.cancel()
        else:
            self.workers.close()  # the next iteration starts them again, and "auto" keeps its figures

    def keep_workers(self) -> None:
        """Start the workers, and keep them until :meth:`close`."""
        self._keeps_workers = True
        self.workers.start()

    def close(self) -> None:
        """End the current iteration and all workers."""
        self._keeps_workers = False
        self.end_iteration()
        self.workers.close()

    def _batches(
        self,
        iteration: object,
        make_schedule: Callable[[], Schedule],
        convert: Callable[[Pairs], Pairs],
    ) -> Iterator[Any]:
        self._check(iteration)
        self._is_waiting = False
        schedule = make_schedule()
        figures, clock, end_epoch = self._figures, time.perf_counter, schedule.end_epoch
        self._began = clock()
        pairs: Iterator[tuple[Any, tuple[Job, int]]] = convert(self._make(schedule))
        try:
            while True:
                asked = clock()
                pair = next(pairs, None)
                figures.waiting_seconds += clock() - asked
                if pair is None:
                    # also on a rank that has fewer steps than others: all continue with the same epoch
                    self._receive(end_epoch, 0, end_epoch)
                    break
                batch, (job, n_bytes) = pair
                del pair
                figures.n_batches += 1
                figures.n_samples += len(job.indices)
                figures.n_bytes += n_bytes
                self._receive(*job.after, end_epoch)  # last, so that an interruption loses no batch
                yield batch
                del batch  # free the batch before the next one is made
                self._check(iteration)
        except KeyboardInterrupt:
            with contextlib.suppress(KeyboardInterrupt):  # pressed again: do not wait
                self.end_iteration()
            raise
        finally:
            if self._iteration is iteration:
                self.end_iteration()

    def _check(self, iteration: object) -> None:
        if self._iteration is not iteration or self._process != os.getpid():
            raise RuntimeError(
                "this iteration of a loader has ended: another one began, or the loader was closed or loaded a state, or this is "
                "a fork of its process; call iter(loader) again, and make a second loader for two iterations at a time"
            )

    def _receive(self, epoch: int, position: int, end_epoch: int) -> None:
        """Record that the consumer has received all samples before ``position`` of ``epoch``."""
        self.epoch, self.position, self.goes_on = epoch, position, False
        self.n_batches += 1
        if epoch == end_epoch:
            self.first_epoch = epoch
            self.origin = (epoch, 0)
            self.n_batches = 0

    def _make(self, schedule: Schedule) -> Iterator[tuple[Any, tuple[Job, int]]]:
        """The batches of the workers."""
        figures, clock = self._figures, time.perf_counter
        asked = clock()
        jobs, submitted, workers = schedule.jobs(), deque[Job](), self.workers
        workers.expect(schedule.n_jobs)
        while True:
            while len(submitted) < workers.capacity and (job := next(jobs, None)) is not None:
                workers.submit(job)
                submitted.append(job)
            if not submitted:
                return
            made = workers.next()
            figures.read_seconds += made.read_seconds
            figures.collate_seconds += made.collate_seconds
            figures.transform_seconds += made.transform_seconds
            figures.worker_kind, figures.n_workers, figures.choice = (
                workers.kind,
                workers.n_workers,
                workers.choice,
            )
            figures.convert_seconds -= (
                clock() - asked
            )  # waiting time that is not spent here is conversion
            made_pair = made.batch, (submitted.popleft(), made.n_bytes)
            del made
            yield made_pair
            del made_pair
            asked = clock()

    def statistics(self) -> LoaderStatistics:
        """The figures of the current iteration until now, or of the last one."""
        figures = replace(self._figures)
        if self._iteration is not None:
            figures.elapsed_seconds = (
                time.perf_counter() - self._began if figures.waiting_seconds else 0.0
            )
            figures.convert_seconds = max(0.0, figures.convert_seconds + figures.waiting_seconds)
        return figures

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "workers": None,
            "_iteration": None,
            "_keeps_workers": False,
            "_figures": LoaderStatistics(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, workers=state["_make_workers"]())
