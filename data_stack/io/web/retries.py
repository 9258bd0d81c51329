"""Retries of requests."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from data_stack.io.web.ranges import ByteRange as ByteRange
from data_stack.util.polling import jittered

if TYPE_CHECKING:
    pass

from data_stack.io.web.errors import WebError
from data_stack.io.web.limits import Limits

_Result = TypeVar("_Result")


def retrying(
    attempt: Callable[[float], _Result],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    *,
    deadline: float = math.inf,
    progress: Callable[[], int] = int,
    wait: Callable[[float], object] = time.sleep,
) -> _Result:
    """The result of ``attempt(deadline)``, which is called again after a pause while it raises a transient WebError.

    Args:
        attempt: asks a server, and passes the deadline to its :class:`Exchange`.
        limits: of the retries and pauses.
        deadline: monotonic time after which nothing begins; a pause that would end later is not waited.
        progress: bytes received so far; progress, unless it is very slow, resets the count of retries and puts off the deadline.
        wait: sleeps.

    Raises:
        WebError: the last one, with what went wrong before it.
    """
    furthest, n_failures, before = 0, 0, ""
    for n_requests in itertools.count(1):
        started = time.monotonic()
        try:
            return attempt(deadline)
        except WebError as error:
            failure = error
        size, seconds = progress(), time.monotonic() - started
        if size - furthest > limits.least_bytes_per_second * seconds:
            n_failures, deadline = 0, deadline + seconds
        else:
            n_failures += 1
        furthest = max(furthest, size)
        # Limit of requests for one resource.
        if not failure.transient or n_failures > limits.n_retries or n_requests == 100:
            break
        # All that a server sent away at once wait for as long as it asked, and then for a random time each.
        pause = jittered(limits.backoff_seconds * 2.0 ** max(0, n_failures - 1)) + (
            failure.retry_after or 0.0
        )
        if time.monotonic() + pause > deadline:
            break
        before = failure.reason
        wait(min(pause, limits.max_wait_seconds))
    reason = "; then ".join(dict.fromkeys(filter(None, (before, failure.reason))))
    raise WebError(reason, failure.transient, failure.retry_after, failure.status) from None
