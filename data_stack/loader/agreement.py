"""Checks that the ranks of a training begin the same iteration."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from typing import Any

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.recipes.recipe_values import probe
from data_stack.exception import ConfigError
from data_stack.loader.plan import Plan
from data_stack.loader.ranks import find_framework_shard, find_group_shard, launcher_shard
from data_stack.util.logger import logger

#: Numbers the comparisons. All ranks begin the iterations that are compared in the same order.
_numbers = itertools.count()


def check_ranks_agree(
    plan: Plan,
    start: Mapping[str, int],
    facts: Mapping[str, Any],
    iterator: DatasetIteratorIF,
) -> None:
    """Compare the start of an iteration with that of the other ranks.

    The first rank to arrive puts its facts into the store of torch's process group, and the others
    compare theirs. No rank waits for another. Without a store, each rank logs a digest of its
    facts.

    Args:
        plan: the plan of the loader; nothing is compared unless its shard is that of this process.
        start: seed, epoch and position; empty if these may differ.
        facts: other JSON data that all ranks must share.
        iterator: the stack, whose layers, and first and last sample, are compared.

    Raises:
        ConfigError: this rank and the first one differ.
    """
    shard_of_process = find_framework_shard() or launcher_shard()
    if plan.world < 2 or (plan.rank, plan.world) != shard_of_process:
        return

    own_facts = {
        **start,
        "batch_size": plan.batch_size,
        "drop_last": plan.drop_last,
        "uneven": plan.uneven,
        "n_samples": len(iterator),
        **facts,
        "digest of the layers": fingerprint(iterator, of_samples=False),
        "digest of the first and last sample": _digest_of_ends(iterator, len(iterator)),
    }
    own_text = json.dumps({"rank": plan.rank, **own_facts})
    first_text = _put_if_first(f"data_stack/loader/{next(_numbers)}", own_text)
    if first_text is None:
        logger.warning(
            "rank %d of %d cannot compare its loader with those of other ranks, because there is "
            "no process group of torch.distributed: check that all ranks log the same digest, %s",
            plan.rank,
            plan.world,
            json_digest(own_facts)[:16],
        )
        return

    first_facts = json.loads(first_text)
    differences = []
    for name, value in json.loads(own_text).items():
        first_value = first_facts.get(name)
        if name != "rank" and first_value != value:
            differences.append(f"{name} {value} here, {first_value} there")
    if differences:
        raise ConfigError(
            f"the loader of rank {plan.rank} begins an iteration that differs from that of rank "
            f"{first_facts['rank']}: {'; '.join(differences):.600}. Together they would miss some "
            "samples and repeat others. Use the same dataset, seed, arguments and state on all "
            "ranks. If only some ranks iterate, pass shard=(0, 1)"
        )


def _digest_of_ends(iterator: DatasetIteratorIF, n_samples: int) -> str | None:
    """Return a digest of the first and last sample; None without samples.

    It is also None if they cannot be read.
    """
    if n_samples == 0:
        return None
    ends = DatasetIteratorView(iterator, sorted({0, n_samples - 1}))
    digest: str | None = probe(ends)["probe"]  # probe() reads all samples of a small dataset
    return digest


def _put_if_first(key: str, text: str) -> str | None:
    """Put a text where all ranks meet, and return the text of the rank that came first.

    Returns:
        The text; None if there is no such place, as with a group of MPI.
    """
    if find_group_shard() is None:
        return None
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    get_store = getattr(c10d, "_get_default_store", None)
    if get_store is None:
        return None
    store = get_store()
    if store is None:
        return None
    # The store expects "" for a key that has no value yet. It returns the value after the call.
    first_text: str = store.compare_set(key, "", text).decode()
    return first_text
