"""Converts a dataset, and holds the outcome against what it was made of."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.digests import column_digests, row_digests
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError, DataStackError, StorageUnavailableError
from data_stack.formats.conversion.location import checked_format, find_source_format, find_target_format
from data_stack.formats.conversion.source import Source, open_source, parsed_columns, size_of, source_of_iterator
from data_stack.formats.conversion.targets import TARGETS, Target
from data_stack.io.location import Location, location_of
from data_stack.io.progress import new_bar, shows_progress

__all__ = ["ConversionReport", "convert"]

Verify = Literal["all", "sample", "none"]
_Positions = npt.NDArray[np.intp]

_SAMPLE: Final = 1000
_SAMPLE_OF_BEGUN: Final = 64
_MOST_NAMED: Final = 10
#: About what a batch takes in memory, and how many samples it has at most.
_BATCH_BYTES: Final = 8 << 20
_MOST_IN_BATCH: Final = 4096


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did.

    Attributes:
        source: what was converted.
        target: where it lies now.
        source_format: ``"records"`` …, or ``"iterator"``.
        target_format: ``"records"`` …
        columns: the type of each column, as a record column would have it.
        n_samples: how many there are.
        n_there: how many of them an earlier attempt had left, or all if nothing was left to do.
        n_verified: how many were read back and found equal.
        seconds: how long it took.
    """

    source: str
    target: str
    source_format: str
    target_format: str
    columns: Mapping[str, str]
    n_samples: int
    n_there: int
    n_verified: int
    seconds: float


def convert(
    source: Any,
    target: Any,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    columns: str | Iterable[str] | Mapping[str, str] | None = None,
    shardlen: int | None = None,
    verify: Verify | bool = "all",
    progress: bool | None = None,
) -> ConversionReport:
    """Convert a dataset into another format.

    ::

        convert("train.h5", "train", columns="image=x,label=y")     # to records
        convert("train", "mongodb://host/database/train.tar")       # to one WebDataset shard, in a store
        convert(data_stack.load("mnist", "train"), "mnist.npz")

    JPEG, PNG and other files are carried over as they are where the target keeps files, and decoded where it keeps arrays;
    nothing is ever encoded with a loss. A target has its name when all of it is there (in a store, shards and images appear one
    by one, and the list of them last). Called again after an interruption, folders go on where they were, and single files begin
    anew; called again after the end, it only verifies. What is there is never overwritten. Decimals become text.

    Args:
        source: an iterator; or a path, a URL with the name of the dataset behind that of the store, or ``(connector, name)``.
        target: the same, but for the iterator.
        source_format: one of :data:`FORMATS`; None to see it from suffix and content.
        target_format: likewise; None to see it from the suffix: records if it has none.
        columns: which ones, ``"a,b"`` or ``["a", "b"]``, and under which names, ``"new=old"`` or ``{"new": "old"}``; those of
            tuples by position too, ``"image=0"``. None for all.
        shardlen: samples in a shard, of records and WebDataset; None for one folder of records, shards of 10,000.
        verify: read back ``"all"`` samples, a ``"sample"`` of 1,000, or ``"none"``, and compare their digests with the source's.
        progress: show progress bars; None to show them on a terminal and in a notebook.

    Raises:
        ConfigError: a format cannot be told, the target cannot hold a column, or something else is there already.
        DatasetFileCorruptError: the source is damaged; or what was read back differs, in the samples and columns that it names.
        StorageError: it could not be read or written.
    """
    started = time.perf_counter()
    mode: Verify = ("all" if verify else "none") if isinstance(verify, bool) else verify
    if mode not in ("all", "sample", "none"):
        raise ConfigError(f'verify is "all", "sample" or "none", not {verify!r:.40}')
    location = location_of(target)
    source, kind = _open(source, source_format, location)
    with contextlib.closing(source):
        source = source.selected(parsed_columns(columns))
        goal = TARGETS[checked_format(target_format or find_target_format(location))](location, shardlen)
        goal.check(source)
        was_finished = goal.is_finished(source)
        with _nothing_left_of_failures([location, goal.attempt]):
            n_there = len(source) if was_finished else _write(goal, source, progress)
            n_verified = _verify(goal, source, mode, progress, was_there=n_there > 0)
        types = {name: column.type for name, column in source.schema.items()}
        seconds = time.perf_counter() - started
        return ConversionReport(
            source.name, location.full_name, kind, goal.kind, types, len(source), n_there, n_verified, seconds
        )


def _open(source: Any, kind: str | None, target: Location) -> tuple[Source, str]:
    if isinstance(source, DatasetIteratorIF):
        if kind is not None:
            raise ConfigError("the format of an iterator is not asked for; leave source_format out")
        return source_of_iterator(source), "iterator"
    location = location_of(source)
    if location.full_name == target.full_name:
        raise ConfigError(f"source and target are both {location.full_name}")
    found = find_source_format(location) if kind is None else checked_format(kind)
    return open_source(location, found), found


@contextlib.contextmanager
def _nothing_left_of_failures(places: Sequence[Location]) -> Iterator[None]:
    """Remove what an attempt made that failed, so that it is not in the way of the next one.

    An attempt that was interrupted, or lost its store, is gone on with instead, and so is what was there before it.
    """
    was_there = any(place.is_file() or place.is_folder() for place in places)
    made = [place.path for place in places if place.path is not None and not place.path.exists()]
    try:
        yield
    except StorageUnavailableError:
        raise
    except Exception:
        if not was_there:
            with contextlib.suppress(DataStackError, OSError):  # of a store that cannot remove; the error is the other one
                for place in places:
                    if place.is_file():
                        place.folder.delete(place.name)
                    for name in place.as_folder().list_files() if place.is_folder() else []:
                        place.as_folder().delete(name)
                    if place.path in made and place.path.exists():
                        place.path.rmdir()
        raise


