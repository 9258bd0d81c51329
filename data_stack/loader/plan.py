"""Divides an epoch into the batches of each rank: pure functions of a few integers.

All ranks share one order of the samples of an epoch (:mod:`data_stack.loader.orders`). A *step* takes the next
``world * batch_size`` of them; rank r has the ``batch_size`` positions from ``r * batch_size`` on. So the number of samples that
all ranks together have received describes a run, and another number of ranks can continue with the rest of the order.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.positions import check_integer
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.recipes.recipe_values import probe
from data_stack.exception import ConfigError
from data_stack.loader.jobs import Job
from data_stack.loader.orders import Order
from data_stack.util.logger import logger

Uneven = Literal["pad", "drop", "keep"]
"""How to treat samples of an epoch's last step that ``world`` does not divide."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How an epoch of ``n_samples`` is divided into batches.

    If ``world * batch_size`` does not divide the number of samples, the last step is shorter. With ``drop_last`` all ranks skip
    it. Otherwise the ranks share its samples evenly, and ``uneven`` says what happens to the rest if ``world`` does not divide
    their number:

    - ``"pad"``: all ranks have the same number; the missing samples are repeated from the start of the epoch's order.
    - ``"drop"``: all ranks have the same number; the remaining samples, fewer than ``world``, are skipped.
    - ``"keep"``: some ranks get one sample more; with fewer samples than ranks, some have one *step* more.

    Every other sample is in exactly one batch. With one rank, ``uneven`` has no effect.

    Attributes:
        n_samples: of the epoch, at least 0.
        batch_size: number of samples in a rank's batch, at least 1.
        rank: from 0 to ``world - 1``.
        world: number of ranks, at least 1.
        drop_last: whether the last step is left out if it is shorter than the others.
        uneven: "pad", "drop" or "keep".
    """

    n_samples: int
    batch_size: int
    _: KW_ONLY
    rank: int = 0
    world: int = 1
    drop_last: bool = False
    uneven: Uneven = "pad"

    @property
    def samples_per_step(self) -> int:
        """The number of samples of all ranks together, in every step but the last."""
        return self.batch_size * self.world

    def n_steps(self, position: int = 0, rank: int | None = None) -> int:
        """The number of batches of a rank (None: this one) from a position of the epoch on."""
        n_full, n_rest = divmod(max(0, self.n_samples - position), self.samples_per_step)
        if n_rest == 0 or self.drop_last:
            return n_full
        return n_full + (len(self._dealt(n_rest, self.rank if rank is None else rank)) > 0)

    def n_batch_samples(self, position: int = 0) -> int:
        """The number of samples in this rank's batches from a position of the epoch on, repeated ones included."""
        n_full, n_rest = divmod(max(0, self.n_samples - position), self.samples_per_step)
        return n_full * self.batch_size + (
            0 if self.drop_last else len(self._dealt(n_rest, self.rank))
        )

    def part(self, step: int, position: int = 0) -> range:
        """The positions of this rank's batch ``step``, counted from ``position`` on.

        With "pad" they may exceed ``n_samples``; :meth:`positions` wraps them.

        Args:
            step: in ``[0, n_steps(position))``.
            position: the number of the epoch's samples that all ranks together had received before step 0.
        """
        start = position + step * self.samples_per_step
        dealt = self._dealt(min(self.n_samples - start, self.samples_per_step), self.rank)
        return range(start + dealt.start, start + dealt.stop)

    def positions(self, parts: Sequence[range]) -> npt.NDArray[np.int64]:
        """The positions of several :meth:`part`, concatenated, each in ``[0, n_samples)``."""
        starts, size = np.array([part.start for part in parts], dtype=np.int64), len(parts[0])
        positions = (starts[:, np.newaxis] + np.arange(size, dtype=np.int64)).ravel()
        if len(parts[-1]) != size:  # that of an epoch's last step
            positions = np.concatenate(
                [positions[:-size], np.arange(parts[-1].start, parts[-1].stop, dtype=np.int64)]
            )
        if parts[-1].stop > self.n_samples:
            positions %= self.n_samples
        return positions

    def position_after(self, step: int, position: int = 0) -> int:
        """The number of samples that all ranks together have received after ``step``; ``n_samples`` after the last step."""
        after = min(position + (step + 1) * self.samples_per_step, self.n_samples)
        return after if self.n_steps(after, rank=0) else self.n_samples

    def _dealt(self, n_rest: int, rank: int) -> range:
        """A rank's part of the ``n_rest`` samples of a step."""
        each, n_over = divmod(n_rest, self.world)
        if self.uneven == "keep":
            start = rank * each + min(rank, n_over)
            return range(start, start + each + (rank < n_over))
        if self.uneven == "pad":
            each += n_over > 0
        return range(rank * each, (rank + 1) * each)

    def __post_init__(self) -> None:
        check_integer("n_samples", self.n_samples, at_least=0)
        check_integer("batch_size", self.batch_size, at_least=1)
        check_integer("the world of a loader's shard", self.world, at_least=1)
        check_integer(
            f"the rank of a loader's shard in a world of {self.world}",
            self.rank,
            at_least=0,
            at_most=self.world - 1,
        )
        if self.uneven not in ("pad", "drop", "keep"):
            raise ConfigError(f"uneven must be 'pad', 'drop' or 'keep', got {self.uneven!r}")


