"""Answers the requests of the pages that show a dataset."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from data_stack.browse.conditions import Condition, parse_conditions
from data_stack.browse.histograms import compare, histograms
from data_stack.browse.search import Search
from data_stack.browse.table import BrowsedColumn, Table
from data_stack.browse.texts import cell_text, error_text, full_text
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.reproduce.duplicates import find_duplicates
from data_stack.show.sample_parts import overlays_of

#: A page asks for at most this many samples at a time.
_MAX_SAMPLES: Final = 200

#: The page of a sample shows at most this many columns.
_MAX_COLUMNS: Final = 500

#: The grid of samples shows at most this many columns.
_MAX_GRID_COLUMNS: Final = 40

#: A request searches for samples for about this time; then the page asks again.
_SEARCH_SECONDS: Final = 0.3

#: A request reads samples for a histogram for about this time; then the page asks again.
_HISTOGRAM_SECONDS: Final = 0.5

#: The latest searches that are kept, so that the next page of one continues it.
_MAX_SEARCHES: Final = 8

#: Splits of more samples in all are not searched for duplicates.
_MAX_COMPARED_SAMPLES: Final = 1_000_000

#: The page of duplicates shows the positions of at most this many samples of each split or pair.
_MAX_DUPLICATE_POSITIONS: Final = 48

#: The maximum number of pixels of a picture in the grid of samples.
_SMALL_PIXELS: Final = 192 * 192

#: The maximum number of pixels of a picture on the page of its sample.
_LARGE_PIXELS: Final = 1024 * 1024


class Browser:
    """The splits of a dataset, as its pages show them.

    The public methods answer requests: they return plain JSON data, or the bytes of a picture.

    Args:
        title: the title of the pages.
        splits: iterators by name. They are not closed.
        facts: the names and values to show, such as the license of the dataset.
    """

    _title: str
    _splits: dict[str, DatasetIteratorIF]
    _facts: dict[str, str]

    #: The names of the splits; a request gives the number of a split, its place here.
    _names: list[str]

    #: Held while searches and tables are opened: each request has a thread.
    _lock: threading.Lock

    #: The latest searches by split and conditions, the oldest first.
    _searches: OrderedDict[tuple[int, tuple[Condition, ...]], Search]

    #: The answers about the searches for duplicates, by column; -1 for whole samples.
    _duplicates: dict[int, dict[str, Any]]

    #: Identifies this run in the URLs of pictures.
    _run: str

    #: The opened splits by number.
    _tables: dict[int, Table]

    def __init__(
        self,
        title: str,
        splits: Mapping[str, DatasetIteratorIF],
        facts: Mapping[str, str] | None = None,
    ) -> None:
        self._title = title
        self._splits = dict(splits)
        self._facts = dict(facts or {})
        self._names = list(self._splits)
        self._lock = threading.Lock()
        self._searches = OrderedDict()
        self._duplicates = {}
        self._run = secrets.token_hex(6)
        self._tables = {}

    def overview(self) -> dict[str, Any]:
        """Return title, facts, and the splits with their columns.

        A split that cannot be opened has the error instead.
        """
        splits = []
        for number, name in enumerate(self._names):
            facts: dict[str, Any] = {"name": name, "n_samples": 0, "columns": []}
            try:
                table = self._table(number)
                facts["n_samples"] = table.n_samples
                facts["class_column"] = table.class_column
                facts["caption_column"] = table.caption_column
                facts["columns"] = [asdict(column) for column in table.columns[:_MAX_COLUMNS]]
            except Exception as error:  # noqa: BLE001  # foreign code; the other splits are shown
                facts["error"] = error_text(error)
            splits.append(facts)
        return {"title": self._title, "facts": self._facts, "run": self._run, "splits": splits}

    # ------------------------------------------------------------------ samples

    def samples(self, split: int, start: int, where: str = "", count: int = 60) -> dict[str, Any]:
        """Return the samples that fulfil conditions, with short texts of their values.

        If fewer than ``count`` are known, the search goes on for a fraction of a second. Then the
        answer may have fewer; ask again until ``is_complete``.

        Args:
            split: the number of the split.
            start: how many of the found samples to skip.
            where: the conditions as JSON text.
            count: the maximum number of samples.
        """
        if start < 0 or not 0 <= count <= _MAX_SAMPLES:
            raise ConfigError(
                f"start must be at least 0 and count 0 to {_MAX_SAMPLES}, got {start} and {count}"
            )
        table = self._table(split)
        search = self._search(split, where)
        if not search.is_complete:
            # With count=0 the page asks for the number of all samples that fulfil the conditions.
            n_wanted = None
            if count > 0:
                n_wanted = start + count
            search.advance(_SEARCH_SECONDS, n_wanted)
        positions = search.positions(start, count)
        return {
            "start": start,
            "n_found": search.n_found,
            "n_scanned": search.n_scanned,
            "is_complete": search.is_complete,
            "samples": _read_grid(table, positions),
        }

    def sample(self, split: int, position: int) -> dict[str, Any]:
        """Return one sample in full: where it is stored, and the text of each field."""
        table = self._table_with(split, position)
        answer: dict[str, Any] = {"position": position, "where": None, "fields": []}
        try:
            sample, answer["where"] = table.read_sample(position)
        except Exception as error:  # noqa: BLE001  # foreign code; the page shows the error
            answer["error"] = error_text(error)
            return answer
        for number, column in enumerate(table.columns[:_MAX_COLUMNS]):
            answer["fields"].append(_show_field(number, column, sample))
        return answer

    def picture(self, split: int, position: int, column: int, size: str = "small") -> bytes:
        """Return a value as PNG; errors of the iterator pass through.

        Raises:
            ConfigError: the column does not exist, or the value cannot be drawn.
        """
        from data_stack.show.pictures import as_png  # needs Pillow

        table = self._table_with(split, position)
        _check_column(column, range(len(table.columns)))
        # Boxes and masks are drawn over images.
        hints: dict[int, str] = {}
        if table.columns[column].kind == "image":
            for number, other_column in enumerate(table.columns):
                if other_column.kind in ("boxes", "mask"):
                    hints[number] = str(other_column.hint)
        numbers = [column, *hints]
        blocks = table.read_columns(numbers, np.array([position], dtype=np.intp))
        values = [block[0] for block in blocks]
        value = values[0]
        overlays = overlays_of(dict(zip(hints, values[1:], strict=True)), hints)
        max_pixels = _LARGE_PIXELS if size == "large" else _SMALL_PIXELS
        hint = table.columns[column].hint
        return as_png(value, max_pixels=max_pixels, hint=hint, **overlays)

    # ------------------------------------------------------------------ columns

    def histograms(
        self, split: int, where: str = "", columns: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return bars of columns.

        Ask again until ``is_complete``, or until ``n_read`` stays the same.
        """
        table = self._table(split)
        plain_columns = table.plain_columns()
        for number in columns:
            _check_column(number, plain_columns)
        distinct_columns = list(dict.fromkeys(columns))
        conditions = parse_conditions(where, table)
        answer = histograms(table, distinct_columns, conditions, _HISTOGRAM_SECONDS)
        return {**answer, "n_samples": table.n_samples}

    def compare(self, name: str = "") -> dict[str, Any]:
        """Return bars of the column ``name``, with counts of each split."""
        return compare(self._all_tables(), name, _HISTOGRAM_SECONDS)

    def duplicates(self, column: int = -1, run: int = 0) -> dict[str, Any]:
        """Return the state and the results of the search for equal samples.

        Samples are compared within and between the splits.

        Args:
            column: number of the column to compare, in the first split; -1 for whole samples.
            run: 1 starts the search, in a thread that reads all samples once.
        """
        tables = self._all_tables()
        n_samples = sum(table.n_samples for table in tables)
        if n_samples > _MAX_COMPARED_SAMPLES:
            return {"state": "too many", "n_samples": n_samples}
        columns = tables[0].columns
        _check_column(column, range(-1, len(columns)))
        with self._lock:
            if column not in self._duplicates and run:
                self._duplicates[column] = {"state": "running", "n_samples": n_samples}
                key = None if column < 0 else columns[column].key
                arguments = (column, key)
                threading.Thread(target=self._find_duplicates, args=arguments, daemon=True).start()
            return self._duplicates.get(column, {"state": "none", "n_samples": n_samples})

    def _find_duplicates(self, column: int, key: Any) -> None:
        """Search for duplicates, and replace the answer about the running search.

        Args:
            column: number of the column; -1 for whole samples.
            key: the key of the column in a sample; None for whole samples.
        """
        answer = dict(self._duplicates[column])
        try:
            report = find_duplicates(self._splits, key, max_positions=_MAX_DUPLICATE_POSITIONS)
        except Exception as error:  # noqa: BLE001  # foreign code; the page shows the error
            answer["state"] = "failed"
            answer["error"] = error_text(error)
        else:
            answer.update(report.to_dict())
            answer["state"] = "done"
        self._duplicates[column] = answer

    # ------------------------------------------------------------------ tables and searches

    def _table(self, split: int) -> Table:
        """Return a split as a table, which is opened once."""
        if not 0 <= split < len(self._names):
            raise ConfigError(
                f"split {split} is out of range: the dataset has {len(self._names)} splits"
            )
        with self._lock:
            if split not in self._tables:
                self._tables[split] = Table(self._splits[self._names[split]])
            return self._tables[split]

    def _table_with(self, split: int, position: int) -> Table:
        """Return the table of a split that has a sample at a position."""
        table = self._table(split)
        if not 0 <= position < table.n_samples:
            raise DatasetOutOfBoundsError(
                f"sample {position} is out of range: the split has {table.n_samples} samples"
            )
        return table

    def _all_tables(self) -> list[Table]:
        return [self._table(number) for number in range(len(self._names))]

    def _search(self, split: int, where: str) -> Search:
        """Return the search for these conditions, as far as it has come."""
        table = self._table(split)
        conditions = parse_conditions(where, table)
        key = (split, conditions)
        with self._lock:
            if key not in self._searches:
                self._searches[key] = Search(table, conditions)
            self._searches.move_to_end(key)
            while len(self._searches) > _MAX_SEARCHES:
                self._searches.popitem(last=False)
            return self._searches[key]


