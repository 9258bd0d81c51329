"""How much of an unfinished record dataset is known to have arrived on the disk."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

from data_stack.dataset.strict_json import JsonObject, sealed_json
from data_stack.exception import DatasetFileCorruptError

__all__ = ["PROGRESS", "Progress", "this_boot"]

#: Lies beside the columns until they are finished.
PROGRESS = "progress.json"
_FORMAT = "data_stack records progress 1"


@dataclass(frozen=True)
class Progress:
    """What a writer noted before it wrote.

    After a kill all that was written is there. After a power cut the files may have their length and hold zeros, so that only
    what was synced counts; what lies behind it is held against what is written again.

    Attributes:
        boot: names the start of the machine that it wrote on.
        count: samples that were synced.
    """

    boot: str
    count: int

    def to_json(self) -> bytes:
        """As it is stored."""
        return sealed_json({"format": _FORMAT, "boot": self.boot, "count": self.count})

    @classmethod
    def from_json(cls, data: bytes) -> Progress:
        """Parse what :meth:`to_json` gave; what is damaged tells that nothing was synced."""
        try:
            fields = JsonObject.unsealed(data, PROGRESS)
            if fields.text("format") == _FORMAT:
                return cls(fields.text("boot"), fields.size("count"))
        except DatasetFileCorruptError:
            pass
        return cls("", 0)


@functools.lru_cache(maxsize=1)
def this_boot() -> str:
    """Names the start of this machine; the same for all starts where the system does not tell."""
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    return "unknown"
