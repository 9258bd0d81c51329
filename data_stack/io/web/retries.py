"""Repeats requests that fail, after pauses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, TypeVar

from data_stack.io.web.errors import WebError
from data_stack.io.web.limits import Limits
from data_stack.util.polling import jittered

_Result = TypeVar("_Result")

#: Limit of the requests for one resource, however much progress each of them makes.
_MAX_REQUESTS: Final = 100


def _no_progress() -> int:
    return 0


def retrying(
    attempt: Callable[[float], _Result],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    *,
    deadline: float = math.inf,
    progress: Callable[[], int] = _no_progress,
    wait: Callable[[float], object] = time.sleep,
) -> _Result:
    """Call ``attempt(deadline)``, and again after a pause while it raises a transient WebError.

    Args:
        attempt: asks a server, and passes the deadline to its :class:`~data_stack.io.web.Exchange`.
        limits: the limits of retries, pauses and the rate.
        deadline: monotonic time after which nothing begins; a pause that would end later is not
            waited for.
        progress: returns how many bytes were received so far. An attempt that received bytes at
            the minimal rate or faster resets the count of retries and puts off the deadline.
        wait: sleeps for some seconds.

    Returns:
        The result of ``attempt``.

    Raises:
        WebError: the error of the last attempt. Its reason also says what went wrong in the attempt
            before.
    """
    n_bytes = 0
    n_failures = 0
    earlier_reason = ""
    for n_requests in range(1, _MAX_REQUESTS + 1):
        started_at = time.monotonic()
        try:
            return attempt(deadline)
        except WebError as error:
            failure = error

        # A failure after enough bytes is no reason to give up: the transfer goes on.
        seconds = time.monotonic() - started_at
        n_bytes_now = progress()
        has_progressed = n_bytes_now - n_bytes > limits.min_bytes_per_second * seconds
        if has_progressed:
            n_failures = 0
            deadline += seconds
        else:
            n_failures += 1
        n_bytes = max(n_bytes, n_bytes_now)

        if not failure.transient or n_failures > limits.n_retries or n_requests == _MAX_REQUESTS:
            break

        # A server that asks for more time than is left is not asked again. If there is no deadline,
        # it is asked after the longest pause.
        pause_seconds = _pause_seconds(n_failures, failure.retry_after, limits.backoff_seconds)
        if time.monotonic() + pause_seconds > deadline:
            break
        earlier_reason = failure.reason
        wait(min(pause_seconds, limits.max_wait_seconds))

    reason = failure.reason
    if earlier_reason and earlier_reason != reason:
        reason = f"{earlier_reason}; then {reason}"
    raise WebError(reason, failure.transient, failure.retry_after, failure.status) from None


def _pause_seconds(n_failures: int, retry_after: float | None, backoff_seconds: float) -> float:
    """Return how long to wait before the next attempt.

    The pause is random, and doubles with each failure. It comes after the time that the server asks
    for: many programs that a server refused at once must not all come back at once.

    Args:
        n_failures: attempts without progress one after the other; 0 after progress.
        retry_after: the seconds that the server asks to wait; None if it does not ask.
        backoff_seconds: the pause after the first failure.
    """
    n_doublings = max(0, n_failures - 1)
    pause_seconds = jittered(backoff_seconds * 2.0**n_doublings)
    if retry_after is None:
        return pause_seconds
    return retry_after + pause_seconds
