"""Reads the columns of a split block by block, in little memory."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import Column, DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.show.column_report import columns_of
from data_stack.show.display_value import Kind, to_display_value
from data_stack.show.markup import readable
from data_stack.show.sample_parts import hints_of, part_of
from data_stack.show.target_distribution import plain_value
from data_stack.util.byte_cache import ByteCache
from data_stack.values.missing import is_missing, is_null, present_values
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import join_columns

Values = npt.NDArray[Any]
"""Plain values of a column, shape ``(n,)``: numbers, times, or objects (str or None)."""

#: Histograms count at most this many rows of a split.
_MAX_ROWS: Final = 1 << 16
_N_STRETCHES: Final = 64
_MIN_BLOCK, _MAX_BLOCK = 16, 1 << 13
_TRUTHS: Final = {"True": 1, "False": 0}


@dataclass(frozen=True)
class BrowsedColumn:
    """A column of a split.

    Attributes:
        key: position or key in a sample; None of bare samples.
        name: shown on the page.
        role: ``"sample"``, ``"target"`` or ``"tag"`` in the meta, or None.
        dtype: of its values, as text.
        shape: of a value; None if it varies.
        kind: how its values are shown.
        is_plain: whether its values are single numbers, times or texts; only these can be filtered.
        has_picture: whether its values are shown as pictures.
        hint: its kind in the meta, see :func:`~data_stack.show.pictures.kind_of_value`.
        class_names: names of the values 0, 1 …; may be empty.
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
        iterator: the samples; the caller closes it.

    Attributes:
        n_samples: number of samples.
        is_small: whether histograms count all samples.
        n_sampled: number of samples that histograms count.
        columns: of the samples; empty if no sample can be read.
        class_column: number of the column of classes; None if there is none.
        caption_column: number of the column that best describes a sample in a few words; None without plain columns.
    """

    def __init__(self, iterator: DatasetIteratorIF) -> None:
        self._access = access_to(iterator)
        self.n_samples = self._access.n_samples
        self._lock = threading.RLock()  # not every iterator is thread-safe
        self._cache: ByteCache[tuple[int, int, int], Values] = ByteCache(48 << 20, _size_of)
        self.columns = self._look_at(iterator)
        self.class_column = self._find_class_column()
        texts_first = sorted(
            self.plain_columns(), key=lambda number: self.columns[number].kind != "text"
        )
        self.caption_column = (
            next(iter(texts_first), None) if self.class_column is None else self.class_column
        )
        self._block, self.is_small = self._measure_block(), self.n_samples <= _MAX_ROWS
        self.n_sampled = (
            self.n_samples
            if self.is_small
            else _N_STRETCHES * min(self._block, _MAX_ROWS // _N_STRETCHES)
        )

    def _look_at(self, iterator: DatasetIteratorIF) -> tuple[BrowsedColumn, ...]:
        """Find the columns from the first samples that can be read."""
        samples = []
        for position in range(min(8, self.n_samples)):
            with contextlib.suppress(
                Exception
            ):  # foreign code; the error is shown in place of the sample
                samples.append(self._access.sample(position))
        if not samples:
            return ()
        meta = getattr(iterator, "dataset_meta", None)
        reports = columns_of(iterator, samples)
        classes = getattr(meta, "class_names", None) or getattr(iterator, "class_names", None) or ()
        kind = getattr(meta, "target_kind", None)
        if kind != "one_hot" and any(isinstance(name, int) for name in classes):
            classes = ()  # the numbers are the names
        found, hints = list[BrowsedColumn](), dict[Any, str](hints_of(iterator))
        for report in reports:
            values, hint = (
                [part_of(sample, report.key) for sample in samples],
                hints.get(report.key),
            )
            looks = [
                look
                for look in (to_display_value(value, hint) for value in values)
                if look.kind != "missing"
            ]
            is_class = report.role == "target" or (meta is None and report.key == "label")
            is_plain = (is_class and kind == "one_hot") or all(map(_is_plain, values))
            unnamed = (
                "value"
                if report.key is None
                else f"column {report.key}"
                if isinstance(report.key, int)
                else report.key
            )
            name = readable(unnamed if report.name is None else report.name)
            shown: Kind = looks[0].kind if looks else "missing"
            has_picture = not is_plain and any(look.is_picture for look in looks)
            # as they are shown, so that the text that one filters by is the one that one sees
            names = tuple(readable(class_name) for class_name in classes) if is_class else ()
            about = (
                report.role,
                report.dtype,
                report.shape,
                shown,
                is_plain,
                has_picture,
                hint,
                names,
            )
            found.append(BrowsedColumn(report.key, name, *about))
        return tuple(found)

    def _find_class_column(self) -> int | None:
        """Find the column of classes: the target, or a column with a usual name."""
        plain = self.plain_columns()
        targets = [number for number in plain if self.columns[number].role == "target"]
        words = {number: self.columns[number].name.lower().split(".") for number in plain}
        names = ("label", "class", "target", "y", "category", "cls")
        usual = [number for name in names for number in plain if name in words[number]]
        return next(iter([*targets, *usual]), None)

    def _measure_block(self) -> int:
        """Measure how many rows can be read at once without delaying a page."""
        rows, numbers = min(_MIN_BLOCK, self.n_samples), self.plain_columns()
        if not rows or not numbers:
            return _MAX_BLOCK
        self._read_rows(numbers, 0, rows)  # opens files
        started = time.perf_counter()
        self._read_rows(numbers, 0, rows)
        seconds_a_row = (time.perf_counter() - started) / rows
        return 1 << int(np.log2(np.clip(0.03 / max(seconds_a_row, 1e-9), _MIN_BLOCK, _MAX_BLOCK)))

    def plain_columns(self) -> list[int]:
        """The numbers of the columns that can be filtered."""
        return [number for number, column in enumerate(self.columns) if column.is_plain]

    # ------------------------------------------------------------------ blocks

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Start and stop of consecutive blocks of all rows."""
        for start in range(0, self.n_samples, self._block):
            yield start, min(start + self._block, self.n_samples)

    def sampled_blocks(self) -> Iterator[tuple[int, int]]:
        """Start and stop of representative blocks, in an order whose beginning is representative, too."""
        if self.is_small:
            yield from self.blocks()
            return
        rows = self.n_sampled // _N_STRETCHES
        for number in range(_N_STRETCHES):
            # bit-reversed order; the last block ends with the table
            start = int(f"{number:06b}"[::-1], 2) * (self.n_samples - rows) // (_N_STRETCHES - 1)
            yield start, start + rows

    def read(self, columns: Sequence[int], start: int, stop: int) -> dict[int, Values]:
        """Plain values of the rows from ``start`` to ``stop``; the values of an unreadable row are missing."""
        keeps = stop - start <= _MAX_ROWS // _N_STRETCHES or self.is_small
        known = self._cache.get_many((number, start, stop) for number in columns)
        values = {number: read for (number, _, _), read in known.items()}
        missing = [number for number in columns if number not in values]
        if missing:
            for number, column in zip(missing, self._read_rows(missing, start, stop), strict=True):
                values[number] = plain(column)
                if keeps:
                    self._cache.put((number, start, stop), values[number])
        return values

    def _read_rows(self, columns: Sequence[int], start: int, stop: int) -> list[Column]:
        try:
            return self.read_columns(columns, np.arange(start, stop, dtype=np.intp))
        except Exception:  # noqa: BLE001  # foreign code: one damaged sample must not hide the others
            if stop - start == 1:
                return [stack_values([None]) for _ in columns]
        middle = (start + stop) // 2
        halves = zip(
            self._read_rows(columns, start, middle),
            self._read_rows(columns, middle, stop),
            strict=True,
        )
        return [join_columns(pieces) for pieces in halves]

    def read_columns(self, columns: Sequence[int], positions: npt.NDArray[np.intp]) -> list[Column]:
        """Unconverted columns, shape ``(len(positions), ...)`` each; errors of the iterator pass through."""
        keys = [key for number in columns if (key := self.columns[number].key) is not None]
        with self._lock:
            return (
                self._access.columns(keys, positions)
                if keys
                else [np.asarray(self._access.batch(positions))]
            )

    def read_sample(self, position: int) -> tuple[Any, str | None]:
        """One sample, and the place where it is stored; errors of the iterator pass through."""
        with self._lock:
            return self._access.sample(position), self._access.locate(position)


