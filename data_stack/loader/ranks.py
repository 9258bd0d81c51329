"""The ranks of processes that train together."""

from __future__ import annotations

import itertools
import json
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import DatasetIteratorView
from data_stack.dataset.recipes.recipe_values import probe
from data_stack.exception import ConfigError
from data_stack.loader.plan import Plan

#: Variables of the environment with the rank of a process and the number of processes, by launcher.
_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
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


def launcher_shard() -> tuple[int, int] | None:
    """``(rank, world)`` as the launcher says (torchrun, Horovod, MPI, Slurm); None without a launcher."""
    return next((shard for names in _VARIABLES if (shard := _read_shard(*names)) is not None), None)


def _read_shard(rank_name: str, world_name: str) -> tuple[int, int] | None:
    rank, world = os.environ.get(rank_name, ""), os.environ.get(world_name, "")
    if not (rank.isdecimal() and world.isdecimal()) or int(rank) >= int(world):
        return None
    return int(rank), int(world)


def shard_of_process() -> tuple[int, int]:
    """``(rank, world)`` of this process among those that train together, for ``Loader(…, shard=shard_of_process())``.

    They come from ``torch.distributed`` if it is initialised; otherwise from the variables of the launcher, RANK and WORLD_SIZE
    of ``torchrun``, or those of Horovod, MPI or Slurm; otherwise they are ``(0, 1)``.

    Raises:
        ConfigError: only one of the variables RANK and WORLD_SIZE is set, or their values are not a rank and a world size.
    """
    if (shard := group_shard()) is not None:
        return shard
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if (rank, world) != (None, None) and _read_shard("RANK", "WORLD_SIZE") is None:
        raise ConfigError(
            f"RANK={rank} and WORLD_SIZE={world} are not the rank of a process and the number of processes; "
            f"set both, as torchrun does, or unset both, or call torch.distributed.init_process_group() first"
        )
    return launcher_shard() or (0, 1)


def warn_without_shard(what: str, remedy: str, stacklevel: int) -> None:
    """Warn if this is one of several processes that train together, each of which reads all samples.

    Args:
        what: what lacks a shard: "this loader has no shard=".
        remedy: what to pass instead.
        stacklevel: of the warning, counted from the caller.
    """
    found = group_shard()
    where, world = "torch.distributed has", 1 if found is None else found[1]
    for _, name in _VARIABLES if found is None else ():
        if (value := os.environ.get(name, "")).isdecimal() and world == 1:
            where, world = f"{name}={value} says that there are", int(value)
    if world > 1:
        warnings.warn(
            f"{where} {world} processes, but {what}: each process reads all samples. {remedy}", stacklevel=stacklevel + 1
        )


def check_ranks_agree(
    plan: Plan, place: tuple[int, int, int] | None, order: Mapping[str, Any], iterator: DatasetIteratorIF
) -> None:
    """Compare the start of an iteration with that of the other ranks, if a process group with this number of ranks exists.

    The first rank to arrive puts its facts into the store of the group, and the others compare theirs. No rank waits for another.

    Args:
        plan: of the loader; it is compared only if its shard is the rank in the group.
        place: seed, epoch and position; None where these may differ.
        order: the content of the order.
        iterator: its first and last sample are compared.

    Raises:
        ConfigError: this rank and the first one differ.
    """
    if plan.world < 2 or (plan.rank, plan.world) != group_shard():
        return
    get_store = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_get_default_store", None)
    store = None if get_store is None else get_store()
    if store is None:  # a group of MPI has none
        return
    facts = {
        "rank": plan.rank,
        **dict(zip(("seed", "epoch", "position"), place or (), strict=False)),
        **{name: getattr(plan, name) for name in ("batch_size", "drop_last", "uneven", "n_samples")},
        "order": order,
        "digest of the first and last sample": _digest_of_ends(iterator, plan.n_samples),
    }
    text = json.dumps(facts)
    first = json.loads(store.compare_set(f"data_stack/loader/{next(_numbers)}", "", text))
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


def _digest_of_ends(iterator: DatasetIteratorIF, n_samples: int) -> str | None:
    """The digest; None if the samples cannot be read, or change with each read."""
    found: str | None = probe(DatasetIteratorView(iterator, sorted({0, n_samples - 1})))["probe"] if n_samples else None
    return found
