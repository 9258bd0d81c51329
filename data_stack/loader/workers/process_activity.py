"""Whether a process is at something or stands still: what Linux says about its threads."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessActivity", "activity_of"]

_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine())  # the system call that waits for a lock


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """What a process did until now.

    Attributes:
        is_stopped: whether all of its threads are, as by SIGSTOP.
        waits_for_locks: whether all of its threads wait for locks, and none for a file, a network, a moment or a processor.
        processor_seconds: time that all of its threads have run.
    """

    is_stopped: bool
    waits_for_locks: bool
    processor_seconds: float


def activity_of(pid: int) -> ProcessActivity | None:
    """What a process is at; None where that cannot be told: it is gone, or the system has no ``/proc``."""
    try:
        ticks = sum(map(int, _fields(Path(f"/proc/{pid}/stat"))[11:13]))  # user, system: see proc(5)
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        is_stopped = all(_fields(thread / "stat")[0] == "T" for thread in threads)
        waits_for_locks = all(_waits_for_lock(thread) for thread in threads)
        return ProcessActivity(is_stopped, waits_for_locks, ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def _waits_for_lock(thread: Path) -> bool:
    if _read(thread / "wchan").startswith("futex"):
        return True
    return _read(thread / "syscall").partition(" ")[0] == _FUTEX  # where the first one is hidden, as in some containers


def _fields(path: Path) -> list[str]:
    # the name of the program comes second, in parentheses, and may have any characters in it
    return _read(path).rpartition(")")[2].split()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
