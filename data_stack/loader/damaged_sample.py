"""A sample that a loader could not read."""

from __future__ import annotations

from dataclasses import dataclass

from data_stack.exception import describe_error
from data_stack.io.redaction import redact

#: The maximum length of the message of an error that is kept.
_MAX_MESSAGE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class DamagedSample:
    """A sample that a loader could not read.

    Attributes:
        position: the position of the sample in the iterator of the loader. If the iterator has
            random layers, which put other samples there in each epoch: the position in the sources
            below these layers, which are counted one after the other.
        epoch: None if the sample is there in all epochs; otherwise the only epoch in which it is
            there. That is so above layers that make samples of several drawn ones, such as windows
            of a shuffle; then ``position`` is that in the iterator.
        location: the file and row of the sample, such as ``"row 3 of a.parquet"``; None if the
            source does not know, or if the sample comes from a state that was loaded.
        error: the name of the class of the error, such as ``"DamagedBlockError"``.
        message: the message of the error, without credentials; "" if the sample comes from a state
            that was loaded.
    """

    position: int
    epoch: int | None
    location: str | None
    error: str
    message: str

    @property
    def key(self) -> tuple[int | None, int]:
        """What identifies the sample in a training."""
        return self.epoch, self.position

    def __str__(self) -> str:
        text = f"sample {self.position}"
        if self.epoch is not None:
            text += f" of epoch {self.epoch}"
        if self.location is not None:
            text += f" ({self.location})"
        text += f": {self.error}"
        if self.message:
            text += f": {self.message}"
        return text


def damaged_sample(
    error: Exception, position: int, epoch: int | None, location: str | None
) -> DamagedSample:
    """Return the sample that an error is about; its texts have no credentials."""
    # The text begins with the class, as the message of a foreign error may fail.
    _, _, message = describe_error(error).partition(": ")
    return DamagedSample(
        position=position,
        epoch=epoch,
        location=None if location is None else redact(location),
        error=type(error).__name__,
        message=redact(message)[:_MAX_MESSAGE_LENGTH],
    )
