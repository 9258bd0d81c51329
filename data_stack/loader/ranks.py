"""Finds the rank of this process among those that train together."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.loader.meshes import (
    find_mesh_shard,
    find_shard_in_group,
    is_mesh,
    is_process_group,
    list_members,
)
from data_stack.util.logger import logger


class Shard(NamedTuple):
    """One of the equal parts into which processes divide the samples.

    Attributes:
        rank: the number of the process, from 0 on.
        world: the number of processes.
    """

    rank: int
    world: int


_ALL_SAMPLES = Shard(0, 1)


class LoaderShard:
    """The shard of a loader: given by its caller, or found when the processes know each other.

    It pickles: of a mesh or process group, only numbers are kept.

    Args:
        argument: ``(rank, world)``, or a mesh or process group of torch's that tells them; None for
            those of the default process group, as soon as there is one; "auto" for those of the
            group or of the launcher.

    Raises:
        ConfigError: it is none of them, or this process is no part of the mesh or group.
    """

    #: The shard as far as it is known; that of all samples before.
    shard: Shard
    #: Whether the shard does not change any more.
    is_final: bool
    #: Whether a launcher may state the shard.
    is_automatic: bool
    #: Whether the shard is that of a device mesh.
    is_of_mesh: bool
    #: The members of the process group that was passed, by their ranks in the default group; None
    #: if none was passed.
    members: tuple[int, ...] | None

    def __init__(self, argument: Any) -> None:
        self.shard = _ALL_SAMPLES
        self.is_final = False
        self.is_automatic = isinstance(argument, str) and argument == "auto"
        self.is_of_mesh = is_mesh(argument)
        self.members = None
        if argument is None or self.is_automatic:
            return

        # The caller states the shard.
        self.is_final = True
        if self.is_of_mesh:
            self.shard = Shard(*find_mesh_shard(argument))
        elif is_process_group(argument):
            self.shard = Shard(*find_shard_in_group(argument))
            self.members = list_members(argument)
        else:
            self.shard = _parse_shard(argument)

    def update(self) -> bool:
        """Ask the process group, or the launcher, for the shard, unless it is final.

        Returns:
            Whether the shard has become final.
        """
        if self.is_final:
            return False
        shard = find_shard_of_process() if self.is_automatic else find_group_shard()
        if shard is None:
            return False

        # The shard of a launcher may not be that of the group that is made later.
        self.is_final = find_group_shard() is not None
        if shard != self.shard:
            self.shard = shard
            self._log()
        return self.is_final

    def _log(self) -> None:
        """Tell the user which samples this process reads, as the program does not say it."""
        argument = 'with shard="auto"' if self.is_automatic else "without shard="
        source = "torch.distributed's group" if self.is_final else "its launcher"
        logger.info(
            "a loader %s uses (%d, %d), the rank and world of %s, so this process reads its part "
            "of the samples; with Loader(…, shard=(0, 1)) it reads all of them",
            argument,
            self.shard.rank,
            self.shard.world,
            source,
        )


def _parse_shard(argument: Any) -> Shard:
    """Return the shard that a caller passed as a pair.

    Raises:
        ConfigError: it is no pair of integers.
    """
    problem = (
        f'shard must be (rank, world), such as (0, 4), or "auto", or a device mesh or process '
        f"group of torch, got {argument!r:.80}"
    )
    if isinstance(argument, str):  # "04" would be a pair
        raise ConfigError(problem)
    try:
        rank, world = argument
    except (TypeError, ValueError):
        raise ConfigError(problem) from None
    return Shard(
        check_integer("the rank of a loader's shard", rank),
        check_integer("the world of a loader's shard", world),
    )


# ---------------------------------------------------------------------- torch and JAX


def find_group_shard() -> Shard | None:
    """Return the shard in the default group of ``torch.distributed``; None without a group.

    This does not import torch.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Shard(distributed.get_rank(), distributed.get_world_size())


def find_framework_shard() -> Shard | None:
    """Return the shard as torch or JAX states it; None if neither does.

    JAX is only asked when it is initialised, as the question would initialise it.
    """
    group_shard = find_group_shard()
    if group_shard is not None:
        return group_shard
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return Shard(jax.process_index(), jax.process_count())


def _torch_worker() -> Any:
    """Return torch's description of this process if it is a worker of a DataLoader, or None."""
    data = sys.modules.get("torch.utils.data")
    if data is None:
        return None
    return data.get_worker_info()


