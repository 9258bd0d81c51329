"""Names processes, and tells later whether they are still alive."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os


def this_process() -> str:
    """``machine-pid-start``, unique across machines and time."""
    return f"{this_machine()}-{os.getpid()}-{_start(os.getpid())}"


def is_of_this_machine(owner: str) -> bool:
    """Whether ``owner`` ran on this boot of this machine and in this PID namespace, so that its state is visible."""
    return owner.partition("-")[0] == this_machine()


def is_dead(owner: str) -> bool:
    """Whether ``owner`` is known to have ended; False for other machines and malformed names."""
    try:
        machine, pid, started = owner.split("-")
        return machine == this_machine() and _start(int(pid)) != started
    except ValueError:
        return False


@functools.lru_cache(maxsize=1)
def this_machine() -> str:
    """Names the scope of process numbers: one boot of one machine, one PID namespace."""
    facts = [os.uname().nodename]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            facts.append(file.read())
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _start(pid: int) -> str | None:
    """When a process started, in clock ticks since boot, which distinguishes reused numbers; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # Zombies are dead too; in a container without an init they are never removed.
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
