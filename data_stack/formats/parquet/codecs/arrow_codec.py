"""The contract of codecs for Parquet columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from data_stack.formats.parquet.codecs.checks import FieldValues, is_missing
from data_stack.formats.parquet.columns import CellError, GroupColumn
from data_stack.formats.parquet.types import FieldLike

#: Errors of pyarrow and Python for a value that does not fit a type.
_UNSUITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError)


class ArrowCodec(ABC):
    """Encodes values of a field as cells, and decodes the cells of a row group to a column. It is stateless, pickles and compares
    by content. It never runs data.
    """

    #: The name of the codec in the stored schema.
    kind: ClassVar[str]
    #: As in :class:`~data_stack.codecs.Codec`.
    releases_gil: bool = False
    is_compressed: bool = False

    @abstractmethod
    def arrow_type(self, field: FieldLike) -> pa.DataType:
        """The type of the Parquet column.

        Raises:
            ConfigError: this codec cannot hold values of the field's dtype and shape.
        """

    @abstractmethod
    def encode(self, field: FieldLike, value: Any) -> Any:
        """Encode a value that is not null, for ``pyarrow.array``.

        Raises:
            TypeError, ValueError, OverflowError: the value does not fit the field; the message says why.
        """

    def encode_column(self, field: FieldLike, values: FieldValues) -> pa.Array:
        """Encode many values.

        Args:
            field: the field of the values.
            values: a sequence or an array, shape ``(n, ...)``. None and ``NaT`` are null.

        Raises:
            CellError: a value does not fit the field, or is null and the field is not nullable.
        """
        cells = self._encode_column(field, values)
        if cells.null_count and not field.nullable:
            row = int(np.flatnonzero(np.asarray(cells.is_null()))[0])
            raise CellError(row, "it is null, but the field is not nullable")
        return cells

    def column(self, field: FieldLike, cells: pa.Array, *, has_nulls: bool) -> GroupColumn:
        """Make a column from the cells of a row group.

        Args:
            field: the field of the cells.
            cells: of :meth:`arrow_type`, or of the type that another writer chose.
            has_nulls: whether any row group of the dataset has nulls; then columns of all row groups are arrays of objects with
                None.

        Raises:
            CellError: a cell is damaged (also raised later, on access), or null in a field that is not nullable.
            ValueError: the type of the column does not fit the field.
        """
        if cells.null_count and not (has_nulls and field.nullable):
            row = int(np.flatnonzero(np.asarray(cells.is_null()))[0])
            raise CellError(
                row, f"it is null, but {'the footer counts no nulls' if field.nullable else 'the field is not nullable'}"
            )
        return self._column(field, cells, has_nulls)

    @abstractmethod
    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        """As :meth:`column`, which has checked for nulls."""

    def _encode_column(self, field: FieldLike, values: FieldValues) -> pa.Array:
        """As :meth:`encode_column`, which checks for nulls."""
        cells = []
        for row, value in enumerate(values):
            try:
                cells.append(None if is_missing(value) else self.encode(field, value))
            except _UNSUITABLE as error:
                raise CellError(row, f"{error!s:.300}") from error
        type_ = self.arrow_type(field)
        try:
            return pa.array(cells, type_)
        except _UNSUITABLE as error:
            for row, cell in enumerate(cells):  # pyarrow does not name the row
                try:
                    pa.array([cell], type_)
                except _UNSUITABLE as why:
                    raise CellError(row, f"{why!s:.300}") from why
            raise CellError(0, f"all values together: {error!s:.300}") from error

    def is_gathered(self, field: FieldLike, *, list_length: int | None, has_nulls: bool) -> bool:
        """Whether the columns of all row groups are arrays of one dtype and shape, whose rows can be copied together.

        Args:
            field: the field of the columns.
            list_length: length of all lists of the dataset; None if lengths differ or are unknown.
            has_nulls: as for :meth:`column`.
        """
        return False

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`~data_stack.formats.parquet.codecs.read_codec`."""
        return {"codec": self.kind}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self.to_json().items()))))

    def __repr__(self) -> str:
        arguments = {name: value for name, value in self.to_json().items() if name != "codec" and value is not None}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