def _check_column(number: int, valid_numbers: Container[int]) -> None:
    """Check the number of a column in a request.

    Raises:
        ConfigError: the number is not valid.
    """
    if number not in valid_numbers:
        raise ConfigError(f"column {number} does not exist, or has no plain values")


def _read_grid(table: Table, positions: Sequence[int]) -> list[dict[str, Any]]:
    """Return the positions of samples, and short texts of their values; None for pictures."""
    columns = table.columns[:_MAX_GRID_COLUMNS]
    rows: list[list[str | None]] = [[None] * len(columns) for _ in positions]
    with_text = [number for number, column in enumerate(columns) if not column.has_picture]
    if positions and with_text:
        try:
            values = table.read_columns(with_text, np.asarray(positions, dtype=np.intp))
        except Exception as error:  # noqa: BLE001  # foreign code; the page shows the error
            return _read_grid_one_by_one(table, positions, error)
        for number, column_values in zip(with_text, values, strict=True):
            class_names = columns[number].class_names
            for row, value in zip(rows, column_values, strict=True):
                row[number] = cell_text(value, class_names)
    return [
        {"position": position, "cells": row} for position, row in zip(positions, rows, strict=True)
    ]


def _read_grid_one_by_one(
    table: Table, positions: Sequence[int], error: Exception
) -> list[dict[str, Any]]:
    """Return samples that cannot be read together; a damaged one has the error instead of texts."""
    if len(positions) == 1:
        return [{"position": positions[0], "error": error_text(error)}]
    samples: list[dict[str, Any]] = []
    for position in positions:
        samples += _read_grid(table, [position])
    return samples


def _show_field(number: int, column: BrowsedColumn, sample: Any) -> dict[str, Any]:
    """Return a value of a sample with what the page says of its column."""
    field = {"column": number, "name": column.name, "role": column.role}
    try:
        value = sample if column.key is None else sample[column.key]
        field["text"] = full_text(value, column.class_names)
        field["has_picture"] = column.has_picture
    except Exception as error:  # noqa: BLE001  # foreign code; the page shows the error
        field["error"] = error_text(error)
    return field
