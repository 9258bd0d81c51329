"""What observers of a loader are told of each batch that the consumer receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from data_stack.loader.batch_maker import MadeBatch
from data_stack.loader.job import Job
from data_stack.loader.ranks import Shard


class Delivery(NamedTuple):  # a frozen dataclass would take a microsecond to make
    """A batch that the consumer receives now. Times are those of ``time.perf_counter()``.

    Attributes:
        job: the job of the batch.
        made: what it took to make the batch; the batch itself is not there.
        n_in_flight: the number of jobs that the workers had after this one.
        asked_at: when the consumer asked for the batch.
        making_seconds: how long the consumer then made the batch, or waited for workers.
        delivered_at: when the batch was delivered. What lies between is the conversion.
    """

    job: Job
    made: MadeBatch
    n_in_flight: int
    asked_at: float
    making_seconds: float
    delivered_at: float


class DeliveryObserver(ABC):
    """Is told of the batches of a loader, in the thread of the consumer."""

    @abstractmethod
    def begin(self, shard: Shard) -> bool:
        """Note that an iteration begins, whose first batch is requested now.

        Returns:
            Whether the observer is to be told of its batches, each of which takes a microsecond.
        """
        raise NotImplementedError

    @abstractmethod
    def add(self, delivery: Delivery) -> None:
        """Note a batch that the consumer receives now."""
        raise NotImplementedError

    @abstractmethod
    def end(self) -> None:
        """Note that the iteration has ended."""
        raise NotImplementedError
