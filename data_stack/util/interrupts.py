"""Postpones Ctrl-C, and opens descriptors that it cannot leave behind."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C take effect after the block, so that a descriptor or process made there gets its owner first.

    Handlers of other signals may raise in the block.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = list[Any]()
    signal.signal(signal.SIGINT, lambda *facts: caught.append(facts))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if caught:
            handler(*caught[0])


@contextlib.contextmanager
def open_descriptor(path: str, flags: int, *, dir_fd: int | None = None) -> Iterator[int]:
    """The descriptor of a file or folder, which is closed after the block; it is not inherited by programs.

    Args:
        path: what to open, which exists.
        flags: as for ``os.open``.
        dir_fd: a descriptor of the folder in which ``path`` is.
    """
    opened = list[int]()
    try:
        # by C code alone, so that no interruption comes between opening and keeping
        opened.extend(
            map(functools.partial(os.open, dir_fd=dir_fd), [path], [flags | os.O_CLOEXEC])
        )
        yield opened[0]
    finally:
        for handle in opened:
            os.close(handle)
