"""The time that a web server has left to answer."""

from __future__ import annotations

import time
from typing import Final

from data_stack.exception import DataStackError

#: After this time, a waiting request notices that it was cut.
_TICK_SECONDS: Final = 0.1


class WebError(DataStackError):
    """A web server did not answer, or answered wrongly.

    Attributes:
        reason: what it did, without credentials.
        transient: whether a retry may help.
        retry_after: seconds that the server asked to wait, or None.
        status: of HTTP, or None.
    """

    def __init__(self, reason: str, transient: bool = False, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(reason, transient, retry_after, status)
        self.reason, self.transient, self.retry_after, self.status = reason, transient, retry_after, status

    def __str__(self) -> str:
        return self.reason


class Clock:
    """The time that a server has left.

    It is overdue after ``timeout_seconds`` without bytes. Each byte prolongs the time by as much as it takes at the least rate,
    never beyond ``timeout_seconds`` from then: a server that sends a byte now and then is overdue as early as a silent one.

    Attributes:
        n_bytes: received so far.
        is_cut: set by another thread to end the request.
    """

    def __init__(self, seconds: float, timeout_seconds: float, least_bytes_per_second: float) -> None:
        self._timeout, self._least = timeout_seconds, least_bytes_per_second
        self.n_bytes, self.is_cut = 0, False
        self._due = time.monotonic() + seconds

    def hold(self, n_received: int) -> float:
        """Count bytes, and return the time that is left then."""
        self.n_bytes += n_received
        return min(self._timeout, self._due - time.monotonic() + n_received / self._least)

    def go(self, seconds: float) -> None:
        """Leave ``seconds`` from now on."""
        self._due = time.monotonic() + seconds

    def tick(self) -> float:
        """Seconds to wait for the next bytes, before it is asked again.

        Raises:
            WebError: the server is overdue, or the request was cut.
        """
        if self.is_cut:
            raise WebError("interrupted")
        left = self._due - time.monotonic()
        if left <= 0:
            reason = "stalled: too little came" if self.n_bytes else "no answer"
            raise WebError(f"{reason} within {self._timeout:g} s", transient=True)
        return min(left, _TICK_SECONDS)
