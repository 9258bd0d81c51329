"""Names of processes, by which another process can tell whether they are still alive.

A file or a lease whose name or value holds such a name has that process as its *owner*.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os


def this_process() -> str:
    """Return the name of this process, ``MACHINE-PID-START``.

    No process of any machine had the same name before, or will have it.
    """
    return f"{this_machine()}-{os.getpid()}-{_start_of(os.getpid())}"


def is_of_this_machine(owner: str) -> bool:
    """Return whether the state of a process is visible here.

    It is if the process ran on this boot of this machine, and in this PID namespace.

    Args:
        owner: the name of the process.
    """
    return owner.partition("-")[0] == this_machine()


def is_dead(owner: str) -> bool:
    """Return whether a process is known to have ended.

    Args:
        owner: the name of the process. The answer is False for a process of another machine, and
            for a malformed name.
    """
    try:
        machine, pid, start = owner.split("-")
        return machine == this_machine() and _start_of(int(pid)) != start
    except ValueError:
        return False


@functools.lru_cache(maxsize=1)
def this_machine() -> str:
    """Return a name of the scope of process numbers: one boot of one machine, one PID namespace."""
    facts = [os.uname().nodename]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            facts.append(file.read())
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _start_of(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot. It tells reused numbers apart.

    Returns:
        None if there is no such process; ``"0"`` where the system does not say when it started.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        has_proc = os.path.exists("/proc/self/stat")
        if has_proc:
            return None
        return "0" if _exists(pid) else None
    # Zombies are dead too. In a container without an init process, they are never removed.
    state = fields[0]
    if state in ("Z", "X"):
        return None
    return fields[19]


def _exists(pid: int) -> bool:
    """Return whether there is a process of this number, on a system without ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # The process exists, and belongs to another user.
        return True
    return True
