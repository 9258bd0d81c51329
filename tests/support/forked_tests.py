"""Runs tests in processes that are forked when all is imported and collected.

pytest-xdist has each process import and collect for itself: a sixth of the processor time of ``make
test``.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest


def run_in_forks(
    session: pytest.Session, groups: Sequence[Sequence[int]], n_processes: int
) -> None:
    """Run the tests of a session; a process that dies is a failure of its test. Each fork returns
    from here too.

    Args:
        groups: numbers of tests that one process runs, one behind the other.
    """
    numbers, written = os.pipe()  # whoever reads the number of a group runs it
    os.write(written, b"".join(number.to_bytes(4, "little") for number in range(len(groups))))
    os.close(written)
    running, n_told = list[_Fork](), 0
    begun: list[Sequence[int]] = [()] * n_processes
    while begun or running:
        for tests in begun:
            fork = _Fork()
            if not fork.pid:
                for each in (*running, fork):
                    each.told.close()  # so that whoever tells this process ends with it
                read = iter(partial(os.read, numbers, 4), b"")
                groups_read = itertools.chain.from_iterable(
                    groups[int.from_bytes(number, "little")] for number in read
                )
                return _work(session, itertools.chain(tests, groups_read), fork.telling)
            running.append(fork)
        begun = []
        wait(
            [fork.told for fork in running if not fork.told.closed], 0.1
        )  # its children may hold the pipe of one that died
        for fork in list(running):
            status = fork.status()  # if it has ended, all that it told is there
            for test, reports in fork.reports():
                _log(session, test, reports)
                n_told += 1
            if status is not None:
                running.remove(fork)
                if fork.at:
                    test, following = fork.at
                    _log_death(session, test, status)
                    n_told += 1
                    begun += [
                        group[group.index(following) :] for group in groups if following in group
                    ]
                elif status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                    raise RuntimeError(f"a process ended behind its tests with status {status}")
        if session.shouldfail:
            for fork in running:
                os.kill(fork.pid, signal.SIGINT)
                os.waitpid(fork.pid, 0)
            raise session.Failed(session.shouldfail)
    if n_told < len(session.items):
        raise RuntimeError(
            f"{len(session.items) - n_told} tests were lost: a process ended between them"
        )
    return None


class _Fork:
    """A fork of this process, and the numbers of the test that it is at and of the one that follows
    there.
    """

    def __init__(self) -> None:
        self.at: tuple[int, int | None] | None = None
        self.told, self.telling = Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid:
            self.telling.close()

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def reports(self) -> Iterator[tuple[int, list[Any]]]:
        """What it told since the last call: tests that ended."""
        while not self.told.closed and self.told.poll():
            try:
                told = self.told.recv()
            except EOFError:
                self.told.close()
                return
            if isinstance(told, str):
                raise RuntimeError(f"in a process of tests: {told}")
            if self.at and isinstance(told, list):
                yield self.at[0], told
                self.at = None
            else:
                self.at = told


def _log(session: pytest.Session, test: int, reports: Sequence[Any]) -> None:
    item, config = session.items[test], session.config
    config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in reports:
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        config.hook.pytest_runtest_logreport(report=report)
    config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _log_death(session: pytest.Session, test: int, status: int) -> None:
    item, text = session.items[test], f"the process of this test ended with status {status}"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
    _log(
        session,
        test,
        [session.config.hook.pytest_report_to_serializable(config=session.config, report=report)],
    )


def _work(session: pytest.Session, tests: Iterator[int], telling: Connection[Any, Any]) -> None:
    """Run tests in a fork."""
    config = session.config
    config.workerinput = {}  # type: ignore[attr-defined]  # as in processes of pytest-xdist: reports and caches are not its own
    reporter: Any = config.pluginmanager.unregister(name="terminalreporter")
    silent = type(reporter)(config, open(os.devnull, "w"))  # to the end
    config.pluginmanager.register(silent, "terminalreporter")
    silent.pytest_sessionstart(session)
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # into files that all forks would share
    capture.start_global_capturing()
    config.pluginmanager.register(teller := _Teller(config, telling))
    test = next(tests, None)
    while test is not None and not session.shouldfail and not session.shouldstop:
        following = next(tests, None)
        telling.send((test, following))
        next_item = None if following is None else session.items[following]
        config.hook.pytest_runtest_protocol(item=session.items[test], nextitem=next_item)
        telling.send(teller.reports)
        teller.reports.clear()
        test = following


class _Teller:
    def __init__(self, config: pytest.Config, telling: Connection[Any, Any]) -> None:
        self.reports: list[Any] = []
        self._config, self._telling = config, telling

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(
            self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        )

    def pytest_internalerror(self, excrepr: object) -> None:
        self._telling.send(str(excrepr))