# ---------------------------------------------------------------------- launchers


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of the environment by which a launcher tells a process its rank.

    Attributes:
        rank_variable: the name of the variable with the rank of the process.
        world_variable: the name of the variable with the number of processes.
        sets_rank_alone: whether the launcher is taken to have set a rank without a world, which
            is an error.
    """

    rank_variable: str
    world_variable: str
    sets_rank_alone: bool = True

    @property
    def is_set(self) -> bool:
        """Whether the launcher has started this process."""
        if os.environ.get(self.world_variable):
            return True
        return self.sets_rank_alone and bool(os.environ.get(self.rank_variable))

    @property
    def shard(self) -> Shard | None:
        """The shard of this process; None if the variables are not set, or wrong."""
        rank = os.environ.get(self.rank_variable, "")
        world = os.environ.get(self.world_variable, "")
        if not rank.isdecimal() or not world.isdecimal() or int(rank) >= int(world):
            return None
        return Shard(int(rank), int(world))

    def describe(self) -> str:
        """Return the variables with their values, for a message."""
        texts = []
        for name in (self.rank_variable, self.world_variable):
            if name in os.environ:
                texts.append(f"{name}={os.environ[name]!r:.40}")
            else:
                texts.append(f"no {name}")
        return " and ".join(texts)


#: The innermost launcher comes first, as launchers start each other.
_LAUNCHERS: Final = (
    _Launcher("RANK", "WORLD_SIZE"),
    _Launcher("HOROVOD_RANK", "HOROVOD_SIZE"),
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    _Launcher("PMI_RANK", "PMI_SIZE"),
    # SLURM_NTASKS counts the tasks of the whole job, also in a notebook or batch script that is
    # only one process of it. Such a script has a SLURM_PROCID, but no number of tasks of a step.
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", sets_rank_alone=False),
)


def launcher_shard() -> tuple[int, int] | None:
    """Return ``(rank, world)`` as the launcher says (torchrun, Horovod, MPI, Slurm), or None.

    Wrong variables of a launcher are ignored.
    """
    for launcher in _LAUNCHERS:
        shard = launcher.shard
        if shard is not None:
            return shard
    return None


def _checked_launcher_shard() -> Shard | None:
    """Return the shard as the launcher says; None without a launcher.

    Raises:
        ConfigError: its variables are wrong, or contradict those of another launcher.
    """
    launchers = [launcher for launcher in _LAUNCHERS if launcher.is_set]
    if not launchers:
        return None
    innermost = launchers[0]
    shard = innermost.shard
    if shard is None:
        raise ConfigError(
            f"{innermost.describe()} are not the rank of a process and the number of processes; "
            "set both, as the launcher does, or unset both, or call "
            "torch.distributed.init_process_group() first"
        )

    # torchrun numbers nodes as they come, so the launcher that started it may count otherwise.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return shard
    for launcher in launchers[1:]:
        other_shard = launcher.shard
        if other_shard is None or other_shard.world != shard.world:
            continue
        if other_shard.rank != shard.rank:
            raise ConfigError(
                f"{innermost.describe()} contradict {launcher.describe()}: two ranks of this "
                "process among as many; unset the wrong ones, or pass shard=(rank, world)"
            )
    return shard


# ---------------------------------------------------------------------- the shard of this process


def find_shard_of_process() -> Shard | None:
    """Return the shard of this process, see :func:`shard_of_process`; None if nothing states one.

    Raises:
        ConfigError: the variables of launchers are wrong.
    """
    shard = find_framework_shard()
    if shard is None:
        shard = _checked_launcher_shard()
    worker = _torch_worker()
    if worker is None:
        return shard

    # The workers of torch's DataLoader divide the samples of their rank once more.
    rank, world = shard or _ALL_SAMPLES
    return Shard(rank * worker.num_workers + worker.id, world * worker.num_workers)


def shard_of_process() -> tuple[int, int]:
    """Return ``(rank, world)`` of this process among those that train together.

    ``Loader(…, shard="auto")`` uses them, and so may ``Lanes``, other readers and code of yours.
    The first of these that exists decides:

    1. the default group of ``torch.distributed``, if it is initialised;
    2. ``jax.process_index()`` and ``jax.process_count()``, after ``jax.distributed.initialize()``;
    3. the variables RANK and WORLD_SIZE (``torchrun``), HOROVOD_RANK and HOROVOD_SIZE,
       OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI), MV2_COMM_WORLD_RANK and
       MV2_COMM_WORLD_SIZE (MVAPICH2), PMI_RANK and PMI_SIZE (MPICH, Intel MPI), SLURM_PROCID and
       SLURM_STEP_NUM_TASKS (``srun``), in this order: the launcher inside another one counts.

    Otherwise they are ``(0, 1)``. In a worker process of torch's ``DataLoader``, they are its share
    of the samples of its rank.

    Raises:
        ConfigError: the first launcher that set a variable set only one of the two, or other values
            than a rank and a number of processes; or another launcher started as many processes,
            but gave this one another rank.
    """
    shard = find_shard_of_process() or _ALL_SAMPLES
    return shard.rank, shard.world


def warn_without_shard(what: str, remedy: str, stacklevel: int) -> None:
    """Warn if this is one of several processes that train together, as each reads all samples.

    Args:
        what: what lacks a shard: "this loader has no shard=".
        remedy: what to pass instead.
        stacklevel: the level of the warning, counted from the caller.
    """
    processes = _describe_processes()
    if processes is not None:
        warnings.warn(
            f"{processes} processes, but {what}: each process reads all samples. {remedy}",
            stacklevel=stacklevel + 1,
        )


def _describe_processes() -> str | None:
    """Return who has how many processes, such as "WORLD_SIZE=2 says that there are 2", or None."""
    worker = _torch_worker()
    if worker is not None and worker.num_workers > 1:
        return f"torch's DataLoader has {worker.num_workers}"

    shard = find_framework_shard()
    if shard is not None:
        if shard.world == 1:
            return None
        return f"torch.distributed or JAX has {shard.world}"

    for launcher in _LAUNCHERS:
        world = os.environ.get(launcher.world_variable, "")
        if world.isdecimal() and int(world) > 1:
            return f"{launcher.world_variable}={world} says that there are {int(world)}"
    return None
