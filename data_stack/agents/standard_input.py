"""Reads the lines of standard input without keeping the program from ending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Final

#: The maximum size of a line in bytes. An agent sends the name of a tool and its arguments.
MAX_LINE_BYTES: Final = 1 << 20

#: How many lines are read before the first one is taken.
_MAX_WAITING_LINES: Final = 16

#: The number of bytes that are read at once.
_PIECE_BYTES: Final = 1 << 16


class StandardInput:
    """The lines of standard input, read by a thread that ends with the program.

    A thread that waits for input cannot be interrupted. That of the package mcp is waited for, so
    Ctrl-C would end the program only when the agent sends another line.

    While the lines are read, file descriptor 0 is the null device, so that neither a plugin nor a
    process that it starts takes them.

    Args:
        descriptor: the file descriptor of the input.
    """

    #: The file descriptor from which the lines are read.
    _descriptor: int

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[StandardInput]:
        """Take the lines of this process, and give file descriptor 0 back at the end."""
        lines = os.dup(0)
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)
        os.close(null_device)
        try:
            # ``lines`` is never closed: the thread may wait for input there, and another file
            # would get its number.
            yield cls(lines)
        finally:
            os.dup2(lines, 0)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield each line; what is no UTF-8 is replaced. A line that is too long ends the input."""
        loop = asyncio.get_running_loop()
        waiting_lines: asyncio.Queue[str | None] = asyncio.Queue(_MAX_WAITING_LINES)

        def read_all() -> None:
            # The loop is closed when the program ends.
            with contextlib.suppress(RuntimeError):
                for line in self._read_lines():
                    asyncio.run_coroutine_threadsafe(waiting_lines.put(line), loop).result()
                asyncio.run_coroutine_threadsafe(waiting_lines.put(None), loop).result()

        threading.Thread(target=read_all, daemon=True).start()
        while True:
            line = await waiting_lines.get()
            if line is None:
                return
            yield line

    def _read_lines(self) -> Iterator[str]:
        """Yield the lines. A file object of Python would wait for its lock when Python ends."""
        begun = b""
        while len(begun) <= MAX_LINE_BYTES:
            piece = os.read(self._descriptor, _PIECE_BYTES)
            if not piece:
                if begun:
                    yield begun.decode("utf-8", errors="replace")
                return
            *lines, begun = (begun + piece).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", errors="replace")
