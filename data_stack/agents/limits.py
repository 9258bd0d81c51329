"""The limits of what one call of a tool reads and returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from data_stack.exception import DataStackError


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one call of a tool.

    Attributes:
        max_seconds: how long a call may take.
        max_answer_bytes: the size of an answer, as JSON in UTF-8.
        max_samples: the number of samples that a call of ``sample`` returns.
        max_samples_read: the number of samples that a call of ``statistics`` or ``diff`` reads.
        max_pictures: the number of pictures of an answer.
        max_picture_bytes: the size of all PNG files of an answer together.
        max_picture_pixels: the number of pixels of a picture.
        max_items: the number of entries of a list or mapping of an answer, and of a page of a list.
        max_text_characters: the length of a text of a dataset.
        max_values: the number of values of an array.
        max_depth: how deep the lists and mappings of an answer are nested.
    """

    max_seconds: float = 60.0
    max_answer_bytes: int = 50_000
    max_samples: int = 20
    max_samples_read: int = 100_000
    max_pictures: int = 8
    max_picture_bytes: int = 1_000_000
    max_picture_pixels: int = 1 << 16
    max_items: int = 100
    max_text_characters: int = 2_000
    max_values: int = 64
    max_depth: int = 12


class CallTimeoutError(DataStackError, TimeoutError):
    """A call of a tool took longer than its limit, or the agent gave it up."""


class Deadline:
    """The time at which a call must have ended. Threads may share it.

    Args:
        max_seconds: how long the call may take from now on.
        clock: returns the time in seconds.
    """

    #: How long the call may take.
    _max_seconds: float
    #: Returns the time in seconds.
    _clock: Callable[[], float]
    #: When the call must have ended.
    _ends_at: float
    #: Set when nobody waits for the answer any more.
    _is_given_up: threading.Event

    def __init__(self, max_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_seconds = max_seconds
        self._clock = clock
        self._ends_at = clock() + max_seconds
        self._is_given_up = threading.Event()

    def give_up(self) -> None:
        """End the call at its next check, because nobody waits for the answer any more."""
        self._is_given_up.set()

    def check(self) -> None:
        """Raise an error if the call must end now.

        Raises:
            CallTimeoutError: its time is over, or it was given up.
        """
        if self._is_given_up.is_set():
            raise CallTimeoutError("nobody waits for the answer of this call any more")
        if self._clock() > self._ends_at:
            raise self.error()

    def error(self) -> CallTimeoutError:
        """Return the error of a call that took too long."""
        return CallTimeoutError(
            f"the call took longer than {self._max_seconds:g} seconds. Ask for less: one split, "
            f"a part such as split='train[:1000]', or fewer columns. The user may start the "
            f"server with a larger --max-seconds"
        )
