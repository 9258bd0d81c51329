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
        progress: returns how many bytes were received so far. Progress, unless it is slower than
            the minimal rate, resets the count of retries and puts off the deadline.
        wait: sleeps for some seconds.

    Returns:
        The result of ``attempt``.

    Raises:
        WebError: the error of the last attempt, with what went wrong in the attempt before.
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

        # Does the failure count, or did the transfer get on before?
        seconds = time.monotonic() - started_at
        n_bytes_now = progress()
        if n_bytes_now - n_bytes > limits.min_bytes_per_second * seconds:
            n_failures = 0
            deadline += seconds
        else:
            n_failures += 1
        n_bytes = max(n_bytes, n_bytes_now)

        if not failure.transient or n_failures > limits.n_retries or n_requests == _MAX_REQUESTS:
            break

        # Programs that a server sent away together all wait as long as it asked for, and then each
        # for a random time.
        pause_seconds = jittered(limits.backoff_seconds * 2.0 ** max(0, n_failures - 1))
        if failure.retry_after is not None:
            pause_seconds += failure.retry_after
        if time.monotonic() + pause_seconds > deadline:
            break
        earlier_reason = failure.reason
        wait(min(pause_seconds, limits.max_wait_seconds))

    reason = failure.reason
    if earlier_reason and earlier_reason != reason:
        reason = f"{earlier_reason}; then {reason}"
    raise WebError(reason, failure.transient, failure.retry_after, failure.status) from None
