"""Calls functions in other processes, for tests of what has to work there."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from data_stack.processes.pickling import dump, load

#: How long a call may take.
_TIMEOUT_SECONDS = 60.0

#: Each process is a fork of a fresh interpreter, which has imported data_stack and nothing else of
#: this process.
_fork_server = multiprocessing.get_context("forkserver")
_fork_server.set_forkserver_preload([__name__, "data_stack.loading", "data_stack.formats"])


def call_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ``function(*arguments)`` in another process.

    Code that the other process cannot import, such as that of a test module, is sent by value. The
    process has the environment of this one.
    """
    with ProcessPoolExecutor(1, mp_context=_fork_server) as pool:
        pickled_call = _pickle((function, arguments))
        future = pool.submit(_call_pickled, pickled_call, dict(os.environ))
        return load(future.result(_TIMEOUT_SECONDS))


def _call_pickled(pickled_call: bytes, environment: dict[str, str]) -> bytes:
    """Call a pickled function with pickled arguments, and return its pickled result.

    The environment is set first: that of a fork server is as old as the server.
    """
    os.environ.clear()
    os.environ.update(environment)
    function, arguments = load(pickled_call)
    return _pickle(function(*arguments))


def _pickle(value: Any) -> bytes:
    """Return a pickle that holds code which the other process cannot import."""
    return bytes(dump(value, in_one_piece=True)[0])
