"""Converts a dataset, and holds the outcome against what it was made of."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.digests import column_digests, row_digests
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError, DataStackError, StorageUnavailableError
from data_stack.formats.conversion.feed import Feed, progress_bar, read_ahead
from data_stack.formats.conversion.location import checked_format, source_format, target_format
from data_stack.formats.conversion.source import Source, open_source, parsed_columns, source_of_iterator
from data_stack.formats.conversion.targets import TARGETS, Target
from data_stack.io.location import Location, location_of

__all__ = ["ConversionReport", "convert"]

Verify = Literal["all", "sample", "none"]

_SAMPLE: Final = 1000
#: So many samples of what an earlier attempt left are held against the source before more is written behind them.
_BEGUN_SAMPLE: Final = 64
_MOST_NAMED: Final = 10


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
    jobs: int = 1,
    progress: bool | None = None,
) -> ConversionReport:
    """Convert a dataset into another format.

    ::

        convert("train.h5", "train", columns="image=x,label=y")     # to records
        convert("train", "mongodb://host/database/train.tar")       # to one WebDataset shard, in a store
        convert(data_stack.load("mnist", "train"), "mnist.npz")

    Samples pass batch by batch. JPEG, PNG and other files are carried over as they are where the target keeps files, and decoded
    where it keeps arrays; nothing is ever encoded with a loss. A target has its name when all of it is there (in a store, shards
    and images appear one by one, and the list of them last). Called again after an interruption, records, shards and images of a
    folder go on where they were, single files begin anew; called again after the end, it only verifies. What is there is never
    overwritten. After an error nothing of the attempt is left, but where the store went away. Decimals become text, which they
    are made of again; those of Parquet stay such in Parquet.

    Args:
        source: an iterator; or a path, a URL with the name of the dataset behind that of the store, or ``(connector, name)``.
        target: the same, but for the iterator.
        source_format: one of :data:`FORMATS`; None to see it from suffix and content.
        target_format: likewise; None to see it from the suffix: records if it has none.
        columns: which ones, ``"a,b"`` or ``["a", "b"]``, and under which names, ``"new=old"`` or ``{"new": "old"}``; those of
            tuples by position too, ``"image=0"``. None for all.
        shardlen: samples in a shard, of records and WebDataset; None for one folder of records, shards of 10,000.
        verify: read back ``"all"`` samples, a ``"sample"`` of 1,000, or ``"none"``, and compare their digests with the source's.
        jobs: threads that read and encode ahead; more than 1 for a source that threads may share, as those of data_stack.
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
    if jobs < 1:
        raise ConfigError(f"at least one job is needed, got jobs={jobs}")
    chosen = parsed_columns(columns)
    location = location_of(target)
    with contextlib.ExitStack() as stack:
        opened, kind = _opened(source, source_format, location)
        stack.callback(opened.close)
        opened = opened.selected(chosen)
        target_kind = _target_kind(location, target_format)
        goal = TARGETS[target_kind](location, shardlen)
        opened = goal.suited(opened)
        goal.check(opened)
        was_finished = goal.is_finished(opened)
        with _nothing_left_of_failures(goal):
            n_there = len(opened) if was_finished else _written(goal, opened, jobs, progress)
            n_verified = _verified(goal, opened, mode, jobs, progress, was_finished)
    return ConversionReport(
        opened.name,
        location.full_name,
        kind,
        target_kind,
        {name: column.type for name, column in opened.schema.items()},
        len(opened),
        n_there,
        n_verified,
        time.perf_counter() - started,
    )


@contextlib.contextmanager
def _nothing_left_of_failures(goal: Target) -> Iterator[None]:
    """Remove what an attempt made that failed, so that it is not in the way of the next one.

    An attempt that was interrupted, or lost its store, is gone on with instead, and so is what was there before it.
    """
    places = [location for location in goal.attempts() if not location.is_file() and not location.is_folder()]
    was_there = [location for location in places if location.path is not None and location.path.exists()]
    try:
        yield
    except StorageUnavailableError:
        raise
    except Exception:
        if len(places) == len(goal.attempts()):
            for location in places:
                with contextlib.suppress(DataStackError, OSError):  # of a store that cannot remove; the error is the other one
                    _remove(location, keeps_folder=location in was_there)
        raise


def _remove(location: Location, *, keeps_folder: bool) -> None:
    if location.is_file():
        location.folder.delete(location.name)
        return
    for name in location.as_folder().list_files() if location.is_folder() else []:
        location.as_folder().delete(name)
    if location.path is not None and location.path.exists() and not keeps_folder:
        location.path.rmdir()


def _opened(source: Any, kind: str | None, target: Location) -> tuple[Source, str]:
    if isinstance(source, DatasetIteratorIF):
        if kind is not None:
            raise ConfigError("the format of an iterator is not asked for; leave source_format out")
        return source_of_iterator(source), "iterator"
    location = location_of(source)
    if location.full_name == target.full_name:
        raise ConfigError(f"source and target are both {location.full_name}")
    found = source_format(location) if kind is None else checked_format(kind)
    return open_source(location, found), found


