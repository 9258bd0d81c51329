"""Adapts the limit of a cache of row groups to how they are read."""

from __future__ import annotations

from collections import OrderedDict, deque

#: The initial limit: 24 MiB. A stream that keeps more row groups writes each new one to memory that
#: has left the processor's cache, which is slower.
_FIRST_BYTES = 24 << 20
#: At least as many evicted row groups are remembered.
_MIN_REMEMBERED = 8
#: The number of last reads of which the limit knows whether the row group had been evicted.
_N_LAST_READS = 16
#: The limit grows if more than this many of the last reads were of evicted row groups. A few such
#: reads occur at the beginning of an epoch.
_MAX_EVICTED_READS = 3


class CacheLimit:
    """The limit of a cache of row groups, in bytes, which adapts to the access pattern.

    A stream needs one or two row groups in the cache, a shuffle as many as its window has, and
    random access as many as fit. The limit begins low. It grows when row groups are read again
    after they were evicted.

    A row group is named by its number in the dataset.

    Args:
        max_bytes: the limit never exceeds this.

    Attributes:
        n_bytes: the current limit.
    """

    n_bytes: int

    #: The limit never exceeds this.
    _max_bytes: int

    #: Bytes by row group for those that were evicted, in the order of the evictions.
    _evicted: OrderedDict[int, int]

    #: For each of the last reads, whether the row group had been evicted.
    _were_evicted: deque[bool]

    #: The largest number of row groups that one request has needed.
    _max_requested: int

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.n_bytes = min(_FIRST_BYTES, max_bytes)
        self._evicted = OrderedDict()
        self._were_evicted = deque(maxlen=_N_LAST_READS)
        self._max_requested = 0

    def note_request(self, n_groups: int) -> None:
        """Note how many row groups one request needs."""
        self._max_requested = max(self._max_requested, n_groups)

    def note_read(self, group: int, n_bytes: int) -> None:
        """Note that columns of a row group were read, and raise the limit if it is too low.

        The limit is raised by the size of this row group, so that it would have been kept.

        Args:
            group: the row group.
            n_bytes: bytes of its columns that are now in the cache. At its eviction it may have had
                other columns.
        """
        evicted_bytes = self._evicted.pop(group, None)
        was_evicted = evicted_bytes is not None
        self._were_evicted.append(was_evicted)
        if evicted_bytes is None or sum(self._were_evicted) <= _MAX_EVICTED_READS:
            return
        raised_limit = self.n_bytes + max(evicted_bytes, n_bytes)
        self.n_bytes = min(self._max_bytes, raised_limit)

    def note_eviction(self, group: int, n_bytes: int, n_cached: int) -> None:
        """Note that a row group was evicted.

        As many evicted row groups are remembered as the cache holds or one request has needed,
        but at least eight. The one that was evicted first is forgotten first.

        Args:
            group: the row group.
            n_bytes: bytes of its columns that were in the cache.
            n_cached: the number of row groups in the cache.
        """
        self._evicted[group] = n_bytes
        max_remembered = max(_MIN_REMEMBERED, n_cached, self._max_requested)
        if len(self._evicted) > max_remembered:
            self._evicted.popitem(last=False)
