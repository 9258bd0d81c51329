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
    """Postpone Ctrl-C until the end of the block.

    So a descriptor or a process that is made in the block is stored before the program stops, and
    can be closed. Handlers of other signals may raise in the block.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_in_main_thread = threading.current_thread() is threading.main_thread()
    if not callable(handler) or not is_in_main_thread:
        yield
        return
    received: list[Any] = []

    def remember(*arguments: Any) -> None:
        received.append(arguments)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[0])


@contextlib.contextmanager
def open_descriptor(path: str, flags: int, *, dir_fd: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a file or folder, which is closed after the block.

    Programs that are started meanwhile do not inherit it.

    Args:
        path: what to open, which exists.
        flags: as for ``os.open``.
        dir_fd: a descriptor of the folder in which ``path`` is.
    """
    handles: list[int] = []
    try:
        _open_uninterrupted(handles, path, flags | os.O_CLOEXEC, dir_fd)
        yield handles[0]
    finally:
        for handle in handles:
            os.close(handle)


def _open_uninterrupted(handles: list[int], path: str, flags: int, dir_fd: int | None) -> None:
    """Append the descriptor of a file to ``handles``, by C code alone.

    In ``handle = os.open(…)``, Ctrl-C may come between the call and the assignment. Then nobody
    knows the descriptor, and it stays open.
    """
    open_in_folder = functools.partial(os.open, dir_fd=dir_fd)
    handles.extend(map(open_in_folder, [path], [flags]))


def is_from_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised an error, so that the error is the program's.

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
    """Suppress errors as ``contextlib.suppress`` does, but not those that signal handlers raise."""

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
    """Return the code of a handler, None if it has none in Python.

    A handler is a function, a method, a partial of one, or an object that can be called.
    """
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None)
    if code is None:
        call = vars(type(handler)).get("__call__")
        code = getattr(call, "__code__", None)
    if isinstance(code, types.CodeType):
        return code
    return None
