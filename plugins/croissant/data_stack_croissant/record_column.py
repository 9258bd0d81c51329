"""A field of a record set, and the conversion of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import Field
from data_stack_croissant.patterns import rewrite_texts
from data_stack_croissant.values import (
    UNFIT,
    bounding_box,
    cast_value,
    text_of,
    transform_value,
)

#: Data types whose values are whole files.
MEDIA: Final = ("ImageObject", "AudioObject", "VideoObject")

#: A key with this beginning names a property of a file, such as ``"file:filename"``.
FILE_PREFIX: Final = "file:"
#: A key with this beginning is a path into a JSON file, such as ``"json:$.a[*]"``.
JSON_PREFIX: Final = "json:"


@dataclass(frozen=True)
class ValueSource:
    """Where the values of a field are.

    Attributes:
        table: the identifier of the FileObject, FileSet or record set with the values; None if the
            document itself has one value for all rows.
        key: the key of the values in a row of the table. It is the name of a column, ``"file:…"``
            with a property of the file, ``"json:…"`` with a path, or the identifier of a field of a
            record set.
        transforms: mlcroissant's transforms of the values, in their order.
    """

    table: str | None = None
    key: str = ""
    transforms: tuple[Any, ...] = ()


@dataclass(frozen=True)
class RecordColumn:
    """A field of a record set.

    Attributes:
        identifier: the identifier of the field.
        source: where the values of the field are.
        value: the value of all rows, if the source has no table.
        field: the field of the Parquet file in which the values are stored. Media are bytes there.
        dtype: dtype of the values, or of the elements of arrays and lists.
        depth: depth of nested lists, if fields around this one are repeated; else 0.
        kind: the data type that the document declares, such as ``"ImageObject"``.
        where: the record set and the field, for messages.
    """

    identifier: str
    source: ValueSource
    value: Any
    field: Field
    dtype: np.dtype[Any]
    depth: int
    kind: str
    where: str

    @property
    def table(self) -> str | None:
        """The table of the source."""
        return self.source.table

    @property
    def key(self) -> str:
        """The key of the source."""
        return self.source.key

    @property
    def transforms(self) -> tuple[Any, ...]:
        """The transforms of the source."""
        return self.source.transforms

    @property
    def reads_files(self) -> bool:
        """Whether the values are bytes, such as whole files."""
        return self.key == f"{FILE_PREFIX}content" or self.dtype.kind == "S"

    def convert(
        self, values: Sequence[Any], paths: Sequence[str], first_record: int | None = None
    ) -> list[Any]:
        """Apply the transforms to values, and cast them to the dtype that the document declares.

        Args:
            values: the values as the file has them.
            paths: the path of the file of each value, for messages.
            first_record: position of the first value in the record set, for messages; None if the
                values belong to no record yet.

        Raises:
            DatasetFileCorruptError: a value has another type or does not fit into it, or a regular
                expression takes too long.
        """
        for transform in self.transforms:
            if transform.regex is not None or transform.replace is not None:
                # Many texts at a time, as they go to another process.
                values = self._rewrite(transform, values)
            else:
                transform_element = partial(transform_value, transform)
                transform_nested = partial(_map_nested, transform_element)
                values = self._map_values(transform_nested, values, paths, first_record)
        cast = partial(self._cast, depth=self.depth)
        return self._map_values(cast, values, paths, first_record)

    def _map_values(
        self,
        function: Callable[[Any], Any],
        values: Sequence[Any],
        paths: Sequence[str],
        first_record: int | None,
    ) -> list[Any]:
        """Return what a function returns for each value.

        Args:
            function: a function of a value, which raises an error of ``UNFIT``.
            values: the values.
            paths: see :meth:`convert`.
            first_record: see :meth:`convert`.

        Raises:
            DatasetFileCorruptError: the function fails; the message names the value and its record.
        """
        converted = []
        for number, value in enumerate(values):
            try:
                converted.append(function(value))
            except UNFIT as error:
                record = ""
                if first_record is not None:
                    record = f" in record {first_record + number}"
                raise DatasetFileCorruptError(
                    f"{paths[number]!r} holds {value!r:.80}{record}, but {self.where} needs "
                    f"{self.dtype}: {error!s:.200}"
                ) from error
        return converted

    def _rewrite(self, transform: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values after a ``regex`` or ``replace``. Equal texts are rewritten once."""
        pattern = transform.regex
        replacement = None
        if pattern is None:
            pattern, _, replacement = transform.replace.partition("/")
        texts: dict[str, None] = {}  # a set that keeps the order
        for value in values:
            for element in _list_nested(value):
                texts[text_of(element)] = None
        new_texts = rewrite_texts(texts, pattern, replacement, self.where)

        def rewrite(element: Any) -> str:
            return new_texts[text_of(element)]

        return [_map_nested(rewrite, value) for value in values]

    def _cast(self, value: Any, depth: int) -> Any:
        """Return a value in the dtype of the column.

        Args:
            value: a value, or a list of values.
            depth: depth of the nested lists in which the values are; 0 for a value.

        Raises:
            One of ``UNFIT``: the value does not fit.
        """
        if is_missing(value):
            # A column of floats without lists keeps NaN.
            keeps_nan = self.dtype.kind == "f" and not self.field.shape and not self.depth
            return value if keeps_nan else None
        if depth > 0:
            if not isinstance(value, (list, np.ndarray)):
                raise TypeError("expected a list")
            return [self._cast(element, depth - 1) for element in value]

        # Arrays are stored as arrays, but as lists within nested lists.
        if self.kind == "BoundingBox":
            box = bounding_box(value)
            return box.tolist() if self.depth else box
        is_array = bool(self.field.shape) and not self.depth
        if not is_array:
            return cast_value(value, self.dtype)
        elements = [cast_value(element, self.dtype) for element in value]
        if self.dtype.kind == "U":
            return elements
        return np.asarray(elements, self.dtype)


def is_missing(value: Any) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or (isinstance(value, (float, np.floating)) and value != value)


def _map_nested(function: Callable[[Any], Any], value: Any) -> Any:
    """Return what a function returns for a value, or for each value in nested lists.

    A missing value stays as it is.
    """
    if isinstance(value, (list, np.ndarray)):
        return [_map_nested(function, element) for element in value]
    if is_missing(value):
        return value
    return function(value)


def _list_nested(value: Any) -> Iterator[Any]:
    """Yield a value, or each value in nested lists. Missing values are left out."""
    if isinstance(value, (list, np.ndarray)):
        for element in value:
            yield from _list_nested(element)
    elif not is_missing(value):
        yield value
