"""Work that one process of a machine does for all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from data_stack.io.integrity import block_digest
from data_stack.io.storage_connectors.blocks import runs_of
from data_stack.io.storage_connectors.cached.health import FolderHealth, make_cache_folder
from data_stack.util.lock_file import RangeLocks
from data_stack.util.polling import polls

_Result = TypeVar("_Result")

#: The name of the file whose locks say what a process is doing.
CLAIMS_FILE: Final = "claims"

#: How long to wait for another process before doing its work as well. A process that is killed
#: loses its claims at once.
_PATIENCE_SECONDS: Final = 10.0
#: A waiting process looks for results after these times, the first and the longest.
_FIRST_WAIT_SECONDS: Final = 0.001
_MAX_WAIT_SECONDS: Final = 0.1


class SharedWork:
    """Work that one process or thread of a machine does, while the others wait for its results.

    This only saves requests. If a process dies, or is too slow, the waiting ones do its work
    themselves.

    Args:
        path: the path of the folder of the cache.
        health: says whether results can be expected in the folder.
    """

    _path: str
    _health: FolderHealth

    def __init__(self, path: str, health: FolderHealth) -> None:
        self._path = path
        self._health = health

    def share(
        self,
        key: str,
        numbers: Sequence[int],
        find: Callable[[Sequence[int]], dict[int, _Result]],
        make: Callable[[Sequence[int]], dict[int, _Result]],
    ) -> dict[int, _Result]:
        """Return the results of numbered work.

        Args:
            key: names the work.
            numbers: which results are wanted, ascending.
            find: returns those results that are in the folder.
            make: makes results, and writes them where ``find`` finds them.
        """
        results = find(numbers)
        missing = [number for number in numbers if number not in results]
        if not missing:
            return results

        for _ in polls(_PATIENCE_SECONDS, first=_FIRST_WAIT_SECONDS, longest=_MAX_WAIT_SECONDS):
            if self._health.is_paused():
                break
            with self._claim(key, missing) as claimed:
                # Another process may have made some before they were claimed.
                results |= find(missing)
                own_numbers = [number for number in claimed if number not in results]
                if own_numbers:
                    results |= make(own_numbers)
            missing = [number for number in numbers if number not in results]
            if not missing:
                return results

        # The others are too slow, or the folder does not keep what they make.
        return results | make(missing)

    def share_one(
        self, key: str, find: Callable[[], _Result | None], make: Callable[[], _Result]
    ) -> _Result:
        """Return the result of work that has a single one.

        Args:
            key: names the work.
            find: returns the result if it is in the folder; otherwise None.
            make: makes the result, and writes it where ``find`` finds it.
        """

        def find_all(numbers: Sequence[int]) -> dict[int, _Result]:
            result = find()
            return {} if result is None else {0: result}

        def make_all(numbers: Sequence[int]) -> dict[int, _Result]:
            return {0: make()}

        return self.share(key, (0,), find_all, make_all)[0]

    @contextlib.contextmanager
    def _claim(self, key: str, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Claim the work of these numbers until the end of the block.

        Yields:
            Those numbers that nobody else has claimed.
        """
        try:
            locks = self._open_locks()
        except OSError:
            # A process that cannot write to the folder shares nothing.
            yield list(numbers)
            return

        with contextlib.closing(locks):
            # A lock on one byte of the file claims one number. The first 38 bits of the digest of
            # the key choose the range of 2^24 bytes for its numbers. If two keys have the same
            # range, they wait for each other, and nothing else happens.
            key_digest = int.from_bytes(block_digest(key.encode()), "big")
            start = (key_digest >> 26) << 24
            claimed = list[int]()
            for run in runs_of(numbers):
                run_numbers = range(run.first, run.first + run.n_blocks)
                if locks.try_lock(start + run.first, run.n_blocks):
                    claimed.extend(run_numbers)
                    continue
                for number in run_numbers:
                    if locks.try_lock(start + number, 1):
                        claimed.append(number)
            yield claimed

    def _open_locks(self) -> RangeLocks:
        """Open the file of the claims.

        Raises:
            OSError: the folder cannot be written to.
        """
        path = os.path.join(self._path, CLAIMS_FILE)
        with contextlib.suppress(FileNotFoundError):
            return RangeLocks(path)
        make_cache_folder(self._path)
        return RangeLocks(path)
