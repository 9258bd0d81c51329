"""How many batches are made ahead of the consumer: fewer than it asked for where they are large."""

from __future__ import annotations

__all__ = ["PrefetchLimit"]

# Batches that wait for the consumer take no more than so much together, as long as no worker has to wait for it.
_MOST_BYTES = 32 << 20


class PrefetchLimit:
    """Learns from the batches that were made how many may be under way.

    One for each worker and one more are under way in any case, if so many were asked for: when the consumer has taken the
    oldest, each worker has one to make while the consumer is at its own.

    Args:
        n_workers: that make them, at least 1.
        prefetch: how many each of them makes ahead at most, at least 1.

    Attributes:
        n_batches: how many may be under way.
    """

    def __init__(self, n_workers: int, prefetch: int) -> None:
        self._most = n_workers * prefetch
        self._fewest = min(self._most, n_workers + 1)
        self._last_bytes = 0
        self.n_batches = self._most  # until it is known how large they are

    def observe(self, n_bytes: int) -> None:
        """A batch of so many bytes has been made."""
        larger, self._last_bytes = max(n_bytes, self._last_bytes), n_bytes  # the last of an epoch may be small
        fitting = _MOST_BYTES // larger if larger else self._most
        self.n_batches = max(self._fewest, min(self._most, fitting))
