"""Runs calls of tools in threads, and returns an error when one takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from data_stack.agents.limits import Deadline, Limits
from data_stack.agents.tools import DatasetTools, ToolResult

#: The maximum number of calls that run at a time. Calls whose time is over count until they end.
MAX_CALLS: Final = 4

#: How long after its deadline a call is waited for: it may be about to notice.
_GRACE_SECONDS: Final = 2.0


class BackgroundCalls:
    """Runs calls of tools, each in a thread of its own.

    A thread cannot be stopped. So a call that takes too long is answered with an error, and its
    thread ends when it reads the next samples. A thread that never ends does not keep the program.

    Args:
        tools: the tools.
        limits: the limits of each call.
    """

    #: The tools.
    _tools: DatasetTools

    #: The limits of each call.
    _limits: Limits

    #: Counts the threads that may still be started.
    _free_threads: threading.BoundedSemaphore

    def __init__(self, tools: DatasetTools, limits: Limits) -> None:
        self._tools = tools
        self._limits = limits
        self._free_threads = threading.BoundedSemaphore(MAX_CALLS)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool, and return its result, or an error when its time is over."""
        if not self._free_threads.acquire(blocking=False):
            return ToolResult(
                f"{MAX_CALLS} calls are running already; wait until one of them has ended",
                is_error=True,
            )
        deadline = Deadline(self._limits.max_seconds)
        outcome = self._start(lambda: self._tools.call(name, arguments, deadline))
        try:
            return await asyncio.wait_for(outcome, self._limits.max_seconds + _GRACE_SECONDS)
        except asyncio.TimeoutError:
            return ToolResult(
                f"{deadline.error()}. What the call has begun, such as a preparation, may go on: "
                f"then call again later",
                is_error=True,
            )
        finally:
            # Where the agent has cancelled the call, too.
            deadline.give_up()

    def _start(self, function: Callable[[], ToolResult]) -> asyncio.Future[ToolResult]:
        """Run a function that raises nothing in a thread, and return its future result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[ToolResult] = loop.create_future()

        def set_outcome(result: ToolResult) -> None:
            was_cancelled = outcome.done()
            if not was_cancelled:
                outcome.set_result(result)

        def run_and_report() -> None:
            try:
                result = function()
            finally:
                self._free_threads.release()
            # The loop may have been closed in the meantime.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_outcome, result)

        threading.Thread(target=run_and_report, daemon=True).start()
        return outcome