def _target_kind(location: Location, kind: str | None) -> str:
    return target_format(location) if kind is None else checked_format(kind)


def _written(goal: Target, source: Source, jobs: int, progress: bool | None) -> int:
    """Write what is not there yet; the number of samples that were."""

    def begun(n_there: int) -> None:
        if n_there:
            _check_begun(goal, source, n_there)

    with progress_bar("converting", len(source), progress) as tick:
        return goal.write(Feed(source, jobs, tick), begun)


def _check_begun(goal: Target, source: Source, n_there: int) -> None:
    """Whether the samples that are there are those of the source: others are not to be mixed with them."""
    try:
        found = open_source(goal.location, goal.kind)
    except DatasetFileCorruptError:  # sequences can be read when they are finished; they are compared in the end
        return
    found = goal.suited(found)
    with contextlib.closing(found):
        n_common = min(n_there, len(found), len(source))
        if n_common == 0 or set(found.schema) != set(source.schema):
            return  # the writer says what is wrong with the columns
        positions = np.unique(np.linspace(0, n_common - 1, _BEGUN_SAMPLE).astype(np.intp))
        different = _different(source, found, positions)
    if different:
        raise ConfigError(
            f"{goal.location.full_name} holds {n_there:,} samples already, which are none of {source.name}: {_named(different)}. "
            f"Choose another target, or remove it"
        )


def _verified(goal: Target, source: Source, mode: Verify, jobs: int, progress: bool | None, was_finished: bool) -> int:
    """Read back; the number of samples that were found equal."""
    found = open_source(goal.location, goal.kind)
    with contextlib.closing(found):
        if len(source) == 0 == len(found):  # not every format has columns without samples
            return 0
        shown = goal.location.full_name
        names = set(source.schema)
        missing = names - set(found.keys)
        extra = set(found.schema) - names
        if len(found) != len(source) or missing or extra:
            problem = (
                f"{shown} has {len(found):,} samples with the columns {', '.join(sorted(found.schema))}, {source.name} has "
                f"{len(source):,} with {', '.join(sorted(names))}"
            )
            if was_finished:
                raise ConfigError(f"another dataset is there already: {problem}. Choose another target, or remove it")
            raise DatasetFileCorruptError(f"{problem}: the conversion failed; remove it and report this")
        found = goal.suited(found.selected({name: name for name in source.schema}))
        positions = _positions(len(source), mode)
        different: dict[int, list[str]] = {}
        with progress_bar("verifying", len(positions), progress) as tick:
            size = Feed(source, 1, tick).size_of_batch()
            parts = [positions[start : start + size] for start in range(0, len(positions), size)]
            for part, unequal in zip(parts, read_ahead(lambda part: _different(source, found, part), parts, jobs), strict=True):
                different.update(unequal)
                tick(len(part))
    if different:
        how = "was there already and" if was_finished else "was written but"
        advice = "Remove it, or choose another target" if was_finished else "Leave these columns out: --columns …"
        raise DatasetFileCorruptError(
            f"{shown} {how} differs from {source.name} in {len(different):,} of {len(positions):,} samples that were compared: "
            f"{_named(different)}. {advice}"
        )
    return len(positions)


def _positions(n_samples: int, mode: Verify) -> npt.NDArray[np.intp]:
    if mode == "none" or not n_samples:
        return np.empty(0, np.intp)
    if mode == "all" or n_samples <= _SAMPLE:
        return np.arange(n_samples, dtype=np.intp)
    draw = random.Random(n_samples)  # noqa: S311  # repeatable, and no secret
    return np.array(sorted({0, n_samples - 1, *draw.sample(range(n_samples), _SAMPLE - 2)}), np.intp)


def _different(source: Source, found: Source, positions: npt.NDArray[np.intp]) -> dict[int, list[str]]:
    """The samples at ``positions`` that are not the same in both, with the columns in which they differ."""
    if not len(positions):
        return {}
    stored = [
        name
        for name, column in source.schema.items()
        if source.can_give_stored(name) and found.can_give_stored(name) and found.schema[name].type == column.type
    ]
    mine, others = (each.read(positions, list(source.schema), stored) for each in (source, found))
    rows = np.flatnonzero((row_digests(mine) != row_digests(others)).any(axis=1))
    different: dict[int, list[str]] = {int(positions[row]): [] for row in rows.tolist()}
    if len(rows):
        for name in source.schema:
            unequal = (column_digests(mine[name]) != column_digests(others[name])).any(axis=1)
            for row in np.flatnonzero(unequal).tolist():
                different[int(positions[row])].append(name)
    return different


def _named(different: Mapping[int, Sequence[str]]) -> str:
    first = [f"{position} ({', '.join(names)})" for position, names in sorted(different.items())[:_MOST_NAMED]]
    more = len(different) - len(first)
    return f"samples {', '.join(first)}" + (f" and {more:,} more" if more > 0 else "")
