"""Reads the columns of a split block by block, in little memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.browse.plain_values import Values, is_plain_value, plain, size_of
from data_stack.dataset.iterator import ColumnArray, DatasetIteratorIF
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.show.column_report import ColumnReport, columns_of
from data_stack.show.display_value import Kind, to_display_value
from data_stack.show.markup import readable
from data_stack.show.sample_parts import hints_of, part_of
from data_stack.util.byte_cache import ByteCache
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import join_columns

#: Histograms count at most this many rows of a split.
_MAX_SAMPLED_ROWS: Final = 1 << 16

#: Of a larger split, histograms count blocks in this many places.
_N_SAMPLED_BLOCKS: Final = 64

#: Rows of a block.
_MIN_BLOCK_ROWS: Final = 16
_MAX_BLOCK_ROWS: Final = 1 << 13

#: A block is read in about this time, so that a page can be answered in between.
_SECONDS_OF_A_BLOCK: Final = 0.03

#: The maximum size of the plain values that are kept, in bytes.
_CACHE_BYTES: Final = 48 << 20

#: The columns are found from this many samples at most.
_N_FIRST_SAMPLES: Final = 8

#: The usual names of columns of classes, the most usual first.
_NAMES_OF_CLASS_COLUMNS: Final = ("label", "class", "target", "y", "category", "cls")


@dataclass(frozen=True)
class BrowsedColumn:
    """A column of a split.

    Attributes:
        key: position or key in a sample; None of bare samples.
        name: shown on the page.
        role: ``"sample"``, ``"target"`` or ``"tag"`` in the meta, or None.
        dtype: the dtype of the values, as text.
        shape: the shape of a value; None if it varies.
        kind: how its values are shown.
        is_plain: whether its values are single numbers, times or texts; only these can be filtered.
        has_picture: whether its values are shown as pictures.
        hint: its kind in the meta, see :func:`~data_stack.show.pictures.kind_of_value`.
        class_names: the names of the values 0, 1 …; empty if they have none.
    """

    key: int | str | None
    name: str
    role: str | None
    dtype: str
    shape: tuple[int | None, ...] | None
    kind: Kind
    is_plain: bool
    has_picture: bool
    hint: str | None = None
    class_names: tuple[str, ...] = ()


class Table:
    """The samples of a split.

    Args:
        iterator: the samples. It is not closed.

    Attributes:
        n_samples: number of samples.
        is_small: whether histograms count all samples.
        n_sampled: number of samples that histograms count.
        columns: the columns of the samples; empty if no sample can be read.
        class_column: number of the column of classes; None if there is none.
        caption_column: number of the column that best describes a sample in a few words; None
            without plain columns.
    """

    n_samples: int
    is_small: bool
    n_sampled: int
    columns: tuple[BrowsedColumn, ...]
    class_column: int | None
    caption_column: int | None

    _access: SampleAccess

    #: Held while samples are read: not every iterator is thread-safe.
    _lock: threading.RLock

    #: Plain values by column, start and stop.
    _cache: ByteCache[tuple[int, int, int], Values]

    #: Rows of a block.
    _block_rows: int

    def __init__(self, iterator: DatasetIteratorIF) -> None:
        self._access = access_to(iterator)
        self._lock = threading.RLock()
        self._cache = ByteCache(_CACHE_BYTES, size_of)
        self.n_samples = self._access.n_samples
        self.columns = self._find_columns(iterator)
        self.class_column = self._find_class_column()
        self.caption_column = self._find_caption_column()
        self._block_rows = self._measure_block()
        self.is_small = self.n_samples <= _MAX_SAMPLED_ROWS
        self.n_sampled = self.n_samples
        if not self.is_small:
            rows_of_sampled_block = min(self._block_rows, _MAX_SAMPLED_ROWS // _N_SAMPLED_BLOCKS)
            self.n_sampled = _N_SAMPLED_BLOCKS * rows_of_sampled_block

    # ------------------------------------------------------------------ columns

    def plain_columns(self) -> list[int]:
        """Return the numbers of the columns that can be filtered."""
        return [number for number, column in enumerate(self.columns) if column.is_plain]

    def _find_columns(self, iterator: DatasetIteratorIF) -> tuple[BrowsedColumn, ...]:
        """Find the columns from the first samples that can be read."""
        samples = []
        for position in range(min(_N_FIRST_SAMPLES, self.n_samples)):
            # Foreign code; the error is shown in place of the sample.
            with contextlib.suppress(Exception):
                samples.append(self._access.sample(position))
        if not samples:
            return ()
        has_meta = getattr(iterator, "dataset_meta", None) is not None
        class_names = _class_names_of(iterator)
        is_one_hot = _target_kind_of(iterator) == "one_hot"
        hints: dict[Any, str] = dict(hints_of(iterator))

        columns = []
        for report in columns_of(iterator, samples):
            values = [part_of(sample, report.key) for sample in samples]
            is_class = report.role == "target" or (not has_meta and report.key == "label")
            columns.append(
                _describe_column(
                    report,
                    values,
                    hints.get(report.key),
                    class_names=class_names if is_class else (),
                    is_one_hot=is_class and is_one_hot,
                )
            )
        return tuple(columns)

    def _find_class_column(self) -> int | None:
        """Find the column of classes: the target, or a column with a usual name."""
        plain_columns = self.plain_columns()
        for number in plain_columns:
            if self.columns[number].role == "target":
                return number
        for name in _NAMES_OF_CLASS_COLUMNS:
            for number in plain_columns:
                if name in self.columns[number].name.lower().split("."):
                    return number
        return None

    def _find_caption_column(self) -> int | None:
        """Find the column of classes, or the first text, or the first plain column."""
        if self.class_column is not None:
            return self.class_column
        plain_columns = self.plain_columns()
        for number in plain_columns:
            if self.columns[number].kind == "text":
                return number
        return plain_columns[0] if plain_columns else None

    # ------------------------------------------------------------------ blocks

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield start and stop of consecutive blocks of all rows."""
        for start in range(0, self.n_samples, self._block_rows):
            yield start, min(start + self._block_rows, self.n_samples)

    def sampled_blocks(self) -> Iterator[tuple[int, int]]:
        """Yield start and stop of blocks that are spread over the table.

        The first few of them are spread over the table, too, so that a histogram which is not
        complete yet resembles the complete one.
        """
        if self.is_small:
            yield from self.blocks()
            return
        n_rows = self.n_sampled // _N_SAMPLED_BLOCKS
        last_start = self.n_samples - n_rows
        for number in range(_N_SAMPLED_BLOCKS):
            # Reversing the six bits of 0, 1, 2, 3, … gives 0, 32, 16, 48, …
            place = int(f"{number:06b}"[::-1], 2)
            start = place * last_start // (_N_SAMPLED_BLOCKS - 1)
            yield start, start + n_rows

    def _measure_block(self) -> int:
        """Measure how many rows can be read at once without delaying a page; a power of 2."""
        n_rows = min(_MIN_BLOCK_ROWS, self.n_samples)
        columns = self.plain_columns()
        if not n_rows or not columns:
            return _MAX_BLOCK_ROWS
        # The first reading opens files, and is not measured.
        self._read_rows(columns, 0, n_rows)
        started_at = time.perf_counter()
        self._read_rows(columns, 0, n_rows)
        seconds_of_a_row = (time.perf_counter() - started_at) / n_rows
        fitting_rows = _SECONDS_OF_A_BLOCK / max(seconds_of_a_row, 1e-9)
        n_block_rows = np.clip(fitting_rows, _MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS)
        return 1 << int(np.log2(n_block_rows))

    # ------------------------------------------------------------------ reading

    def read(self, columns: Sequence[int], start: int, stop: int) -> dict[int, Values]:
        """Return plain values of the rows from ``start`` to ``stop``, by the number of the column.

        The values of an unreadable row are missing.
        """
        values: dict[int, Values] = {}
        cached = self._cache.get_many((number, start, stop) for number in columns)
        for (number, _, _), cached_values in cached.items():
            values[number] = cached_values
        missing = [number for number in columns if number not in values]
        if not missing:
            return values

        # The blocks of histograms are kept, those of a search through a large split are not.
        is_block_of_histogram = stop - start <= _MAX_SAMPLED_ROWS // _N_SAMPLED_BLOCKS
        for number, column in zip(missing, self._read_rows(missing, start, stop), strict=True):
            values[number] = plain(column)
            if self.is_small or is_block_of_histogram:
                self._cache.put((number, start, stop), values[number])
        return values

    def read_columns(
        self, columns: Sequence[int], positions: npt.NDArray[np.intp]
    ) -> list[ColumnArray]:
        """Return unconverted columns, shape ``(len(positions), ...)`` each.

        Errors of the iterator pass through.
        """
        keys = []
        for number in columns:
            key = self.columns[number].key
            if key is not None:
                keys.append(key)
        with self._lock:
            if keys:
                return self._access.columns(keys, positions)
            # Bare samples are one column without a key.
            return [np.asarray(self._access.batch(positions))]

    def read_sample(self, position: int) -> tuple[Any, str | None]:
        """Return one sample, and the place where it is stored.

        Errors of the iterator pass through.
        """
        with self._lock:
            return self._access.sample(position), self._access.locate(position)

    def _read_rows(self, columns: Sequence[int], start: int, stop: int) -> list[ColumnArray]:
        """Read consecutive rows.

        If that fails, the halves are read, and so on, so that all readable rows are returned. The
        values of an unreadable row are None.
        """
        try:
            return self.read_columns(columns, np.arange(start, stop, dtype=np.intp))
        except Exception:  # noqa: BLE001  # foreign code
            if stop - start == 1:
                return [stack_values([None]) for _ in columns]
        middle = (start + stop) // 2
        first_half = self._read_rows(columns, start, middle)
        second_half = self._read_rows(columns, middle, stop)
        return [join_columns(halves) for halves in zip(first_half, second_half, strict=True)]


