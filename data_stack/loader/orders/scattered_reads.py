"""Warns of orders that read a remote store sample by sample."""

from __future__ import annotations

import warnings

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess, access_to
from data_stack.loader.orders.in_order import InOrder
from data_stack.loader.orders.order import Order
from data_stack.loader.orders.shuffled import Shuffled


def warn_of_scattered_reads(order: Order, iterator: DatasetIteratorIF, stacklevel: int) -> None:
    """Warn if an order reads a remote store sample by sample.

    Args:
        order: the order of the samples.
        iterator: the stack.
        stacklevel: the level of the warning, counted from the caller.
    """
    access = access_to(iterator)
    if access.prefers_blocks and _is_scattered(order, access):
        warnings.warn(
            f"samples of {iterator!r:.120} lie in a remote store and are read in random order, "
            "maybe by a request each: shuffle in the loader only, by "
            "Loader(…, shuffle=BlockShuffled()), which reads each block once; or keep a copy on "
            "this machine by iterator.cache(storage=…)",
            stacklevel=stacklevel + 1,
        )


def _is_scattered(order: Order, access: SampleAccess) -> bool:
    """Return whether neighbours in an order are no neighbours in the store."""
    if isinstance(order, Shuffled):
        return True
    # A stack that is shuffled itself reports no blocks.
    return isinstance(order, InOrder) and access.blocks() is None
