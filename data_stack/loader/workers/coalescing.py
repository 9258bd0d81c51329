"""How many small batches are made at once, where each of them is too little work to be worth a request of its own."""

from __future__ import annotations

from data_stack.loader.jobs import BatchMaker, MadeBatch

__all__ = ["BatchCoalescing"]

# Several batches are read at once until a request has so many bytes or takes so long: then what each request costs by itself
# weighs little, and a consumer does not wait for batches that it has not asked for.
_MOST_BYTES = 1 << 20
_MOST_SECONDS = 0.002
_MOST_BATCHES = 32


class BatchCoalescing:
    """Learns from the batches that were made how many of the next are made in one request.

    Args:
        maker: makes them.
    """

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self.n_jobs = 1  # the first batch waits for no other

    def observe(self, made: MadeBatch) -> None:
        """A batch has been made."""
        seconds = made.read_seconds + made.collate_seconds + made.transform_seconds
        if seconds >= _MOST_SECONDS or made.n_bytes == 0 or not self._maker.can_join:
            self.n_jobs = 1
            return
        fitting = min(_MOST_BYTES // made.n_bytes, int(_MOST_SECONDS / max(seconds, 1e-9)), _MOST_BATCHES)
        self.n_jobs = max(1, min(fitting, 4 * self.n_jobs))
