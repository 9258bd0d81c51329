"""Makes values of the cells of one column, by its type or feature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.images import decode_image
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.arrow_tables import Origin, values_of
from data_stack.formats.arrow_tables.cell_types import (
    array_of_list,
    describe_values,
    has_python_values,
    is_list_of_numbers_or_text,
)
from data_stack.formats.parquet.codecs import ArrowCodec
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.schema import Field
from data_stack.formats.parquet.types import dtype_name
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.values.stacked_values import objects, python_values, stack_values

_Array = npt.NDArray[Any]


class CellReader(ABC):
    """Makes values of the cells of one column.

    Attributes:
        declared: what a schema says of the column.
        releases_gil: whether most of the time is spent outside of the GIL.
        has_plain_cells: whether other programs read the same values from the cells.
        is_fast_for_one: whether :meth:`value` takes less time than a slice of cells, as for text.
            The values of a batch then are an array of objects.
    """

    declared: DeclaredColumn
    releases_gil: bool = False
    has_plain_cells: bool = True
    is_fast_for_one: bool = False

    @abstractmethod
    def values(self, cells: pa.Array, *, lent: bool = False) -> _Array:
        """Return stacked values, shape ``(n, ...)``.

        Args:
            cells: n cells, from the start of their buffers.
            lent: whether the result may share the memory of the cells, and is only read.

        Raises:
            ConfigError, DatasetFileCorruptError: a cell cannot be read.
        """

    def value(self, cells: pa.Array, row: int) -> Any:
        """Return the value of one cell."""
        # take() makes cells from the start of their buffers.
        return list_values(self.values(cells.take(pa.array([row]))))[0]


class PlainCellReader(CellReader):
    """Makes the values that :func:`data_stack.from_arrow` makes.

    Args:
        field: name, type and metadata of the column.
        has_nulls: whether a cell of the column is null.
        shape: the shape of each value, if the type does not define it.
        kind: see :class:`~data_stack.formats.arrow_tables.Origin`.

    Raises:
        ConfigError: the type is unsupported.
    """

    #: The name of the column.
    _name: str

    #: The shape of each value; ``()`` if the type defines it.
    _shape: tuple[int, ...]

    #: Whether the values are arrays of numbers or text.
    _is_flat_list: bool

    #: Whether the value of a cell is what ``as_py()`` returns, which is faster.
    _is_python: bool

    def __init__(
        self, field: pa.Field, *, has_nulls: bool, shape: tuple[int, ...] = (), kind: Any = None
    ) -> None:
        self._name = field.name
        self._shape = shape
        dtype, value_shape = describe_values(field.name, field.type, shape)
        origin = Origin(_field_of_values(field, shape), kind=kind)
        self.declared = DeclaredColumn(dtype, value_shape, has_nulls, origin)
        is_text = dtype in ("str", "bytes") and not value_shape
        is_struct = pa.types.is_struct(field.type) and has_python_values(field.type)
        self._is_python = is_text or is_struct
        # Fixed-size bytes and dictionaries of text may have another type of scalar.
        self.is_fast_for_one = is_text and not pa.types.is_dictionary(field.type)
        self._is_flat_list = not shape and is_list_of_numbers_or_text(field.type)

    def values(self, cells: pa.Array, *, lent: bool = False) -> _Array:
        _check_text(cells)
        return values_of(
            cells, self._name, has_nulls=self.declared.is_nullable, shape=self._shape, lent=lent
        )

    def value(self, cells: pa.Array, row: int) -> Any:
        if self._is_python:
            return cells[row].as_py()
        if self._is_flat_list:
            array = array_of_list(cells[row])
            if array is not None:
                return array
        return super().value(cells, row)


class FieldCellReader(CellReader):
    """Makes the values of a column that a conversion of data_stack has written.

    Args:
        field: the field in the schema of the file.
        has_nulls: whether a cell of the column is null.
    """

    #: The field in the schema of the file.
    _field: Field

    #: Whether a cell of the column is null.
    _has_nulls: bool

    def __init__(self, field: Field, *, has_nulls: bool) -> None:
        self._field = field
        self._has_nulls = has_nulls
        self.declared = DeclaredColumn(dtype_name(field.dtype), field.shape, field.nullable)
        self.releases_gil = field.codec.releases_gil
        self.has_plain_cells = isinstance(field.codec, ArrowCodec)

    def values(self, cells: pa.Array, *, lent: bool = False) -> _Array:
        name = self._field.name
        if cells.null_count and not self._field.nullable:
            raise DatasetFileCorruptError(f"column {name!r} has a null, which its schema excludes")
        try:
            column = self._field.cells.column(
                self._field, cells, has_nulls=self._has_nulls and self._field.nullable
            )
            return column.take(np.arange(len(cells), dtype=np.int32))
        except CellError as error:
            raise DatasetFileCorruptError(f"column {name!r}: {error.why}") from error


class ImageCellReader(CellReader):
    """Decodes the images of a column of Hugging Face, which are dicts of ``bytes`` and ``path``.

    Args:
        name: the name of the column.
        has_nulls: whether a cell of the column is null.
        mode: the mode of Pillow to convert images to; None for that of each file.
        kind: see :class:`~data_stack.formats.arrow_tables.Origin`.
        is_mode_of_feature: whether ``kind`` says the mode.
    """

    releases_gil = True

    #: The mode of Pillow to convert images to; None for no conversion.
    mode: str | None

    #: The name of the column.
    _name: str

    def __init__(
        self,
        name: str,
        *,
        has_nulls: bool,
        mode: str | None,
        kind: Any,
        is_mode_of_feature: bool = True,
    ) -> None:
        self._name = name
        self.mode = mode
        self.has_plain_cells = is_mode_of_feature
        # Arrays of different shapes: only the values tell dtype and shape.
        self.declared = DeclaredColumn(None, None, has_nulls, Origin(None, kind=kind))

    def values(self, cells: pa.Array, *, lent: bool = False) -> _Array:
        arrays = []
        with decoding_for(current_request()) as request:
            for image in cells.to_pylist():
                array = self._decode(image)
                request.add(array)
                arrays.append(array)
        if self.declared.is_nullable:
            return objects(arrays)
        return stack_values(arrays)

    def _decode(self, image: Any) -> _Array | None:
        """Return the pixels of an image; None for null.

        Raises:
            ConfigError: the image is in another file.
            DatasetFileCorruptError: the bytes are no image.
        """
        if image is None:
            return None
        data = image
        if isinstance(image, dict):
            data = image.get("bytes")
            # A path would let a dataset of a stranger read any file of this machine.
            if data is None:
                raise ConfigError(
                    f"column {self._name!r} has the path {image.get('path')!r:.200} in place of an "
                    "image, and data_stack opens no files that a dataset names; store the images "
                    "in the dataset by save_to_disk() of datasets 2.15 or later, or leave the "
                    "column out of columns=…"
                )
        try:
            return decode_image(data, self.mode)
        except ValueError as error:
            raise DatasetFileCorruptError(f"column {self._name!r}: {error}") from error


def list_values(column: _Array) -> list[Any]:
    """Return the values of a column as samples have them."""
    is_structured = column.dtype.names is not None
    if column.ndim > 1 or is_structured:
        return list(column)
    # Labels hash and compare as those of Python do.
    values: list[Any] = python_values(column)
    return values


def _field_of_values(field: pa.Field, shape: tuple[int, ...]) -> pa.Field | None:
    """Return a field that describes the values of a column; None if its type does not.

    Values of a dictionary are those that it holds. Arrays of a shape are stored in lists of any
    length.
    """
    if shape:
        return None
    if pa.types.is_dictionary(field.type):
        return pa.field(field.name, field.type.value_type, field.nullable, field.metadata)
    return field


def _check_text(cells: pa.Array) -> None:
    """Check that text is valid UTF-8, which the record batch was not checked for.

    Raises:
        pyarrow.ArrowInvalid: it is not.
    """
    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        cells.validate(full=True)