def place_after(
    n_batches: int,
    origin: tuple[int, int],
    rank: int,
    plan_of: Callable[[int], Plan],
    end_epoch: int,
) -> tuple[int, int]:
    """Return where a rank is after it has received a number of batches.

    With ``uneven="keep"`` some ranks have a step more in an epoch than others, so that in an
    iteration of several epochs ranks are in different places after the same number of batches.

    Args:
        n_batches: received since the origin.
        origin: the epoch and position in which all ranks were.
        rank: of the plan's world.
        plan_of: returns the plan of an epoch.
        end_epoch: the epoch after the last one of the iteration.

    Returns:
        The epoch and position of the rank's next batch; ``(end_epoch, 0)`` at its end.
    """
    epoch, position = origin
    n_left = n_batches
    while n_left > 0 and epoch < end_epoch:
        plan = plan_of(epoch)
        n_steps = plan.n_steps(position, rank)
        if n_left <= n_steps:
            position_after = plan.position_after(n_left - 1, position)
            if n_left == n_steps and position_after == plan.n_samples:
                return epoch + 1, 0
            return epoch, position + n_left * plan.samples_per_step
        if n_steps == 0 and position == 0 and end_epoch == NEVER:
            return epoch, 0  # a rank without samples stays where it is
        n_left -= n_steps
        epoch += 1
        position = 0
    return epoch, position


NEVER = sys.maxsize
"""The end epoch of an endless iteration."""

# Number of positions in one request to the order: enough to amortise the fixed cost of a call, few enough for the C library to
# reuse the memory of temporary arrays.
_MAX_POSITIONS = 1 << 12


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of an iteration: a pure function of its attributes.

    Attributes:
        order: of the samples in an epoch.
        seed: of the order, and of the draws of the transform.
        plan_of: returns the plan of an epoch.
        epoch: the first epoch.
        position: where in that epoch the iteration begins.
        end_epoch: the epoch after the last one; ``NEVER`` if it is endless.
    """

    order: Order
    seed: int
    plan_of: Callable[[int], Plan]
    epoch: int
    position: int
    end_epoch: int

    @property
    def n_jobs(self) -> int:
        """The number of jobs, provided that later epochs have as many samples as the first one."""
        plan = self.plan_of(self.epoch)
        return plan.n_steps(self.position) + (self.end_epoch - self.epoch - 1) * plan.n_steps()

    def jobs(self) -> Iterator[Job]:
        """The jobs one by one; one request to the order covers several batches.

        Raises (while iterating):
            ConfigError: an epoch of an endless iteration is empty; or the order does not return an integer for each position.
        """
        epoch, position = self.epoch, self.position
        n_at_once = 1
        while epoch < self.end_epoch:
            plan = self.plan_of(epoch)
            n_steps = plan.n_steps(position)
            if n_steps == 0 and self.end_epoch == NEVER and position == 0:
                raise ConfigError(
                    f"an endless loader cannot make a batch: epoch {epoch} has {plan.n_samples} samples, a step needs "
                    f"{plan.samples_per_step}{' (drop_last)' if plan.drop_last else ''}; add samples, or pass epochs="
                )
            first = until = 0
            while first < n_steps:
                parts = [
                    plan.part(step, position)
                    for step in range(first, min(first + n_at_once, n_steps))
                ]
                positions = plan.positions(parts)
                indices = np.asarray(
                    self.order.indices(positions, plan.n_samples, self.seed, epoch)
                )
                if (
                    indices.shape != positions.shape or indices.dtype.kind not in "iu"
                ):  # a mask would pass for 0 and 1
                    raise ConfigError(
                        f"{self.order!r} returned indices of shape {indices.shape} and dtype {indices.dtype} for "
                        f"{len(positions)} positions; return one integer per position"
                    )
                start = 0
                for step, part in enumerate(parts, first):
                    stop = start + len(part)
                    after = epoch, position + (step + 1) * plan.samples_per_step
                    if (
                        step + 1 == n_steps
                        and plan.position_after(step, position) == plan.n_samples
                    ):
                        after = epoch + 1, 0
                    ahead = None
                    if part.start >= until:
                        ahead, until = self.order.upcoming(
                            part.start, plan.n_samples, self.seed, epoch
                        )
                    yield Job(epoch, step, part.start, indices[start:stop], self.seed, after, ahead)
                    start = stop
                first += len(parts)
                # the first batch is not delayed by others
                n_at_once = max(1, _MAX_POSITIONS // plan.batch_size)
            epoch, position = epoch + 1, 0


#: Variables of the environment with the rank of a process and the number of processes, by launcher: the innermost launcher first.
#: SLURM_NTASKS counts the tasks of the whole job, also in a notebook or batch script that is only one process of it.
_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
# All ranks begin the iterations that are compared in the same order.
_numbers = itertools.count()


def group_shard() -> tuple[int, int] | None:
    """``(rank, world)`` in the default group of ``torch.distributed``; None without a group. This does not import torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _framework_shard() -> tuple[int, int] | None:
    """``(rank, world)`` as torch or JAX says; JAX is only asked when it is initialised, as the question would start it."""
    if (shard := group_shard()) is not None:
        return shard
    jax = sys.modules.get("jax")
    return (
        (jax.process_index(), jax.process_count())
        if jax is not None and jax.distributed.is_initialized()
        else None
    )


