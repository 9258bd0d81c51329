"""Names the process that wrote something unfinished, and tells later whether it is still alive."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os

__all__ = ["is_dead", "is_of_this_machine", "this_machine", "this_process"]


def this_process() -> str:
    """``machine-pid-start``: names this process and no other one, before or after, here or elsewhere."""
    return f"{this_machine()}-{os.getpid()}-{_start(os.getpid())}"


def is_of_this_machine(owner: str) -> bool:
    """Whether ``owner`` ran on this boot of this machine, in this namespace of processes, so that its life can be seen."""
    return owner.partition("-")[0] == this_machine()


def is_dead(owner: str) -> bool:
    """Whether ``owner`` is known to have ended. What ran elsewhere, or is no name of a process, is not known to be dead."""
    try:
        machine, pid, started = owner.split("-")
        return machine == this_machine() and _start(int(pid)) != started
    except ValueError:
        return False


@functools.lru_cache(maxsize=1)
def this_machine() -> str:
    """Names what a process number is meaningful in: one boot of one machine, one namespace of processes."""
    facts = [os.uname().nodename]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            facts.append(file.read())
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _start(pid: int) -> str | None:
    """When a process began, in clock ticks since boot: tells it from a later one of the same number. None: there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # What nobody has reaped is dead all the same; in a container without an init it stays so for ever.
        return None if fields[0] in ("Z", "X") else fields[19]
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "0"
