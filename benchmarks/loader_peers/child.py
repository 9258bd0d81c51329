"""Runs one loader in a process of its own, a turn at a time, as :mod:`loader_peers.turns` tells it by lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record_peers.workload import Field, Schema

from loader_peers import loader_system
from loader_peers.checking import check_epoch
from loader_peers.loading import Loading
from loader_peers.memory import proportional_bytes

#: A turn has at least so many batches, however slow the loader is.
_FEWEST_BATCHES = 4


def main() -> None:
    """Answer each line with a line."""
    # Whatever libraries print goes to standard error: what was standard output is for answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    turns: Turns | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "open":
                turns = Turns(asked)
                answer: dict[str, Any] = {"checked": turns.n_checked}
            elif asked["do"] == "turn" and turns is not None:
                answer = turns.turn(asked["seconds"])
            else:
                break
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if turns is not None:
        turns.loading.close()
    sys.stderr.flush()
    os._exit(0)  # whatever is left of a peer ends here


class Turns:
    """A loader, epoch after epoch, stopped and gone on with."""

    def __init__(self, asked: dict[str, Any]) -> None:
        schema = Schema(
            asked["work"], tuple(Field(**{**each, "shape": tuple(each["shape"])}) for each in asked["fields"]), asked["n"]
        )
        self.loading: Loading = loader_system(asked["loader"]).open(schema, Path(asked["folder"]))
        self.n_checked, rest = check_epoch(self.loading, schema, Path(asked["truth"]), asked["seconds"])
        self._batches = self._endless(rest)

    def _endless(self, rest: Iterator[Any]) -> Iterator[Any]:
        yield from rest
        del rest
        while True:
            yield from self.loading.epoch()

    def turn(self, seconds: float) -> dict[str, Any]:
        """Samples of as many batches as take so long, behind those that were made while nobody asked."""
        batches, clock = self._batches, time.perf_counter
        for _ in range(self.loading.ahead):
            batch = next(batches)
        n_batches = n_samples = 0
        start = clock()
        while n_batches < _FEWEST_BATCHES or clock() - start < seconds:
            batch = next(batches)
            n_batches += 1
            n_samples += n_samples_of(batch)
        duration = clock() - start
        del batch
        found = {"seconds": duration, "samples": n_samples, "batches": n_batches, "bytes": proportional_bytes(os.getpid())}
        return {**found, "kind": self.loading.kind_of_workers()}


def n_samples_of(batch: Any) -> int:
    """Length of a batch's first column (``lengths`` beside blobs end to end)."""
    if isinstance(batch, dict):
        return len(batch["lengths"] if "lengths" in batch else next(iter(batch.values())))
    return len(batch[0])


if __name__ == "__main__":
    main()