def _is_plain(value: Any) -> bool:
    if is_null(value) or isinstance(
        value, (str, bool, int, float, datetime.date, np.datetime64, np.timedelta64)
    ):
        return True
    dtype = getattr(value, "dtype", None)
    return getattr(value, "shape", None) in ((), (1,)) and getattr(dtype, "kind", "") in "biufMmUST"


def plain(column: Column) -> Values:
    """A column as numbers, times, or texts with None.

    One-hot vectors become the positions of their ones, times have microseconds, and durations become seconds.
    """
    if column.ndim > 1:
        column = (
            column.argmax(axis=1) if column.shape[1] > 1 else column.reshape(len(column), -1)[:, 0]
        )
    if column.dtype.kind == "M":
        return column.astype("M8[us]")
    if column.dtype.kind == "m" and np.datetime_data(column.dtype)[0] not in ("Y", "M", "generic"):
        return column / np.timedelta64(1, "s")
    if column.dtype.kind in "biuf":
        return column
    values = column.tolist()
    if str not in set(map(type, values)):
        present, missing = present_values(column)
        if present.ndim == 1 and present.dtype.kind in "biufMm":
            dtype = (
                present.dtype
                if present.dtype.kind in "fMm" or not missing.any()
                else np.dtype(np.float64)
            )
            found = np.full(
                len(column),
                "NaT" if dtype.kind in "Mm" else np.nan if dtype.kind == "f" else 0,
                dtype,
            )
            found[~missing] = present
            if (
                found[~missing].astype(present.dtype) == present
            ).all():  # else integers beyond 2**53 next to missing values
                return plain(found)
    texts = np.empty(len(values), dtype=object)
    texts[:] = [
        value if type(value) is str else None if is_missing(value) else str(plain_value(value))
        for value in values
    ]
    return texts


def number_of(text: str) -> float:
    """Parse a number such as ``"7"``, ``"-0.5"`` or ``"True"``; NaN for other texts."""
    try:
        number = (
            _TRUTHS[text]
            if text in _TRUTHS
            else int(text)
            if text.lstrip("-").isdigit()
            else float(text)
        )
        return (
            number if -(1 << 63) <= number < 1 << 64 else float(text)
        )  # numpy compares with integers of at most 64 bits
    except ValueError:
        return float("nan")


def _size_of(values: Values) -> int:
    return values.nbytes if values.dtype != object else len(values) * 100
