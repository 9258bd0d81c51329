"""Notices when the machine stands still, as a virtual one does while its host is at something else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

__all__ = ["Standstills"]

_TICK_SECONDS = 0.02
#: On a busy machine a process may wait for some milliseconds until it is its turn; this is something else.
_LONG_SECONDS = 0.2

# It ends when the process that started it has ended, for then nobody holds the other end of its input.
_WATCH = f"""
import os, select, sys, time
if os.fork():
    os._exit(0)  # a grandchild is nobody's child in a census
last = time.monotonic()
while not select.select([0], [], [], {_TICK_SECONDS})[0]:
    now = time.monotonic()
    if now - last > {_LONG_SECONDS + _TICK_SECONDS}:
        os.write(1, b"%.3f %.3f\\n" % (now, now - last))
    last = now
"""


class Standstills:
    """Watches from a process of its own, which a lock of Python in this one does not keep waiting."""

    def __init__(self) -> None:
        self._seen = tempfile.TemporaryFile()
        self._watching = subprocess.Popen(
            [sys.executable, "-IS", "-c", _WATCH], stdin=subprocess.PIPE, stdout=self._seen, start_new_session=True
        )
        self._watching.wait()

    def seconds_since(self, began: float) -> float:
        """How long the machine stood still, in all, since a time of ``time.monotonic()``; short moments are not counted."""
        time.sleep(3 * _TICK_SECONDS)  # of one that is just over the watch knows in a moment
        lines = os.pread(self._seen.fileno(), 1 << 20, 0).splitlines()  # the watch writes on at its end
        seen = [tuple(map(float, line.split())) for line in lines]
        return sum(seconds for ended, seconds in seen if ended > began)

    def close(self) -> None:
        """Watch no more."""
        if self._watching.stdin is not None:
            self._watching.stdin.close()
        self._seen.close()
