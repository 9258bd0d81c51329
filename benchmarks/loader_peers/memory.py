"""Memory of a process together with all of its children."""

from __future__ import annotations

from pathlib import Path


def family(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def proportional_bytes(pid: int) -> int:
    """Memory of all of them that is in RAM, what several share counted once."""
    total = 0
    for each in family(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def own_bytes(pid: int) -> int:
    """Memory of all of them that is in RAM, but for shared memory.

    What several of them share is counted once.
    """
    total = 0
    for member in family(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        for line in lines:
            name, _, value = line.partition(":")
            if name in ("Pss_Anon", "Pss_File"):
                total += int(value.split()[0]) << 10
    return total


def shared_memory_bytes() -> int:
    """Shared memory of all programs of this machine, also where no process has mapped it.

    A batch that torch's loader sends lies there. The consumer maps it, and the map has no page until
    it is read: a sum over the maps of processes counts none of its memory.
    """
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Shmem":
            return int(value.split()[0]) << 10
    return 0
