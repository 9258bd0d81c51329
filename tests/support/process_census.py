"""Counts what a process has: children, threads, descriptors, and memory, on Linux."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from process_harness import open_handles

from data_stack.processes import fork_server


def children(pid: int | None = None) -> list[int]:
    """Processes of which ``pid`` is the parent, zombies too; None: this process, and its fork
    servers, which do not count.
    """
    servers = set() if pid is not None else {str(server.pid) for server in fork_server._servers}
    parents = {str(os.getpid() if pid is None else pid), *servers}
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (
                    (folder / "stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rpartition(")")[2]
                    .split()
                )
            except OSError:
                continue
            if fields[1] in parents and folder.name not in servers:
                found.append(int(folder.name))
    return sorted(found)


def descriptors() -> list[str]:
    """What the open descriptors of this process are."""
    return sorted(path.partition("[")[0] for path in open_handles().values())


#: Threads that are not leaks: those of the executors, which end by themselves, and the one of
#: progress bars.
_STAYING = ("data_stack-", "tqdm_monitor")


class Census(NamedTuple):
    """What a process has: children, names of threads, descriptors, and maps of named shared
    memory.
    """

    children: list[Any]  # of any: so that all four are counted alike
    threads: list[Any]
    descriptors: list[Any]
    maps: list[Any]


def census() -> Census:
    """What this process has now, a fork server included."""
    fork_server.hold([])
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    threads = sorted(
        thread.name for thread in threading.enumerate() if not thread.name.startswith(_STAYING)
    )
    return Census(
        children(),
        threads,
        descriptors(),
        [line for line in maps if "/dev/shm" in line or "batches" in line],
    )


def left_since(before: Census) -> list[str]:
    """What this process has and did not have before."""
    return [
        each
        for now, then in zip(census(), before, strict=True)
        for each in (Counter(map(str, now)) - Counter(map(str, then))).elements()
    ]


def own_bytes(pids: list[int]) -> int:
    """Memory of processes without that of files; what they share is counted once."""
    total = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
        total += sum(
            int(line.split()[1])
            for line in text.splitlines()
            if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
        )
    return total * 1024
