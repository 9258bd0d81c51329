"""The stack of iterators of each epoch."""

from __future__ import annotations

import threading
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.epochs import at_epoch, has_random_layers, list_draws
from data_stack.util.forks import fork_lock

#: At the end of an epoch, batches of two epochs are made at the same time.
_MAX_DRAWN_STACKS = 2


class EpochStacks:
    """A stack of iterators whose random layers are redrawn for each epoch. Threads may share it.

    Args:
        iterator: the stack in epoch 0.
        redraws: whether to redraw its random layers, if it has any, for each epoch.
    """

    #: The stack in epoch 0.
    iterator: DatasetIteratorIF
    #: Whether the stacks of two epochs differ.
    differ: bool
    #: The stacks of the epochs that were asked for last, the most recent one at the end.
    _drawn_stacks: dict[int, DatasetIteratorIF]
    #: Guards the drawn stacks.
    _lock: threading.Lock
    #: The access to the samples of all epochs; None before the first read, or if epochs differ.
    _access: SampleAccess | None

    def __init__(self, iterator: DatasetIteratorIF, redraws: bool) -> None:
        self.iterator = iterator
        self.differ = redraws and has_random_layers(iterator)
        self._drawn_stacks = {}
        self._lock = fork_lock()
        self._access = None

    def access_at(self, epoch: int) -> SampleAccess:
        """Return the access to the samples of an epoch.

        Raises:
            ConfigError: as :meth:`at`.
        """
        if self._access is not None:
            return self._access
        access = access_to(self.at(epoch))
        if not self.differ:
            self._access = access
        return access

    def at(self, epoch: int) -> DatasetIteratorIF:
        """Return the stack of an epoch.

        Raises:
            ConfigError: it cannot be redrawn, see
                :func:`data_stack.dataset.iterator.epochs.at_epoch`.
        """
        if not self.differ:
            return self.iterator

        # The lock is held while a stack is drawn, as drawing may read samples: once is enough.
        with self._lock:
            stack = self._drawn_stacks.pop(epoch, None)
            if stack is None:
                stack = at_epoch(self.iterator, epoch)
            # Keep it at the end, so that the first stack is the one to drop.
            self._drawn_stacks[epoch] = stack
            if len(self._drawn_stacks) > _MAX_DRAWN_STACKS:
                oldest_epoch = next(iter(self._drawn_stacks))
                del self._drawn_stacks[oldest_epoch]
        return stack

    def __getstate__(self) -> dict[str, Any]:
        # A layer that was read into memory holds epoch 0, and pickles without its source. The other
        # epochs are drawn from the source, so the sources are pickled here.
        layers = list_draws(self.iterator) if self.differ else []
        sources = [(layer, layer.underlying_iterators) for layer in layers]
        return {"iterator": self.iterator, "differ": self.differ, "sources": sources}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for layer, source in state["sources"]:
            layer.attach_source(source)
        self.iterator = state["iterator"]
        self.differ = state["differ"]
        self._drawn_stacks = {}
        self._lock = fork_lock()
        self._access = None
