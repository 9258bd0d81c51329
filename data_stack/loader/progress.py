"""How far the consumer of a loader has come."""

from __future__ import annotations


class Progress:
    """The place of the next batch, which advances with each batch that the consumer receives.

    A place is an epoch, and the number of its samples that all ranks together have received. With
    ``uneven="keep"`` ranks may be in different places after the same number of batches; then
    :attr:`origin` and :attr:`n_batches` lead to the place of each rank, see
    :func:`data_stack.loader.plan.place_after`.
    """

    #: The epoch of the next samples.
    epoch: int
    #: The number of that epoch's samples that all ranks together have received.
    position: int
    #: The epoch with which the iteration began.
    first_epoch: int
    #: The last place in which all ranks were.
    origin: tuple[int, int]
    #: The number of batches that this rank has received since then.
    n_batches: int
    #: Whether the next iteration begins at this place, as nothing was received since it was set.
    #: Otherwise the next iteration begins at the start of an epoch.
    resumes_here: bool

    def __init__(self) -> None:
        self.epoch = 0
        self.position = 0
        self.first_epoch = 0
        self.origin = (0, 0)
        self.n_batches = 0
        self.resumes_here = True

    @property
    def place(self) -> tuple[int, int]:
        """The epoch and position of the next samples."""
        return self.epoch, self.position

    def start_of_next(self) -> tuple[int, int, int]:
        """Return the epoch, position and first epoch with which the next iteration begins."""
        if self.resumes_here:
            return self.epoch, self.position, self.first_epoch
        next_epoch = self.epoch if self.position == 0 else self.epoch + 1
        return next_epoch, 0, next_epoch

    def go_to(self, epoch: int, position: int, first_epoch: int) -> None:
        """Let the next iteration begin at a place.

        All ranks are taken to be there, unless this rank is there already.
        """
        if (epoch, position) != self.place:
            self.origin = (epoch, position)
            self.n_batches = 0
        self.epoch = epoch
        self.position = position
        self.first_epoch = first_epoch
        self.resumes_here = True

    def receive(self, epoch: int, position: int, end_epoch: int) -> None:
        """Note that the consumer has received a batch, and so all samples before a place.

        Args:
            epoch: the epoch of the place.
            position: the position of the place.
            end_epoch: the epoch after the last one of the iteration.
        """
        if epoch == end_epoch:
            self.finish(end_epoch)
            return
        self.epoch = epoch
        self.position = position
        self.resumes_here = False
        self.n_batches += 1

    def finish(self, end_epoch: int) -> None:
        """Note the end of the iteration: all ranks meet at the start of the epoch after it."""
        self.epoch = end_epoch
        self.position = 0
        self.first_epoch = end_epoch
        self.origin = (end_epoch, 0)
        self.n_batches = 0
        self.resumes_here = False
