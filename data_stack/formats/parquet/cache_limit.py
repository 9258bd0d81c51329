"""Decides how many bytes of row groups a cache keeps, from what is read again."""

from __future__ import annotations

from collections import OrderedDict, deque

#: The initial limit. With more, memory for the next row groups leaves the processor's cache.
_FIRST_BYTES = 24 << 20
#: Minimum number of evicted row groups to remember.
_MIN_REMEMBERED = 8
#: The limit grows if more than this many of the last reads were of row groups that had been
#: evicted. A few occur at the beginning of an epoch.
_MAX_RETURNS = 3
_N_LAST_READS = 16


class CacheLimit:
    """The limit of a cache of row groups, in bytes, which adapts to the access pattern.

    Streaming needs one or two row groups, a shuffle as many as its window, random access all that
    fit. The limit begins low, and grows when row groups are read again that were evicted.

    Args:
        max_bytes: the limit never exceeds it.

    Attributes:
        n_bytes: the limit now.
    """

    n_bytes: int

    #: Row groups that were evicted, the last one last, with their bytes.
    _evicted: OrderedDict[int, int]

    #: For each of the last reads whether the row group had been evicted.
    _were_evicted: deque[bool]

    #: The most row groups that one request has needed.
    _n_requested: int

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.n_bytes = min(_FIRST_BYTES, max_bytes)
        self._evicted = OrderedDict()
        self._were_evicted = deque(maxlen=_N_LAST_READS)
        self._n_requested = 0

    def note_request(self, n_groups: int) -> None:
        """Note how many row groups one request needs."""
        self._n_requested = max(self._n_requested, n_groups)

    def note_read(self, group: int, n_bytes: int) -> None:
        """Note that columns of a row group were read; raise the limit if many return."""
        evicted_bytes = self._evicted.pop(group, None)
        self._were_evicted.append(evicted_bytes is not None)
        if evicted_bytes is not None and sum(self._were_evicted) > _MAX_RETURNS:
            raised = self.n_bytes + max(evicted_bytes, n_bytes)
            self.n_bytes = min(self._max_bytes, raised)

    def note_eviction(self, group: int, n_bytes: int, n_cached: int) -> None:
        """Note that a row group was evicted, and forget the one that was evicted first.

        As many are remembered as are cached, or as one request has needed.
        """
        self._evicted[group] = n_bytes
        if len(self._evicted) > max(_MIN_REMEMBERED, n_cached, self._n_requested):
            self._evicted.popitem(last=False)
