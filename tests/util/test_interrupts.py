"""Errors that handlers of signals raise are the program's, and are told from those of calls."""

from __future__ import annotations

import functools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from data_stack.util.interrupts import is_from_signal_handler, suppress_own


def raise_timeout(*_: Any) -> None:
    raise TimeoutError("the program's alarm")


class Handler:
    """An object that is a handler, and has one as a method."""

    def __call__(self, *_: Any) -> None:
        raise TimeoutError("the program's alarm")

    def handle(self, *_: Any) -> None:
        raise TimeoutError("the program's alarm")


@pytest.fixture(autouse=True)
def _restored_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def error_of(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize(
    "handler",
    [raise_timeout, Handler(), Handler().handle, functools.partial(raise_timeout, 1)],
    ids=["function", "object", "method", "partial"],
)
def test_an_error_of_a_handler_is_recognised(handler: Any) -> None:
    signal.signal(signal.SIGALRM, handler)

    error = error_of(lambda: os.kill(os.getpid(), signal.SIGALRM))

    assert type(error) is TimeoutError
    assert is_from_signal_handler(error)


def test_errors_of_calls_are_not_those_of_handlers() -> None:
    signal.signal(signal.SIGALRM, raise_timeout)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.001)
        error = error_of(lambda: ours.recv(1))

    assert type(error) is TimeoutError
    assert not is_from_signal_handler(error)


def test_errors_in_other_threads_come_from_no_handler() -> None:
    signal.signal(signal.SIGALRM, raise_timeout)
    answers: list[bool] = []

    def look() -> None:
        answers.append(is_from_signal_handler(error_of(raise_timeout)))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert answers == [False]


def test_suppressing_lets_errors_of_handlers_through() -> None:
    signal.signal(signal.SIGALRM, raise_timeout)

    with suppress_own(OSError):
        raise TimeoutError("of a call")
    with pytest.raises(TimeoutError, match="the program's alarm"), suppress_own(OSError):
        os.kill(os.getpid(), signal.SIGALRM)
    with pytest.raises(KeyError), suppress_own(OSError):
        raise KeyError("another kind")
