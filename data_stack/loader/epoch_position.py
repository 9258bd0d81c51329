"""Where a loader is: it moves as batches are received, and says where the next iteration begins."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EpochPosition"]


@dataclass(slots=True)
class EpochPosition:
    """At first the start of epoch 0.

    Attributes:
        epoch: whose samples come next.
        position: how many samples of it all ranks together have received.
        first_epoch: the epoch with which the iteration began.
        goes_on: whether the next iteration begins right here. Otherwise an iteration has given a batch, and the next one begins
            at the start of an epoch: of the one after an epoch that was broken off.
    """

    epoch: int = 0
    position: int = 0
    first_epoch: int = 0
    goes_on: bool = True

    @property
    def next_epoch(self) -> int:
        """The epoch with which the next iteration begins."""
        return self.epoch if self.goes_on or self.position == 0 else self.epoch + 1

    @property
    def next_first_epoch(self) -> int:
        """The epoch with which the next iteration begins, or began, if it goes on with one."""
        return self.first_epoch if self.goes_on else self.next_epoch

    @property
    def next_start(self) -> tuple[int, int, int]:
        """Epoch and position at which the next iteration begins, and the epoch with which it begins or began."""
        return self.next_epoch, self.position if self.goes_on else 0, self.next_first_epoch

    @property
    def is_inside(self) -> bool:
        """Whether the next iteration goes on with one of which batches have been received."""
        return self.goes_on and (self.position > 0 or self.epoch != self.first_epoch)

    def go_to(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration begin here."""
        self.epoch, self.position, self.first_epoch, self.goes_on = epoch, position, first_epoch, True

    def begin(self) -> None:
        """An iteration begins. Until it gives a batch, another one would begin at the same place."""
        self.go_to(*self.next_start)

    def receive(self, epoch: int, position: int, end_epoch: int) -> None:
        """The consumer has received all before ``position`` of ``epoch``, in an iteration that ends before ``end_epoch``."""
        self.epoch, self.position, self.goes_on = epoch, position, False
        if epoch == end_epoch:
            self.first_epoch = epoch
