"""The time and the bytes that one request has left while it runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from data_stack.io.web.errors import WebError

#: The most that may come before the content of a request: headers, interim answers, redirects, and
#: refusals before a login.
_MAX_HEADER_BYTES: Final = 8 << 20
#: The most that may come besides the content of a body in chunks, such as their sizes. It is more
#: than a piece, as content in chunks is counted when its whole piece has arrived.
_MAX_FRAMING_BYTES: Final = 4 << 20
#: Each byte of content allows so many bytes on the wire, as chunks may be short.
_MAX_WIRE_BYTES_PER_BYTE: Final = 8
#: A waiting request notices within this time that another thread has cut it.
_MAX_WAIT_SECONDS: Final = 0.1


class RequestBudget:
    """The time that one request has left, and the bytes that it may bring.

    The header must arrive within the timeout. Then each byte of the body adds the time that a byte
    takes at the minimal rate; the time that is left never exceeds the timeout. So a server that
    sends a byte now and then is overdue as early as a silent one.

    Args:
        timeout_seconds: the longest silence of the server.
        min_bytes_per_second: the minimal rate of the body.
        deadline: monotonic time by which the header must have arrived.
        now: returns the monotonic time in seconds.

    Attributes:
        n_content_bytes: how many bytes of the content have arrived.
    """

    n_content_bytes: int
    #: The monotonic time at which the server is overdue.
    _due_at: float
    #: Whether the header has arrived.
    _is_body: bool
    #: Whether the body comes in chunks, between their sizes. Else all bytes are content.
    _is_chunked: bool
    #: Bytes that came over the connection: before the content, or since it began.
    _n_wire_bytes: int
    _is_cut: bool

    def __init__(
        self,
        timeout_seconds: float,
        min_bytes_per_second: float,
        deadline: float,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._min_bytes_per_second = min_bytes_per_second
        self._now = now
        self.n_content_bytes = 0
        self._due_at = min(now() + timeout_seconds, deadline)
        self._is_body = False
        self._is_chunked = False
        self._n_wire_bytes = 0
        self._is_cut = False

    def tick(self, n_new_bytes: int) -> float:
        """Count bytes that came, and return how many seconds to wait for the next ones.

        Args:
            n_new_bytes: how many bytes came over the connection since the last call.

        Raises:
            WebError: the server is overdue or sends too much, or the request was cut.
        """
        if self._is_cut:
            raise WebError("interrupted")
        now = self._now()
        self._n_wire_bytes += n_new_bytes
        if self._is_body:
            self._count_body()
            earned_seconds = n_new_bytes / self._min_bytes_per_second
            self._due_at = min(now + self._timeout_seconds, self._due_at + earned_seconds)
        else:
            self._check_header()

        seconds_left = self._due_at - now
        if seconds_left <= 0:
            problem = "no answer"
            if self._is_body:
                problem = "stalled: too little came"
            raise WebError(f"{problem} within {self._timeout_seconds:g} s", transient=True)
        return min(seconds_left, _MAX_WAIT_SECONDS)

    def begin_body(self, *, is_chunked: bool) -> None:
        """Note that the header has arrived.

        Args:
            is_chunked: whether the body comes in chunks.
        """
        self._is_body = True
        self._is_chunked = is_chunked
        self._n_wire_bytes = 0

    def note_content(self, n_bytes: int) -> None:
        """Note that so many bytes of the content have arrived since it began."""
        self.n_content_bytes = max(self.n_content_bytes, n_bytes)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for a block in which the server is not asked for anything."""
        seconds_left = self._due_at - self._now()
        try:
            yield
        finally:
            self._due_at = self._now() + seconds_left

    def cut(self) -> None:
        """Let the next :meth:`tick` raise; any thread may call this."""
        self._is_cut = True

    def _check_header(self) -> None:
        """Check how much comes before the content."""
        if self._n_wire_bytes > _MAX_HEADER_BYTES:
            raise WebError(f"sends more than {_MAX_HEADER_BYTES:,} bytes before the content")

    def _count_body(self) -> None:
        """Count content, or check how much comes besides it: limits of callers are for content."""
        if not self._is_chunked:
            self.note_content(self._n_wire_bytes)
            return
        max_bytes = _MAX_FRAMING_BYTES + _MAX_WIRE_BYTES_PER_BYTE * self.n_content_bytes
        if self._n_wire_bytes > max_bytes:
            raise WebError(f"sends more than {max_bytes:,} bytes around the content")