def launcher_shard() -> tuple[int, int] | None:
    """``(rank, world)`` as the launcher says (torchrun, Horovod, MPI, Slurm); None without a launcher."""
    return next((shard for *_, shard in _launchers() if shard is not None), None)


def _launchers() -> Iterator[tuple[str, bool, tuple[int, int] | None]]:
    """For each launcher its variables, whether one is set, and ``(rank, world)``; None if they are not set, or wrong."""
    for names in _VARIABLES:
        rank, world = [os.environ.get(name, "") for name in names]
        is_shard = rank.isdecimal() and world.isdecimal() and int(rank) < int(world)
        is_set = bool(
            world or (rank and "SLURM_PROCID" not in names)
        )  # a batch script of Slurm has no second one
        text = " and ".join(
            f"{name}={os.environ[name]!r:.40}" if name in os.environ else f"no {name}"
            for name in names
        )
        yield text, is_set, (int(rank), int(world)) if is_shard else None


def find_shard_of_process() -> tuple[int, int] | None:
    """:func:`shard_of_process`; None if nothing says that there are several processes."""
    shard = _framework_shard()
    if shard is None:
        launchers = [(text, found) for text, is_set, found in _launchers() if is_set]
        text, shard = launchers[0] if launchers else ("", None)
        if launchers and shard is None:
            raise ConfigError(
                f"{text} are not the rank of a process and the number of processes; set both, as the launcher does, or unset "
                f"both, or call torch.distributed.init_process_group() first"
            )
        for other, found in (
            () if "TORCHELASTIC_RUN_ID" in os.environ else launchers
        ):  # torchrun numbers nodes as they come
            if shard is not None and found is not None and found[1] == shard[1] and found != shard:
                raise ConfigError(
                    f"{text} contradict {other}: two ranks of this process among as many; unset the wrong ones, or pass "
                    f"shard=(rank, world)"
                )
    worker = _torch_worker()
    if worker is None:
        return shard
    rank, world = shard or (0, 1)
    return rank * worker.num_workers + worker.id, world * worker.num_workers


