"""One attempt at a task in another process, and what is told of it to the process that wants it done."""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, TaskError
from data_stack.loader.workers.parcels import contents_of, know_nameless, pickled_error
from data_stack.loader.workers.worker_package import pickled_for_workers

__all__ = ["Failure", "PackedWork", "attempted", "packed", "unpacked"]


@dataclass(frozen=True)
class PackedWork:
    """What tasks do, ready to be sent.

    Attributes:
        pickle: of a callable; functions and classes of a script or a notebook are in it by value.
        nameless: module and name of those that cannot be found by them.
    """

    pickle: bytes
    nameless: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Failure:
    """How an attempt failed.

    Attributes:
        problem: what was raised and where, for a sentence that begins with "the attempt".
        traceback_text: its traceback; empty if there is none.
        pickled: the exception and its buffers, if it survives pickling.
    """

    problem: str
    traceback_text: str = ""
    pickled: tuple[bytes, list[bytes]] | None = None

    def error(self, task: str, n_attempts: int) -> TaskError:
        """The error that a task has failed so often, with what was raised as its cause."""
        error = TaskError(task, n_attempts, self.problem, self.traceback_text)
        if self.pickled is not None:
            with contextlib.suppress(Exception):  # whatever an object raises instead of coming to life
                error.__cause__ = contents_of(*self.pickled)
        return error


def packed(work: Callable[[Any], Any]) -> PackedWork:
    """Make ready to send what tasks do.

    Raises:
        ConfigError: it cannot be sent.
    """
    try:
        pickled, nameless = pickled_for_workers(work)
    except Exception as error:  # whatever an object raises instead of being pickled
        raise ConfigError(
            f"{work!r:.200} cannot be sent to other processes: {type(error).__name__}: {error}. Let it open what it needs when "
            f"that is first used"
        ) from error
    return PackedWork(pickled, tuple(nameless))


def unpacked(work: PackedWork) -> Callable[[Any], Any]:
    """What tasks do, in the process that does it.

    Raises:
        Exception: whatever an object raises instead of coming to life.
    """
    know_nameless(work.nameless)
    called: Callable[[Any], Any] = contents_of(work.pickle, ())
    return called


def attempted(work: Callable[[], Callable[[Any], Any]], argument: Any) -> tuple[Any, Failure | None]:
    """Try a task: what came of it, or how it failed.

    Args:
        work: gives what the task does.
        argument: of the task.
    """
    try:
        return work()(argument), None
    except BaseException as error:  # noqa: BLE001  # SystemExit and the like of user code must not end it in silence
        said = f"raised {type(error).__name__}: {error}" if str(error) else f"raised {type(error).__name__}"
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return None, Failure(f"{said} (process {os.getpid()} of {socket.gethostname()})", text, pickled_error(error))