def _write(goal: Target, source: Source, progress: bool | None) -> int:
    """Write what is not there yet; the number of samples that were."""
    with _progress_bar("converting", len(source), progress) as tick:

        def batches(start: int, stored: Collection[str]) -> Iterator[dict[str, Any]]:
            if start:
                _check_begun(goal, source, start)
            tick(start)
            for positions in _batches(source, np.arange(start, len(source), dtype=np.intp), stored):
                yield source.read(positions, source.schema, stored)
                tick(len(positions))

        n_there = goal.write(source, batches)
        goal.publish()
        return n_there


def _check_begun(goal: Target, source: Source, n_there: int) -> None:
    """Whether the samples that are there are those of the source: others are not to be mixed with them."""
    try:
        found = open_source(goal.attempt, goal.kind)
    except DatasetFileCorruptError:  # what cannot be read before it is whole is compared in the end
        return
    with contextlib.closing(found):
        n_common = min(n_there, len(found))
        if n_common == 0 or set(source.schema) - set(found.keys):
            return  # the writer says what is wrong with the columns
        positions = np.unique(np.linspace(0, n_common - 1, _SAMPLE_OF_BEGUN).astype(np.intp))
        different = _different(source, found.selected({name: name for name in source.schema}), positions)
    if different:
        raise ConfigError(
            f"{goal.attempt.full_name} holds {n_there:,} samples already, which are none of {source.name}: {_named(different)}; "
            f"choose another target, or remove it"
        )


def _batches(source: Source, positions: _Positions, stored: Collection[str] = ()) -> Iterator[_Positions]:
    """Positions in parts of so many samples as take a few MiB, by the size of a few."""
    if len(positions):
        some = source.some()
        n_bytes = sum(map(size_of, source.read(some, source.schema, stored).values())) / len(some)
        size = int(max(1, min(_MOST_IN_BATCH, _BATCH_BYTES // max(1, n_bytes))))
        yield from (positions[start : start + size] for start in range(0, len(positions), size))


def _verify(goal: Target, source: Source, mode: Verify, progress: bool | None, *, was_there: bool) -> int:
    """Read back; the number of samples that were found equal."""
    found = open_source(goal.location, goal.kind)
    with contextlib.closing(found):
        if len(source) == 0 == len(found):  # not every format has columns without samples
            return 0
        shown, advice = goal.location.full_name, "remove it, or choose another target"
        if len(found) != len(source) or set(source.schema) - set(found.keys) or set(found.schema) - set(source.schema):
            problem = (
                f"{shown} has {len(found):,} samples with the columns {', '.join(sorted(found.schema))}, {source.name} has "
                f"{len(source):,} with {', '.join(sorted(source.schema))}"
            )
            if was_there:
                raise ConfigError(f"another dataset is there already: {problem}; {advice}")
            raise DatasetFileCorruptError(f"{problem}: the conversion failed; report this")
        found = found.selected({name: name for name in source.schema})
        positions = _positions(len(source), mode)
        different: dict[int, list[str]] = {}
        with _progress_bar("verifying", len(positions), progress) as tick:
            for part in _batches(source, positions):
                different.update(_different(source, found, part))
                tick(len(part))
    if different:
        raise DatasetFileCorruptError(
            f"{shown} {'was there already and' if was_there else 'was written but'} differs from {source.name} in "
            f"{len(different):,} of {len(positions):,} samples that were compared: {_named(different)}; "
            f"{advice if was_there else 'leave these columns out: --columns …'}"
        )
    return len(positions)


def _named(different: Mapping[int, Sequence[str]]) -> str:
    """Samples that differ, the first of them with the columns in which they do."""
    first = [f"{position} ({', '.join(names)})" for position, names in list(different.items())[:_MOST_NAMED]]
    more = f" and {len(different) - len(first):,} more" if len(different) > len(first) else ""
    return f"samples {', '.join(first)}{more}"


def _positions(n_samples: int, mode: Verify) -> _Positions:
    if mode == "none" or not n_samples:
        return np.empty(0, np.intp)
    if mode == "all" or n_samples <= _SAMPLE:
        return np.arange(n_samples, dtype=np.intp)
    draw = random.Random(n_samples)  # noqa: S311  # repeatable, and no secret
    return np.array(sorted({0, n_samples - 1, *draw.sample(range(n_samples), _SAMPLE - 2)}), np.intp)


def _different(source: Source, found: Source, positions: _Positions) -> dict[int, list[str]]:
    """The samples at ``positions`` that are not the same in both, with the columns in which they differ."""
    stored = [
        name
        for name, column in source.schema.items()
        if source.can_give_stored(name) and found.can_give_stored(name) and found.schema[name].type == column.type
    ]
    mine, others = (each.read(positions, list(source.schema), stored) for each in (source, found))
    different: dict[int, list[str]] = {}
    if (row_digests(mine) != row_digests(others)).any():
        for name in source.schema:
            unequal = (column_digests(mine[name]) != column_digests(others[name])).any(axis=1)
            for position in positions[unequal].tolist():
                different.setdefault(position, []).append(name)
    return dict(sorted(different.items()))


@contextlib.contextmanager
def _progress_bar(what: str, n_samples: int, progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """Gives what counts samples on a bar on standard error, if there is somebody to look at it."""
    if not shows_progress(progress):
        yield lambda n_more: None
        return
    with new_bar(desc=what, total=n_samples, unit=" samples") as bar:
        yield bar.update
