"""The stack of iterators of each epoch."""

from __future__ import annotations

import threading
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF, SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.epochs import at_epoch, has_random_layers, list_draws
from data_stack.dataset.iterator.layers.mix_in_stack import MixInStack
from data_stack.loader.cursors import Consumed
from data_stack.loader.job import Job
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
    #: The stacks that were asked for last, the most recent one at the end: by their epochs, and by
    #: what was read of the sources of a mix that continues another one.
    _drawn_stacks: dict[tuple[int, Consumed | None], DatasetIteratorIF]
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

    def access_of(self, job: Job) -> SampleAccess:
        """Return the access to the samples of the stack of a job.

        Raises:
            ConfigError: as :meth:`at`.
        """
        if self._access is not None:
            return self._access
        access = access_to(self.at(job.epoch, job.consumed))
        if not self.differ:
            self._access = access
        return access

    def at(self, epoch: int, consumed: Consumed | None) -> DatasetIteratorIF:
        """Return the stack of an epoch.

        Args:
            epoch: the number of the epoch.
            consumed: what was read of the sources of its mix before; None if the mix does not
                continue another one. A mix is random, so the stacks of epochs differ then.

        Raises:
            ConfigError: it cannot be redrawn, see
                :func:`data_stack.dataset.iterator.epochs.at_epoch`; or its mix cannot continue
                another one, see
                :class:`~data_stack.dataset.iterator.layers.mix_in_stack.MixInStack`.
        """
        if not self.differ:
            return self.iterator

        # The lock is held while a stack is drawn, as drawing may read samples: once is enough.
        with self._lock:
            stack = self._drawn_stacks.pop((epoch, consumed), None)
            if stack is None:
                stack = self._draw(epoch, consumed)
            # Keep it at the end, so that the first stack is the one to drop.
            self._drawn_stacks[epoch, consumed] = stack
            if len(self._drawn_stacks) > _MAX_DRAWN_STACKS:
                oldest = next(iter(self._drawn_stacks))
                del self._drawn_stacks[oldest]
        return stack

    def _draw(self, epoch: int, consumed: Consumed | None) -> DatasetIteratorIF:
        stack = at_epoch(self.iterator, epoch)
        if consumed is None:
            return stack
        return MixInStack.find(stack).with_consumed(dict(consumed))

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
