"""Counts the changes of files in this process, and kills it before a chosen one."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def count_changes(folder: str, kill_at: int = 0) -> list[str]:
    """Count the changes of files below ``folder`` in this process from now on, and kill it before one of them.

    Args:
        folder: of a file store, whose files are opened by names relative to its folders.
        kill_at: number of the change, from 1 on; 0 only counts.

    Returns:
        A list that grows by the name of each change's audit event.
    """
    changes: list[str] = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.mkdir"):
            return
        path = str(arguments[0])
        writes = event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and (not path.startswith("/") or path.startswith(folder)):
            changes.append(event)
            if len(changes) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    return changes


def find_left_over(folder: str) -> list[str]:
    """Files of a file store that no ready dataset needs: unfinished writes, and journals."""
    files = [os.path.join(root, file) for root, _, files in os.walk(folder) for file in files]
    return [file for file in files if os.path.basename(file).startswith(".~") or os.path.basename(file) == "journal.json"]
