"""What ``Loader(on_error="skip")`` costs while nothing is damaged, and while a little is.

    python benchmarks/damage_cost.py [--only CASE ...]

*intact* compares loops over undamaged rows of 784 bytes with and without ``on_error="skip"``;
*pictures* does so with JPEGs of 64 x 64 pixels. *one of 10,000* compares the second epoch of rows
of which one in 10,000 is damaged with the same epoch of undamaged rows. Processor time, as the machine
has other work, too. A minute.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Results, in_turn, machine, parser_of
from PIL import Image

import data_stack
from data_stack.dataset.iterator import AccessedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import DatasetFileCorruptError

#: The part of the speed of ``on_error="raise"`` that is wanted without damage.
WANTED = 0.99

#: The part of the speed without damage that is wanted in later epochs with a little of it. A batch
#: with a damaged row is a request of its own; others are read 20 at a time.
WANTED_WITH_DAMAGE = 0.6


class _DamagedAccess(OneToOneAccess):
    """Refuses one sample in ``spacing``."""

    def __init__(self, below: Any, spacing: int) -> None:
        super().__init__(below, keeps_values=True)
        self._spacing = spacing

    def sample(self, position: int) -> Any:
        return self.samples(np.array([position]))[0]

    def samples(self, positions: Any) -> list[Any]:
        self._check(positions)
        return self.below.samples(positions)

    def batch(self, positions: Any) -> Any:
        self._check(positions)
        return self.below.batch(positions)

    def _check(self, positions: Any) -> None:
        if ((positions + 1) % self._spacing == 0).any():
            raise DatasetFileCorruptError("one of these rows is damaged")


class Damaged(AccessedDatasetIterator):
    """Rows of which one in ``spacing`` is damaged.

    Args:
        rows: the rows.
        spacing: 10,000 for one in 10,000; more than there are rows for none.
    """

    def __init__(self, rows: Any, spacing: int) -> None:
        self._rows = rows
        self._spacing = spacing

    @property
    def underlying_iterators(self) -> list[Any]:
        return [self._rows]

    def make_access(self) -> _DamagedAccess:
        return _DamagedAccess(access_to(self._rows), self._spacing)


def write_pictures(folder: Path, n_pictures: int) -> None:
    """Write JPEGs of noise."""
    rng = np.random.default_rng(0)
    (folder / "noise").mkdir(parents=True)
    for number in range(n_pictures):
        pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG")
        (folder / "noise" / f"{number}.jpg").write_bytes(buffer.getvalue())


def seconds_of_epoch(loader: data_stack.Loader) -> float:
    """Return the processor time of one epoch."""
    started_at = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - started_at


def measure(
    case: str, loaders: dict[str, data_stack.Loader], wanted: float, rounds: int, results: Results
) -> None:
    """Iterate over two loaders in turn; the second one is the limit."""
    ours, limit = loaders
    ways: dict[str, Callable[[], float]] = {}
    for way, loader in loaders.items():
        ways[way] = partial(seconds_of_epoch, loader)
    for way, figures in in_turn(case, ways, rounds + 1, results).items():
        results.keep(case, way, figures[1:], "s")  # the first epoch finds the damage
    results.print(case, limit)
    results.at_least(case, case, ours, limit, wanted)


CASES = ("intact", "pictures", "one of 10,000")


def main() -> None:
    """Run what was asked for."""
    given = parser_of(__doc__, list(CASES), rounds=15).parse_args()
    results = Results()
    print(machine())
    factor = 1 if given.small else 10
    rng = np.random.default_rng(0)
    rows = SequenceDatasetIterator([rng.integers(0, 256, (20_000 * factor, 784), dtype=np.uint8)])
    options: dict[str, Any] = {"shuffle": True, "worker_kind": "inline"}

    def loader_of(iterator: Any, batch_size: int, on_error: Any) -> data_stack.Loader:
        return data_stack.Loader(iterator, batch_size, on_error=on_error, **options)

    if "intact" in given.only:
        loaders = {
            "ours, skip": loader_of(rows, 256, "skip"),
            "raise": loader_of(rows, 256, "raise"),
        }
        measure("intact", loaders, WANTED, given.rounds, results)
    if "pictures" in given.only:
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            write_pictures(Path(name) / "pictures", 300 * factor)
            pictures = data_stack.load(Path(name) / "pictures")
            loaders = {
                "ours, skip": loader_of(pictures, 32, "skip"),
                "raise": loader_of(pictures, 32, "raise"),
            }
            measure("pictures", loaders, WANTED, given.rounds, results)
    if "one of 10,000" in given.only:
        loaders = {
            "ours, damaged": loader_of(Damaged(rows, 10_000), 256, "replace"),
            "undamaged": loader_of(Damaged(rows, 10**12), 256, "replace"),
        }
        measure("one of 10,000", loaders, WANTED_WITH_DAMAGE, given.rounds, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
