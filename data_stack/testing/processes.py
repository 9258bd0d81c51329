"""Calls functions in other processes, as tests of what must work there do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from data_stack.processes.pickling import dump, load

#: Each process is a fork of a fresh interpreter that has imported data_stack, and nothing else of this one.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__, "data_stack.loading", "data_stack.formats"])


def call_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of ``function(*arguments)`` in another process; code that the process cannot import is sent by value."""
    with ProcessPoolExecutor(1, mp_context=_FORKS) as pool:
        return load(pool.submit(_call, _packed((function, arguments))).result(60.0))


def _call(pickled: bytes) -> bytes:
    function, arguments = load(pickled)
    return _packed(function(*arguments))


def _packed(value: Any) -> bytes:
    return bytes(dump(value, in_one_piece=True)[0])
