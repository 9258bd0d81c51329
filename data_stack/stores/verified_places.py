"""Verifies files and folders outside of stores by reading all of their samples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import DataStackError
from data_stack.io.integrity import Fault
from data_stack.repository.dataset_names import PlaceName
from data_stack.repository.places import Place

#: Samples that are read at a time. If that fails, these samples are read one by one.
_N_AT_ONCE = 256

#: At most this number of faults is reported: the first ones of a wholly damaged file say enough.
_MAX_FAULTS = 1000


@dataclass(frozen=True, slots=True)
class PlaceVerification:
    """The result of :func:`verify_place`.

    Attributes:
        place: the path or URL, without credentials.
        n_samples: the number of samples of all splits.
        seconds: how long it took.
        faults: samples that could not be read, at most 1,000: where each is, and what is wrong.
    """

    place: str
    n_samples: int
    seconds: float
    faults: tuple[Fault, ...]

    @property
    def state(self) -> str:
        """``"ok"``, or ``"faulty"`` if a sample could not be read."""
        if self.faults:
            return "faulty"
        return "ok"


def verify_place(place: str, **options: Any) -> PlaceVerification:
    """Read all samples of a file or folder; a sample that cannot be read is no error.

    Formats with checksums (records, Parquet with page checksums, zip, gzip) compare them while
    they are read; pictures and other media are decoded.

    Args:
        place: a path or URL.
        options: the options of :func:`data_stack.load`, such as ``format="bin"``.

    Raises:
        ConfigError: nothing is there, or its format is not recognised.
        DatasetFileCorruptError: a file is so damaged that it cannot be opened.
    """
    started_at = time.perf_counter()
    files = Place.at(PlaceName.parse(place))
    opened = files.load(**options)
    splits = opened
    if not isinstance(opened, dict):
        # One dataset without splits.
        splits = {"": opened}
    n_samples = 0
    faults: list[Fault] = []
    for split, iterator in splits.items():
        n_samples += len(iterator)
        faults += islice(_find_faults(iterator, split), _MAX_FAULTS - len(faults))
    return PlaceVerification(
        files.location.full_name,
        n_samples,
        time.perf_counter() - started_at,
        tuple(faults),
    )


def _find_faults(iterator: DatasetIteratorIF, split: str) -> Iterator[Fault]:
    """Yield a fault for each sample of an iterator that cannot be read."""
    for start in range(0, len(iterator), _N_AT_ONCE):
        positions = range(start, min(start + _N_AT_ONCE, len(iterator)))
        try:
            iterator.__getitems__(positions)
        except (DataStackError, OSError):
            for position in positions:
                fault = _find_fault(iterator, split, position)
                if fault is not None:
                    yield fault


def _find_fault(iterator: DatasetIteratorIF, split: str, position: int) -> Fault | None:
    """Return why one sample cannot be read; None if it can."""
    try:
        iterator[position]
    except (DataStackError, OSError) as error:
        place = access_to(iterator).locate(position) or f"sample {position}"
        if split:
            place = f"{split}: {place}"
        return Fault(place, str(error))
    return None
