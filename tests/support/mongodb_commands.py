"""What clients of this process send to MongoDB, also those inside of connectors."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from pymongo import monitoring

#: All commands that change what is stored, or how.
WRITING: Final = frozenset(
    {
        "insert", "update", "delete", "findAndModify", "bulkWrite", "create", "createIndexes", "drop", "dropIndexes",
        "dropDatabase", "renameCollection", "collMod", "commitTransaction",
    }
)  # fmt: skip


class SentCommands:
    """Notes what is sent inside of its block: ``with SentCommands(database) as sent: …``.

    Only clients made after this module was imported are heard; those of connectors are made at their first use.

    Args:
        database: name of the database that is listened to; None for all.

    Attributes:
        all: commands in the order in which they were sent, as documents; ``$db`` names the database.
    """

    def __init__(self, database: str | None = None) -> None:
        self.all: list[Mapping[str, Any]] = []
        self._database = database

    def __enter__(self) -> SentCommands:
        _FAN_OUT.add(self)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None
    ) -> None:
        _FAN_OUT.remove(self)

    def of(self, name: str, collection_suffix: str = "") -> list[Mapping[str, Any]]:
        """Those of this name, e.g. ``"find"``, to collections whose name ends so, e.g. ``".chunks"``."""
        return [command for command in self.all if _name(command) == name and str(command[name]).endswith(collection_suffix)]

    @property
    def names(self) -> list[str]:
        """Their names in order, without logging in and the ends of sessions (of other clients, when they are collected)."""
        return [_name(command) for command in self.all if _name(command) not in ("", "endSessions")]

    @property
    def writing(self) -> list[str]:
        """Names of those that change what is stored; an aggregation with ``$out`` or ``$merge`` is one."""
        return [
            _name(command)
            for command in self.all
            if _name(command) in WRITING or any({"$out", "$merge"} & set(stage) for stage in command.get("pipeline", ()))
        ]

    def _hear(self, event: monitoring.CommandStartedEvent) -> None:
        if self._database is None or event.database_name == self._database:
            self.all.append(event.command)


def _name(command: Mapping[str, Any]) -> str:
    return next(iter(command), "")  # pymongo shows nothing of those that log in


class _FanOut(monitoring.CommandListener):
    """Hands events on; pymongo can register a listener for all clients, but never let go of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard_by: tuple[SentCommands, ...] = ()

    def add(self, listening: SentCommands) -> None:
        with self._lock:
            self._heard_by = (*self._heard_by, listening)

    def remove(self, listening: SentCommands) -> None:
        with self._lock:
            self._heard_by = tuple(other for other in self._heard_by if other is not listening)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        for listening in self._heard_by:
            listening._hear(event)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


_FAN_OUT: Final = _FanOut()
monitoring.register(_FAN_OUT)


class Meanwhile(monitoring.CommandListener):
    """Does something else at a command of this process to MongoDB, once, before it goes on.

    Only clients made after :func:`meanwhile` was imported are heard.
    """

    def __init__(self) -> None:
        self._waiting: tuple[str, str, Callable[[], object]] | None = None
        self._sent: dict[int, str] = {}

    @contextlib.contextmanager
    def at(self, moment: str, command: str, work: Callable[[], object]) -> Iterator[None]:
        """Inside of the block, do ``work`` ``"before"`` the first such command is sent, or when it is ``"answered"``.

        ``command`` is its name and what the name of its collection ends with: ``"find .resources"``.
        """
        self._waiting = (moment, command, work)
        try:
            yield
            assert self._waiting is None, f"{command} was not sent"
        finally:
            self._waiting = None

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self._sent[event.request_id] = f"{event.command_name} {event.command.get(event.command_name)}"
        self._look("before", event.request_id)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self._look("answered", event.request_id)
        self._sent.pop(event.request_id, None)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self._sent.pop(event.request_id, None)

    def _look(self, moment: str, request_id: int) -> None:
        if self._waiting is None:
            return
        wanted, command, work = self._waiting
        name, _, collection = command.partition(" ")
        sent_name, _, sent_collection = self._sent.get(request_id, "").partition(" ")
        if moment == wanted and name == sent_name and sent_collection.endswith(collection):
            self._waiting = None
            work()


meanwhile: Final = Meanwhile()
monitoring.register(meanwhile)


def kill_at_command(number: int, moment: str, work: Callable[[], object]) -> bool:
    """Do ``work`` in a forked process that dies (kill -9) at one of its commands to MongoDB.

    Args:
        number: at which of its commands, from 0 on.
        moment: ``"before"`` it is sent, or when it is ``"answered"``.
        work: uses connectors; their clients are made anew in the process.

    Returns:
        Whether it died; if not, it was done before.
    """
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            monitoring.register(_Killer(number, moment))
            work()
            exit_code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(exit_code)  # no pytest, no cleaning up of what the parent still uses
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"work failed before its command {number} ({moment}); see its traceback")
    return os.WIFSIGNALED(status)


class _Killer(monitoring.CommandListener):
    def __init__(self, number: int, moment: str) -> None:
        self._number, self._moment = itertools.count(-number), moment

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self._moment == "before" and next(self._number) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        if self._moment == "answered" and next(self._number) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass
