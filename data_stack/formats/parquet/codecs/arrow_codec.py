"""What a codec of a field is: values as cells of a Parquet column, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from data_stack.formats.parquet.codecs.checks import FieldValues, is_missing
from data_stack.formats.parquet.columns import CellError, GroupColumn
from data_stack.formats.parquet.types import FieldLike

#: What pyarrow and Python say of a value that does not suit a type.
_UNSUITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError)


class ArrowCodec(ABC):
    """Turns values of a field into cells, and the cells of a row group into a column. It keeps nothing between two calls; a value
    that pickles and compares. It never runs what it reads.
    """

    #: Stands for the codec in the stored schema.
    kind: ClassVar[str]
    #: As those of :class:`~data_stack.codecs.Codec`.
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
        """The cell of a value that is not null, as ``pyarrow.array`` takes it.

        Raises:
            TypeError, ValueError, OverflowError: it is no value of the field; the message says what is.
        """

    def encode_column(self, field: FieldLike, values: FieldValues) -> pa.Array:
        """The cells of many values.

        Args:
            field: whose they are.
            values: in a sequence or an array, shape ``(n, ...)``. None and ``NaT`` are null.

        Raises:
            CellValueError: one of them is no value of the field, or null where the field is not nullable.
        """
        cells = self._encode_column(field, values)
        if cells.null_count and not field.nullable:
            row = int(np.flatnonzero(np.asarray(cells.is_null()))[0])
            raise CellValueError(row, "it is null, but the field is not nullable")
        return cells

    def column(self, field: FieldLike, cells: pa.Array, *, has_nulls: bool) -> GroupColumn:
        """The column of the cells of a row group.

        Args:
            field: whose they are.
            cells: of :meth:`arrow_type`, or what another writer stored in its place.
            has_nulls: whether there are nulls in any row group of the dataset; the form of the values depends on it, not on
                whether there are some in this one: if there are, columns are arrays of objects with None.

        Raises:
            CellError: a cell is damaged (also raised later, on access), or null in a field that is not nullable.
            ValueError: the column is of a type that holds no such values.
        """
        if cells.null_count and not (has_nulls and field.nullable):
            row = int(np.flatnonzero(np.asarray(cells.is_null()))[0])
            raise CellError(
                row,
                "it is null, which the file's footer denies"
                if field.nullable
                else "it is null, but the schema says that the field is not nullable",
            )
        return self._column(field, cells, has_nulls)

    @abstractmethod
    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        """As :meth:`column`, which has looked for nulls."""

    def _encode_column(self, field: FieldLike, values: FieldValues) -> pa.Array:
        """As :meth:`encode_column`, which looks for nulls."""
        cells = []
        for row, value in enumerate(values):
            try:
                cells.append(None if is_missing(value) else self.encode(field, value))
            except _UNSUITABLE as error:
                raise CellValueError(row, f"{error!s:.300}") from error
        type_ = self.arrow_type(field)
        try:
            return pa.array(cells, type_)
        except _UNSUITABLE as error:
            for row, cell in enumerate(cells):  # pyarrow does not say which one
                try:
                    pa.array([cell], type_)
                except _UNSUITABLE as why:
                    raise CellValueError(row, f"{why!s:.300}") from why
            raise CellValueError(0, f"these values together: {error!s:.300}") from error

    def is_gathered(self, field: FieldLike, *, list_length: int | None, has_nulls: bool) -> bool:
        """Whether the columns of all row groups are arrays of one dtype and shape, out of which rows are taken together.

        Args:
            field: whose they are.
            list_length: elements of each list of the dataset; None where they differ, or are not known.
            has_nulls: as for :meth:`column`.
        """
        return False

    def to_json(self) -> dict[str, Any]:
        """Plain data from which the same codec is made, see :func:`~data_stack.formats.parquet.codecs.read_codec`."""
        return {"codec": self.kind}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self.to_json().items()))))

    def __repr__(self) -> str:
        arguments = {name: value for name, value in self.to_json().items() if name != "codec" and value is not None}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


class CellValueError(ValueError):
    """A value that does not fit its field.

    Attributes:
        row: its place among those that were to be encoded.
    """

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row, self.why = row, why

    def __str__(self) -> str:
        return self.why