def _torch_worker() -> Any:
    """What torch's DataLoader says of this process if it is one of its workers."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def shard_of_process() -> tuple[int, int]:
    """``(rank, world)`` of this process among those that train together, for ``Lanes``, and for readers and code of yours.

    ``Loader(…, shard="auto")`` uses them. The first of these that exists decides:

    1. the default group of ``torch.distributed``, if it is initialised;
    2. ``jax.process_index()`` and ``jax.process_count()``, after ``jax.distributed.initialize()``;
    3. the variables RANK and WORLD_SIZE (``torchrun``), HOROVOD_RANK and HOROVOD_SIZE, OMPI_COMM_WORLD_RANK and
       OMPI_COMM_WORLD_SIZE (Open MPI), MV2_COMM_WORLD_RANK and MV2_COMM_WORLD_SIZE (MVAPICH2), PMI_RANK and PMI_SIZE (MPICH,
       Intel MPI), SLURM_PROCID and SLURM_STEP_NUM_TASKS (``srun``), in this order: the launcher inside another one counts.

    Otherwise they are ``(0, 1)``. In a worker process of torch's ``DataLoader``, they are its share of the samples of its rank.

    Raises:
        ConfigError: the first launcher that set a variable set only one of the two, or other values than a rank and a number of
            processes; or another launcher started as many processes, but gave this one another rank.
    """
    return find_shard_of_process() or (0, 1)


def parse_shard(shard: Any) -> tuple[tuple[int, int], Callable[[], tuple[int, int] | None] | None]:
    """The argument ``shard`` of a loader: rank and world, and what finds them later; None if these are final.

    Raises:
        ConfigError: it is neither None, nor "auto", nor a pair of integers.
    """
    if shard is None or (isinstance(shard, str) and shard == "auto"):
        return (0, 1), group_shard if shard is None else find_shard_of_process
    try:
        rank, world = shard if not isinstance(shard, str) else [shard]  # "04" would be a pair
    except (TypeError, ValueError):
        raise ConfigError(
            f'shard must be (rank, world), such as (0, 4), or "auto", got {shard!r:.80}'
        ) from None
    checked = (
        check_integer("the rank of a loader's shard", rank),
        check_integer("the world of a loader's shard", world),
    )
    return checked, None


def warn_without_shard(what: str, remedy: str, stacklevel: int) -> None:
    """Warn if this is one of several processes that train together, each of which reads all samples.

    Args:
        what: what lacks a shard: "this loader has no shard=".
        remedy: what to pass instead.
        stacklevel: of the warning, counted from the caller.
    """
    found, worker = _framework_shard(), _torch_worker()
    where, world = "torch.distributed or JAX has", 1 if found is None else found[1]
    if worker is not None and worker.num_workers > 1:
        where, world = "torch's DataLoader has", worker.num_workers
    for _, name in _VARIABLES if found is None else ():
        if (value := os.environ.get(name, "")).isdecimal() and world == 1:
            where, world = f"{name}={value} says that there are", int(value)
    if world > 1:
        warnings.warn(
            f"{where} {world} processes, but {what}: each process reads all samples. {remedy}",
            stacklevel=stacklevel + 1,
        )


def _put_first(key: str, text: str) -> str | None:
    """Put a text where all ranks meet, or get the text of the rank that came first; None if there is no such place."""
    get_store = getattr(
        sys.modules.get("torch.distributed.distributed_c10d"), "_get_default_store", None
    )
    store = None if get_store is None or group_shard() is None else get_store()
    return (
        None if store is None else store.compare_set(key, "", text).decode()
    )  # a group of MPI has none


def check_ranks_agree(
    plan: Plan,
    place: tuple[int, int, int] | None,
    facts: Mapping[str, Any],
    iterator: DatasetIteratorIF,
) -> None:
    """Compare the start of an iteration with that of the other ranks.

    The first rank to arrive puts its facts into the store of torch's process group, and the others compare theirs. No rank waits
    for another. Without a store, each rank logs a digest of its facts.

    Args:
        plan: of the loader; it is compared only if its shard is that of this process.
        place: seed, epoch and position; None where these may differ.
        facts: other JSON data that all ranks must share.
        iterator: its layers, and its first and last sample, are compared.

    Raises:
        ConfigError: this rank and the first one differ.
    """
    if plan.world < 2 or (plan.rank, plan.world) != (_framework_shard() or launcher_shard()):
        return
    ends = (
        DatasetIteratorView(iterator, sorted({0, plan.n_samples - 1})) if plan.n_samples else None
    )
    own = {
        **dict(zip(("seed", "epoch", "position"), place or (), strict=False)),
        **{
            name: getattr(plan, name) for name in ("batch_size", "drop_last", "uneven", "n_samples")
        },
        **facts,
        "digest of the layers": fingerprint(iterator, of_samples=False),
        "digest of the first and last sample": None if ends is None else probe(ends)["probe"],
    }
    text = json.dumps({"rank": plan.rank, **own})
    found = _put_first(f"data_stack/loader/{next(_numbers)}", text)
    if found is None:
        logger.warning(
            "rank %d of %d cannot compare its loader with those of other ranks, because there is no process group of "
            "torch.distributed: check that all ranks log the same digest, %s",
            *(plan.rank, plan.world, json_digest(own)[:16]),
        )
        return
    first = json.loads(found)
    differences = [
        f"{name} {value} here, {first.get(name)} there"
        for name, value in json.loads(text).items()
        if name != "rank" and first.get(name) != value
    ]
    if differences:
        raise ConfigError(
            f"the loader of rank {plan.rank} begins an iteration that differs from that of rank {first['rank']}: "
            f"{'; '.join(differences):.600}. Together they would miss some samples and repeat others. Use the same dataset, "
            f"seed, arguments and state on all ranks. If only some ranks iterate, pass shard=(0, 1)"
        )
