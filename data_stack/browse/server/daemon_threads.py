"""Runs functions in threads that nothing waits for when the program ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any


class DaemonThreads:
    """Runs functions in threads that neither the event loop nor the program waits for at its end.

    The threads of ``asyncio`` and ``anyio`` are waited for, so Ctrl-C would take as long as the
    slowest sample that is read.

    Args:
        max_threads: the maximum number of functions that run at a time.
    """

    #: Counts the threads that may still be started.
    _free_threads: asyncio.Semaphore

    def __init__(self, max_threads: int) -> None:
        self._free_threads = asyncio.Semaphore(max_threads)

    async def run(self, function: Callable[[], Any]) -> Any:
        """Return the result of a function that raises nothing."""
        loop = asyncio.get_running_loop()
        outcome = loop.create_future()

        def set_outcome(value: Any) -> None:
            was_cancelled = outcome.done()
            if not was_cancelled:
                outcome.set_result(value)

        def run_and_report() -> None:
            value = function()
            # The loop may have been closed in the meantime.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_outcome, value)

        async with self._free_threads:
            threading.Thread(target=run_and_report, daemon=True).start()
            return await outcome
