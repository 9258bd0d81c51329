"""Answers the requests of the pages."""

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
from data_stack.browse.table import Table
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.reproduce.duplicates import find_duplicates
from data_stack.show.display_value import shorten
from data_stack.show.markup import printable, readable
from data_stack.show.sample_parts import label_text, overlays_of

_MAX_SAMPLES: Final = 200
_MAX_COLUMNS: Final = 500
_HISTOGRAM_SECONDS: Final = 0.5
_CELL_CHARACTERS: Final = 160
_MAX_CHARACTERS: Final = 20_000
#: Pixels of pictures, in the grid and alone.
_SMALL_PIXELS: Final = 192 * 192
_LARGE_PIXELS: Final = 1024 * 1024


class Browser:
    """Splits side by side. Methods return plain JSON data, or the bytes of a picture.

    Args:
        title: of the pages.
        splits: iterators by name. They are not closed.
        facts: names and values to show, such as the license of the dataset.
    """

    _title: str
    _splits: dict[str, DatasetIteratorIF]
    _facts: dict[str, str]

    #: The names of the splits, by which their numbers in requests are told.
    _names: list[str]

    #: Held while the attributes below change: each request has a thread.
    _lock: threading.Lock

    #: The latest searches by split and conditions, the oldest first.
    _searches: OrderedDict[tuple[int, tuple[Condition, ...]], Search]

    #: The states of the searches for duplicates, by column.
    _audits: dict[int, dict[str, Any]]

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
        self._audits = {}
        self._run = secrets.token_hex(6)
        self._tables = {}

    def _table(self, split: int) -> Table:
        if not 0 <= split < len(self._names):
            raise ConfigError(
                f"split {split} is out of range: the dataset has {len(self._names)} splits"
            )
        with self._lock:  # opened once
            if split not in self._tables:
                self._tables[split] = Table(self._splits[self._names[split]])
            return self._tables[split]

    def _table_with(self, split: int, position: int) -> Table:
        table = self._table(split)
        if not 0 <= position < table.n_samples:
            raise DatasetOutOfBoundsError(
                f"sample {position} is out of range: the split has {table.n_samples} samples"
            )
        return table

    def overview(self) -> dict[str, Any]:
        """Title, facts, and the splits with their columns; a split that cannot be opened has the error instead."""
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
                facts["error"] = _message(error)
            splits.append(facts)
        return {"title": self._title, "facts": self._facts, "run": self._run, "splits": splits}

    # ------------------------------------------------------------------ samples

    def samples(self, split: int, start: int, where: str = "", count: int = 60) -> dict[str, Any]:
        """``count`` samples that fulfil ``where``, from the ``start``-th on, with short texts of their values.

        Searches for a fraction of a second if fewer are known; ask again until ``is_complete``.
        """
        if start < 0 or not 0 <= count <= _MAX_SAMPLES:
            raise ConfigError(
                f"start must be at least 0 and count 0 to {_MAX_SAMPLES}, got {start} and {count}"
            )
        table = self._table(split)
        search = self._search(split, where)
        if not search.is_complete:
            search.advance(0.3, None if count == 0 else start + count)
        positions = search.positions(start, count)
        return {
            "start": start,
            "n_found": search.n_found,
            "n_scanned": search.n_scanned,
            "is_complete": search.is_complete,
            "samples": self._cells(table, positions),
        }

    def _search(self, split: int, where: str) -> Search:
        table = self._table(split)
        key = (split, parse_conditions(where, table))
        with self._lock:
            search = self._searches.pop(key, None) or Search(table, key[1])
            self._searches[key] = search
            while len(self._searches) > 8:
                self._searches.popitem(last=False)
        return search

    def _cells(self, table: Table, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Positions and texts of samples; the text of a picture is None."""
        n_columns = min(len(table.columns), 40)
        shown = [number for number in range(n_columns) if not table.columns[number].has_picture]
        if not positions or not shown:
            return [{"position": position, "cells": [None] * n_columns} for position in positions]
        try:
            columns = table.read_columns(shown, np.asarray(positions, dtype=np.intp))
        except Exception as error:  # noqa: BLE001  # foreign code; the page shows the error in place of the sample
            if len(positions) == 1:
                return [{"position": positions[0], "error": _message(error)}]
            return [cells for position in positions for cells in self._cells(table, [position])]
        texts = {
            number: [_cell_text(value, table.columns[number].class_names) for value in column]
            for number, column in zip(shown, columns, strict=True)
        }
        pictures: list[None] = [None] * len(positions)
        rows = zip(*(texts.get(number, pictures) for number in range(n_columns)), strict=True)
        return [
            {"position": position, "cells": row}
            for position, row in zip(positions, rows, strict=True)
        ]

    def sample(self, split: int, position: int) -> dict[str, Any]:
        """One sample in full."""
        table = self._table_with(split, position)
        found: dict[str, Any] = {"position": position, "where": None, "fields": []}
        try:
            sample, found["where"] = table.read_sample(position)
        except Exception as error:  # noqa: BLE001  # as above
            return {**found, "error": _message(error)}
        for number, column in enumerate(table.columns[:_MAX_COLUMNS]):
            field = {"column": number, "name": column.name, "role": column.role}
            try:
                value = sample if column.key is None else sample[column.key]
                field |= {
                    "text": _full_text(value, column.class_names),
                    "has_picture": column.has_picture,
                }
            except Exception as error:  # noqa: BLE001  # as above
                field["error"] = _message(error)
            found["fields"].append(field)
        return found

    def picture(self, split: int, position: int, column: int, size: str = "small") -> bytes:
        """A value as PNG; errors of the iterator pass through.

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
        value, *overlay_values = (block[0] for block in blocks)
        overlays = overlays_of(dict(zip(hints, overlay_values, strict=True)), hints)
        max_pixels = _LARGE_PIXELS if size == "large" else _SMALL_PIXELS
        hint = table.columns[column].hint
        return as_png(value, max_pixels=max_pixels, hint=hint, **overlays)

    # ------------------------------------------------------------------ columns

    def histograms(
        self, split: int, where: str = "", columns: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Bars of columns; ask again until ``is_complete``, or until ``n_read`` stays the same."""
        table = self._table(split)
        wanted, plain = list(dict.fromkeys(columns)), table.plain_columns()
        for number in wanted:
            _check_column(number, plain)
        return {
            **histograms(table, wanted, parse_conditions(where, table), _HISTOGRAM_SECONDS),
            "n_samples": table.n_samples,
        }

    def compare(self, name: str = "") -> dict[str, Any]:
        """Bars of the column ``name``, with counts of each split."""
        return compare(
            [self._table(number) for number in range(len(self._names))], name, _HISTOGRAM_SECONDS
        )

    def duplicates(self, column: int = -1, run: int = 0) -> dict[str, Any]:
        """The state and the results of the search for equal samples within and between the splits.

        Args:
            column: number of the column to compare, in the first split; -1 for whole samples.
            run: 1 starts the search, in a thread that reads all samples once.
        """
        tables = [self._table(number) for number in range(len(self._names))]
        n_samples = sum(table.n_samples for table in tables)
        if n_samples > 1_000_000:
            return {"state": "too many", "n_samples": n_samples}
        _check_column(column, range(-1, len(tables[0].columns)))
        with self._lock:
            if column not in self._audits and run:
                self._audits[column] = {"state": "running", "n_samples": n_samples}
                key = None if column < 0 else tables[0].columns[column].key
                threading.Thread(target=self._compare, args=(column, key), daemon=True).start()
            return self._audits.get(column, {"state": "none", "n_samples": n_samples})

    def _compare(self, column: int, key: Any) -> None:
        try:
            found = find_duplicates(self._splits, key, max_positions=48)
            self._audits[column] = {**self._audits[column], **found.to_dict(), "state": "done"}
        except Exception as error:  # noqa: BLE001  # foreign code
            self._audits[column] = {
                **self._audits[column],
                "state": "failed",
                "error": _message(error),
            }


def _check_column(number: int, known: Container[int]) -> None:
    if number not in known:
        raise ConfigError(f"column {number} does not exist, or has no plain values")


def _message(error: Exception) -> str:
    return readable(f"{type(error).__name__}: {error}", 1000)


def _cell_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """A value as one short line; the name of a class."""
    if class_names:
        return label_text(value, class_names, _CELL_CHARACTERS)
    return shorten(value, _CELL_CHARACTERS)


def _full_text(value: Any, class_names: Sequence[str] = ()) -> str:
    """A value as text of at most 20,000 characters, with line breaks; a class with its name."""
    if isinstance(value, str):
        text = printable(str.__str__(value)[:_MAX_CHARACTERS], keep="\n\t")
        n_more = len(value) - _MAX_CHARACTERS
        if n_more > 0:
            text += f"\n… {n_more:,} more characters"
        return text
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcMm" and value.ndim:
        shape = " × ".join(str(size) for size in value.shape)
        return f"{value.dtype} {shape}\n{np.array2string(value, threshold=400)}"
    text = shorten(value, _MAX_CHARACTERS)
    name = _cell_text(value, class_names)
    if class_names and name != text:
        return f"{name} ({text})"
    return text
