"""What clients of this process send to MongoDB, also those inside of connectors.

Only clients made after this module was imported are heard; those of connectors are made at their
first use.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from process_harness import in_fork
from pymongo import monitoring

#: All commands that change what is stored, or how.
WRITING: Final = frozenset(
    {
        "insert", "update", "delete", "findAndModify", "bulkWrite", "create", "createIndexes", "drop", "dropIndexes",
        "dropDatabase", "renameCollection", "collMod", "commitTransaction",
    }
)  # fmt: skip


class _Listener(monitoring.CommandListener):
    """Passes each command on ``"before"`` it is sent, and when it is ``"answered"``, with its
    database.
    """

    def __init__(self) -> None:
        self.hearers: tuple[Callable[[str, str, Mapping[str, Any]], None], ...] = ()
        self._sent: dict[int, tuple[str, Mapping[str, Any]]] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self._sent[event.request_id] = event.database_name, event.command
        self._tell("before", event.request_id)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self._tell("answered", event.request_id)
        self._sent.pop(event.request_id, None)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self._sent.pop(event.request_id, None)

    def _tell(self, moment: str, request_id: int) -> None:
        for hear in self.hearers:
            hear(moment, *self._sent.get(request_id, ("", {})))


_LISTENER: Final = _Listener()
monitoring.register(_LISTENER)


class SentCommands:
    """Notes what is sent inside of its block: ``with SentCommands(database) as sent: …``.

    Args:
        database: name of the database that is listened to; None for all.

    Attributes:
        all: commands in the order in which they were sent, as documents; ``$db`` names the
            database.
    """

    def __init__(self, database: str | None = None) -> None:
        self.all: list[Mapping[str, Any]] = []
        self._database = database

    def __enter__(self) -> SentCommands:
        _LISTENER.hearers += (self._hear,)
        return self

    def __exit__(self, *error: object) -> None:
        _LISTENER.hearers = tuple(each for each in _LISTENER.hearers if each != self._hear)

    def of(self, name: str, collection_suffix: str = "") -> list[Mapping[str, Any]]:
        """Those of this name, e.g. ``"find"``, to collections whose name ends so, e.g.
        ``".chunks"``.
        """
        return [
            command
            for command in self.all
            if _name(command) == name and str(command[name]).endswith(collection_suffix)
        ]

    @property
    def names(self) -> list[str]:
        """Their names in order, without logging in and the ends of sessions (of other clients, when
        they are collected).
        """
        return [_name(command) for command in self.all if _name(command) not in ("", "endSessions")]

    @property
    def writing(self) -> list[str]:
        """Names of those that change what is stored; an aggregation with ``$out`` or ``$merge`` is
        one.
        """
        return [
            _name(command)
            for command in self.all
            if _name(command) in WRITING
            or any({"$out", "$merge"} & set(stage) for stage in command.get("pipeline", ()))
        ]

    def _hear(self, moment: str, database: str, command: Mapping[str, Any]) -> None:
        if moment == "before" and self._database in (None, database):
            self.all.append(command)


def _name(command: Mapping[str, Any]) -> str:
    return next(iter(command), "")  # pymongo shows nothing of those that log in


@contextlib.contextmanager
def hearing(hear: Callable[[str, str, Mapping[str, Any]], None]) -> Iterator[None]:
    """Inside of the block, tell ``hear`` of each command."""
    before = _LISTENER.hearers
    _LISTENER.hearers += (hear,)
    try:
        yield
    finally:
        _LISTENER.hearers = before


@contextlib.contextmanager
def meanwhile(moment: str, command: str, work: Callable[[], object]) -> Iterator[None]:
    """Inside of the block, do ``work`` ``"before"`` the first such command is sent, or when it is
    ``"answered"``, once.

    ``command`` is its name and what the name of its collection ends with: ``"find .resources"``.
    """
    name, _, collection = command.partition(" ")
    waiting = [work]

    def hear(now: str, database: str, sent: Mapping[str, Any]) -> None:
        if (
            waiting
            and now == moment
            and name == _name(sent)
            and str(sent[name]).endswith(collection)
        ):
            waiting.pop()()

    with hearing(hear):
        yield
        assert not waiting, f"{command} was not sent"


def kill_at_command(number: int, moment: str, work: Callable[[], object]) -> bool:
    """Do ``work`` in a forked process that dies (kill -9) at one of its commands to MongoDB.

    Args:
        number: at which of its commands, from 0 on.
        moment: ``"before"`` it is sent, or when it is ``"answered"``.
        work: uses connectors; their clients are made anew in the process.

    Returns:
        Whether it died; if not, it was done before.
    """
    numbers = itertools.count(-number)

    def hear(now: str, database: str, sent: Mapping[str, Any]) -> None:
        if now == moment and next(numbers) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    status = in_fork(hearing(hear)(work))
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"work failed before its command {number} ({moment}); see its traceback")
    return status != 0
