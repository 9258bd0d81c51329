"""What signals interrupt: postpones Ctrl-C, opens descriptors safely, knows errors of handlers."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import types
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


def is_from_signal_handler(error: BaseException) -> bool:
    """Whether a handler of a signal raised an error, so that the error is the program's.

    Programs limit time by SIGALRM and a handler that raises TimeoutError, which is an OSError.
    Python runs the handler wherever the main thread is, also inside of a call of ours that catches
    OSError as a failure of a socket. The traceback tells the two apart: it goes through the
    handler.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler_codes = set()
    for number in signal.valid_signals():
        code = _code_of(signal.getsignal(number))
        if code is not None:
            handler_codes.add(code)
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handler_codes:
            return True
        traceback = traceback.tb_next
    return False


class suppress_own(contextlib.suppress):  # noqa: N801  # used as contextlib.suppress is
    """As ``contextlib.suppress``, but the errors of signal handlers pass through."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> bool:
        if error is not None and is_from_signal_handler(error):
            return False
        return bool(super().__exit__(kind, error, traceback))


def _code_of(handler: Any) -> types.CodeType | None:
    """The code of a handler: a function, a method, a partial of one, or an object that is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None)
    if code is None:
        call = vars(type(handler)).get("__call__")
        code = getattr(call, "__code__", None)
    return code if isinstance(code, types.CodeType) else None
