"""Checks that the ranks of a training begin the same iteration."""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.recipes.recipe_values import probe
from data_stack.exception import ConfigError
from data_stack.loader.plan import Plan
from data_stack.loader.ranks import (
    LoaderShard,
    find_framework_shard,
    find_group_shard,
    launcher_shard,
)
from data_stack.util.logger import logger

#: Numbers the comparisons of each kind of shard. All ranks that take part begin the iterations that
#: are compared in the same order.
_numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

#: The most ranks that a message lists.
_MAX_RANKS_IN_MESSAGE: Final = 64

#: What programs do whose processes do not all read together.
_REMEDY: Final = (
    "If only some processes iterate, or they train different models, pass the process group of "
    "those that divide the samples as shard=, or shard=(0, 1) if each reads all samples"
)


def check_ranks_agree(
    shard: LoaderShard,
    plan: Plan,
    start: Mapping[str, int],
    facts: Mapping[str, Any],
    iterator: DatasetIteratorIF,
    *,
    start_together: bool,
) -> None:
    """Compare the start of an iteration with that of the other processes.

    The first process to arrive puts its facts into the store of torch's process group, and the
    others compare theirs. No process waits for another. Without a store, each rank logs a digest of
    its facts.

    With model parallelism, several processes have the same rank, and read the same batches. Each
    rank belongs to an equal share of all processes: with 4 processes and a world of 2, to 2 of
    them. The third process with the same rank raises the error. So if all processes come, and none
    raises it, then each rank has its share, and no part of the samples is missing.

    Args:
        shard: the shard of the loader.
        plan: the plan of the loader.
        start: seed, epoch and position.
        facts: other JSON data that all ranks must share.
        iterator: the stack, whose layers, and first and last sample, are compared.
        start_together: whether all ranks must share ``start``. Otherwise only processes of the same
            rank must.

    Raises:
        ConfigError: this process and the first one differ, or too many processes have this rank.
    """
    comparison = _find_comparison(shard, plan)
    if comparison is None:
        return

    own_facts: dict[str, Any] = {}
    if start_together:
        own_facts.update(start)
    own_facts |= {
        "batch_size": plan.batch_size,
        "drop_last": plan.drop_last,
        "uneven": plan.uneven,
        "n_samples": len(iterator),
        **facts,
        "world": plan.world,
        "digest of the layers": fingerprint(iterator, of_samples=False),
        "digest of the first and last sample": _digest_of_ends(iterator, len(iterator)),
    }
    key = f"data_stack/loader/{comparison.kind}{next(_numbers[comparison.kind])}"
    store = _find_store()
    if store is None:
        logger.warning(
            "rank %d of %d cannot compare its loader with those of other ranks, because there is "
            "no process group of torch.distributed: check that all ranks log the same digest, %s",
            plan.rank,
            plan.world,
            json_digest(own_facts)[:16],
        )
        return

    _compare_with_first(store, key, plan, own_facts)
    if not start_together:
        _compare_with_first(store, f"{key}/rank {plan.rank}", plan, start)
    _check_share_of_rank(store, key, plan, comparison.n_processes)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Who compares their loaders.

    Attributes:
        kind: distinguishes comparisons of different processes; a part of a key in the store.
        n_processes: how many processes take part.
    """

    kind: str
    n_processes: int


def _find_comparison(shard: LoaderShard, plan: Plan) -> _Comparison | None:
    """Return who compares their loaders; None if this process compares nothing."""
    group = find_group_shard()

    # The members of a process group that was passed compare themselves with each other.
    if shard.members is not None:
        if group is None or len(shard.members) < 2:
            return None
        return _Comparison(f"group {json_digest(shard.members)[:32]}/", len(shard.members))

    # As a rule, the shard divides the samples among all processes.
    if not shard.is_of_mesh:
        if plan.world < 2:
            return None
        is_of_process = (plan.rank, plan.world) == (find_framework_shard() or launcher_shard())
        if is_of_process or (group is not None and group.world == plan.world):
            return _Comparison("", plan.world)

    # Other shards are those of data parallelism, beside model parallelism. A larger world is that
    # of several process groups, which cannot be compared.
    if group is None or group.world < 2 or group.world < plan.world:
        return None
    return _Comparison("part/", group.world)


def _compare_with_first(store: Any, key: str, plan: Plan, own_facts: Mapping[str, Any]) -> None:
    """Compare facts with those of the process that came first.

    Raises:
        ConfigError: they differ.
    """
    own_name = _name_process(plan)
    own_text = json.dumps({"process": own_name, **own_facts})
    # The store expects "" for a key that has no value yet. It returns the value after the call.
    first_facts = json.loads(store.compare_set(key, "", own_text).decode())
    differences = []
    for name, value in json.loads(own_text).items():
        first_value = first_facts.get(name)
        if name != "process" and first_value != value:
            differences.append(f"{name} {value} here, {first_value} there")
    if differences:
        raise ConfigError(
            f"the loader of {own_name} begins an iteration that differs from that of "
            f"{first_facts['process']}: {'; '.join(differences):.600}. Together they would miss "
            "some samples and repeat others. Use the same dataset, seed, arguments and state on "
            f"all ranks. {_REMEDY}"
        )


def _check_share_of_rank(store: Any, key: str, plan: Plan, n_processes: int) -> None:
    """Check that no rank has more than its equal share of the processes.

    If all processes come, and none has more, then each rank has its share.

    Raises:
        ConfigError: this rank has more.
    """
    share = n_processes // plan.world
    own_process = _find_process()
    store.set(f"{key}/process {own_process}", str(plan.rank))
    n_processes_of_rank = store.add(f"{key}/n_processes of {plan.rank}", 1)
    if n_processes_of_rank <= share:
        return
    raise ConfigError(
        f"{n_processes} processes read {plan.world} parts of the samples, so {share} of them read "
        f"each part, but {n_processes_of_rank} have shard=({plan.rank}, {plan.world}): "
        f"{_list_ranks(store, key, plan.world)}. Together they would miss some samples and repeat "
        'others. Pass the data-parallel rank of each process, as shard=mesh["dp"] does. '
        f"{_REMEDY}"
    )


def _list_ranks(store: Any, key: str, world: int) -> str:
    """Return which processes have which rank until now, for a message."""
    processes_of_rank: dict[int, list[int]] = {rank: [] for rank in range(world)}
    group = find_group_shard()
    n_processes = 0 if group is None else group.world
    for process in range(n_processes):
        process_key = f"{key}/process {process}"
        # To get a key that has no value would wait for it.
        if store.check([process_key]):
            rank = int(store.get(process_key))
            processes_of_rank[rank].append(process)

    texts = []
    for rank, processes in list(processes_of_rank.items())[:_MAX_RANKS_IN_MESSAGE]:
        names = ", ".join(str(process) for process in processes) or "none yet"
        texts.append(f"rank {rank}: {names:.200}")
    if world > _MAX_RANKS_IN_MESSAGE:
        texts.append("…")
    return "processes of " + "; ".join(texts)


def _find_process() -> int:
    """Return the rank of this process in the default group."""
    group = find_group_shard()
    return 0 if group is None else group.rank


def _name_process(plan: Plan) -> str:
    """Return how a message names this process."""
    process = _find_process()
    if process == plan.rank:
        return f"rank {plan.rank}"
    return f"rank {plan.rank} in process {process}"


def _digest_of_ends(iterator: DatasetIteratorIF, n_samples: int) -> str | None:
    """Return a digest of the first and last sample; None without samples.

    It is also None if they cannot be read.
    """
    if n_samples == 0:
        return None
    ends = DatasetIteratorView(iterator, sorted({0, n_samples - 1}))
    digest: str | None = probe(ends)["probe"]  # probe() reads all samples of a small dataset
    return digest


def _find_store() -> Any:
    """Return the store of torch's default process group, where all ranks meet.

    It is None if there is no such place, as with a group of MPI.
    """
    if find_group_shard() is None:
        return None
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    get_store = getattr(c10d, "_get_default_store", None)
    if get_store is None:
        return None
    return get_store()
