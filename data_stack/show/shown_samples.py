"""Shows samples on a page: pictures side by side if each sample has one, otherwise a table."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.show.column_report import ColumnReport
from data_stack.show.display_value import DisplayValue, shorten, span_of, to_display_value
from data_stack.show.embedded_media import embed_picture, embed_player
from data_stack.show.markup import Block, Gallery, Rich, Table
from data_stack.show.sample_parts import label_text, overlays_of, part_of

#: Reading stops after this time, so that a page appears.
_MAX_SECONDS = 1.0

#: Further columns are not shown.
_MAX_COLUMNS = 12

#: The maximum number of characters of a cell of the table.
_MAX_CELL_CHARACTERS = 240

#: The maximum number of characters of a line below a picture.
_MAX_CAPTION_CHARACTERS = 40

#: The maximum number of lines below a picture that show other columns than the target.
_MAX_CAPTIONS = 3


@dataclass(frozen=True, slots=True)
class ReadSample:
    """A sample of an iterator, or why it cannot be read.

    Attributes:
        position: the position of the sample in the iterator.
        sample: the sample; None if it cannot be read.
        error: why the sample cannot be read; empty if it was read.
    """

    position: int
    sample: Any
    error: str = ""


def read_spread_samples(iterator: Any, n_samples: int) -> list[ReadSample]:
    """Read samples that are spread over the iterator, for a second at most.

    If the source is read in blocks, they are spread over its first block. Samples that cannot be
    read are part of the result.
    """
    n_reachable = _n_samples_at_hand(iterator)
    last_position = max(0, n_reachable - 1)
    positions = np.linspace(0, last_position, min(n_samples, n_reachable)).astype(np.int64)

    samples: list[ReadSample] = []
    started_at = time.perf_counter()
    for position in dict.fromkeys(positions.tolist()):
        try:
            samples.append(ReadSample(position, iterator[position]))
        except Exception as error:  # noqa: BLE001  # foreign code, damaged files
            samples.append(ReadSample(position, None, error_text(error)))
        if time.perf_counter() - started_at > _MAX_SECONDS:
            break
    return samples


def error_text(error: Exception) -> str:
    """Return the type and the message of an error. Never raises."""
    # The message is made by foreign code.
    with contextlib.suppress(Exception):
        return f"{type(error).__name__}: {shorten(str(error))}"
    return type(error).__name__


def _n_samples_at_hand(iterator: Any) -> int:
    """Return the number of samples that can be read without reading a second block."""
    block_lengths = access_to(iterator).blocks()
    if block_lengths is None:
        return len(iterator)
    for length in block_lengths.tolist():
        if length:
            return int(length)
    return 0


@dataclass(frozen=True)
class ShownSamples:
    """Samples on a page.

    Args:
        samples: the samples to show; of those that cannot be read, the errors are shown.
        columns: the columns of the samples; empty if none was read.
        target_key: the key of the target column; None without targets.
        class_names: the names of the targets' classes; None if unknown.
        hints: the kinds of columns in the meta, by key.
        n_bytes: maximum size of all pictures and sounds together.
    """

    samples: Sequence[ReadSample]
    columns: Sequence[ColumnReport]
    target_key: Any
    class_names: Sequence[Any] | None
    hints: Mapping[Any, str]
    n_bytes: int

    def blocks(self) -> list[Block]:
        """Return a gallery if the samples have exactly one picture, otherwise a table."""
        if not self.samples:
            return []
        if len(self._picture_keys) == 1:
            return [self._gallery(self._picture_keys[0])]
        return [self._table()]

    @cached_property
    def _values(self) -> list[dict[Any, DisplayValue]]:
        """The values of each sample by key; empty for a sample that cannot be read."""
        return [self._values_of(sample) for sample in self.samples]

    def _values_of(self, sample: ReadSample) -> dict[Any, DisplayValue]:
        if sample.error:
            return {}
        values = {}
        for key in self._keys:
            values[key] = to_display_value(part_of(sample.sample, key), self.hints.get(key))
        return values

    @cached_property
    def _shown_columns(self) -> Sequence[ColumnReport]:
        return self.columns[:_MAX_COLUMNS]

    @cached_property
    def _keys(self) -> list[Any]:
        return [column.key for column in self._shown_columns]

    @cached_property
    def _picture_keys(self) -> list[Any]:
        """The columns of pictures and sounds.

        Masks and boxes are drawn over an image where there is one, instead of beside it.
        """
        keys = [key for key in self._keys if self._has_pictures(key)]
        if not any(self._images_of(key) for key in keys):
            return keys
        return [key for key in keys if not self.hints.get(key, "").startswith(("mask", "boxes"))]

    def _has_pictures(self, key: Any) -> bool:
        return any(values[key].is_picture for values in self._values if values)

    def _images_of(self, key: Any) -> list[Any]:
        """Return the arrays of the column's images."""
        column = [values[key] for values in self._values if values]
        return [value.data for value in column if value.kind == "image"]

    @cached_property
    def _spans(self) -> dict[Any, tuple[float, float]]:
        """The values drawn as black and white, for each column of pictures."""
        return {key: span_of(self._images_of(key)) for key in self._picture_keys}

    @cached_property
    def _n_bytes_of_picture(self) -> int:
        n_pictures = len(self.samples) * len(self._picture_keys)
        return self.n_bytes // max(1, n_pictures)

    def _gallery(self, picture_key: Any) -> Gallery:
        """Return the pictures of the only column of pictures, with captions from the others."""
        tiles: list[tuple[str, Sequence[str]]] = []
        for sample, values in zip(self.samples, self._values, strict=True):
            picture = sample.error or self._cell(sample, values[picture_key], picture_key)
            tiles.append((picture, self._captions(sample, values, picture_key)))
        return Gallery(tiles)

    def _table(self) -> Table:
        """Return a row for each sample, and a column for each of its columns."""
        names = [_name_of(column) for column in self._shown_columns]
        rows = []
        for sample, values in zip(self.samples, self._values, strict=True):
            if sample.error:
                cells = [sample.error] + [""] * (len(self._keys) - 1)
            else:
                cells = [self._cell(sample, values[key], key) for key in self._keys]
            rows.append([f"#{sample.position:,}", *cells])

        # The first column of the table is the position.
        numbers = set()
        for index, key in enumerate(self._keys, start=1):
            kinds = {values[key].kind for values in self._values if values}
            if kinds <= {"number", "missing"}:
                numbers.add(index)
        if not names:
            # No sample was read: one column without a name holds the errors.
            names = [""]
        return Table(["", *names], rows, frozenset(numbers))

    def _cell(self, sample: ReadSample, value: DisplayValue, key: Any) -> str:
        """Return a value as a picture, a player or text, or why it cannot be shown."""
        try:
            if value.kind == "audio":
                return embed_player(value, self._n_bytes_of_picture)
            if value.is_picture:
                overlays: Mapping[str, Any] = {}
                if value.kind == "image" and key in self._picture_keys:
                    overlays = overlays_of(sample.sample, self.hints)
                span = self._spans.get(key)
                return embed_picture(value, self._n_bytes_of_picture, span, overlays)
            if value.kind == "missing":
                return "missing"
            return shorten(value.data, _MAX_CELL_CHARACTERS)
        except Exception as error:  # noqa: BLE001  # foreign values
            return error_text(error)

    def _captions(
        self, sample: ReadSample, values: Mapping[Any, DisplayValue], picture_key: Any
    ) -> list[str]:
        """Return the target, the position, and up to three texts and numbers of other columns."""
        captions: list[str] = []
        has_target = self.target_key in values and self.target_key != picture_key
        if has_target and not values[self.target_key].is_picture:
            label = label_text(part_of(sample.sample, self.target_key), self.class_names)
            captions.append(Rich(label, f"<b>{html.escape(label)}</b>"))
        captions.append(f"#{sample.position:,}")

        others = []
        for column in self.columns:
            key = column.key
            if key not in values or key in (picture_key, self.target_key) or column.role == "tag":
                continue
            if values[key].kind in ("text", "number"):
                text = shorten(values[key].data, _MAX_CAPTION_CHARACTERS)
                others.append(f"{column.name or key} {text}")
        return captions + others[:_MAX_CAPTIONS]


def _name_of(column: ColumnReport) -> str:
    """Return the name of a column; empty for bare samples."""
    if column.key is None:
        return ""
    return str(column.name or column.key)
