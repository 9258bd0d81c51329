"""Children that work over a channel, and how they end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from process_harness import frozen, open_handles, until

from data_stack.processes import child_process, fork_server
from data_stack.processes.child_process import ChildProcess


def test_a_child_of_a_busy_server_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_ANSWER_SECONDS", 0.2)
    ChildProcess("data_stack.engines.task_process").end(time.monotonic() + 60)
    n_open_before = len(open_handles())
    child = ChildProcess("data_stack.engines.task_process")
    server: Any = fork_server._server

    with frozen(server.pid):
        child.end(time.monotonic())
        is_all_closed = until(lambda: len(open_handles()) == n_open_before)

    assert is_all_closed
    assert child.is_gone