def _target_kind_of(iterator: DatasetIteratorIF) -> str | None:
    return getattr(getattr(iterator, "dataset_meta", None), "target_kind", None)


def _class_names_of(iterator: DatasetIteratorIF) -> tuple[str, ...]:
    """Return the names of the classes as they are shown; none if they are the numbers themselves.

    The text that one filters by must be the one that one sees.
    """
    meta = getattr(iterator, "dataset_meta", None)
    names = getattr(meta, "class_names", None) or getattr(iterator, "class_names", None) or ()
    is_one_hot = _target_kind_of(iterator) == "one_hot"
    if not is_one_hot and any(isinstance(name, int) for name in names):
        return ()
    return tuple(readable(name) for name in names)


def _describe_column(
    report: ColumnReport,
    values: Sequence[Any],
    hint: str | None,
    *,
    class_names: tuple[str, ...],
    is_one_hot: bool,
) -> BrowsedColumn:
    """Decide how a column is shown, by its first values."""
    is_plain = is_one_hot or all(is_plain_value(value) for value in values)
    shown_values = [to_display_value(value, hint) for value in values]
    present = [shown for shown in shown_values if shown.kind != "missing"]
    kind: Kind = present[0].kind if present else "missing"
    return BrowsedColumn(
        key=report.key,
        name=readable(_name_of(report)),
        role=report.role,
        dtype=report.dtype,
        shape=report.shape,
        kind=kind,
        is_plain=is_plain,
        has_picture=not is_plain and any(shown.is_picture for shown in present),
        hint=hint,
        class_names=class_names,
    )


def _name_of(report: ColumnReport) -> str:
    if report.name is not None:
        return report.name
    if report.key is None:
        return "value"
    if isinstance(report.key, int):
        return f"column {report.key}"
    return report.key
