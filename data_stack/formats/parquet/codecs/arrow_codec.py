"""The contract of codecs for Parquet columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.codecs.arrow_arrays import (
    UNSUITABLE,
    array_of_cells,
    refuse_nulls,
)
from data_stack.formats.parquet.codecs.value_checks import is_none_or_nat
from data_stack.formats.parquet.columns import CellError, GroupColumn
from data_stack.formats.parquet.types import FieldLike

Values: TypeAlias = "Sequence[Any] | npt.NDArray[Any]"
"""Values of a field: a sequence, or an array of shape ``(n, ...)``."""


class ArrowCodec(ABC):
    """Encodes values of a field as cells, and decodes the cells of a row group to a column.

    A codec is stateless, can be pickled, and compares by content. It never runs code of the data.
    """

    #: The name of the codec in the stored schema.
    kind: ClassVar[str]
    #: Whether decoding releases the GIL for most of the time, so that threads help; see
    #: :class:`~data_stack.codecs.Codec`.
    releases_gil: bool = False
    #: Whether a value may take far more memory than its cell, as images do; see
    #: :class:`~data_stack.codecs.Codec`. Parquet does not compress such cells again.
    is_compressed: bool = False
    #: Whether columns without nulls are arrays of one dtype and shape, whose rows can be copied
    #: together.
    is_fixed: bool = False

    @abstractmethod
    def arrow_type(self, field: FieldLike) -> pa.DataType:
        """Return the type of the Parquet column.

        Raises:
            ConfigError: this codec cannot hold values of the field's dtype and shape.
        """

    def compares_cells(self, field: FieldLike, type_: pa.DataType) -> bool:
        """Whether Arrow compares cells exactly as Python compares the values read from them.

        Args:
            field: the field of the cells.
            type_: the type of the cells, without dictionaries and extension types.
        """
        return False

    def fill(self, field: FieldLike) -> Any:
        """Return what a null is read as: None, or a value of the field's dtype."""
        return None

    @abstractmethod
    def encode(self, field: FieldLike, value: Any) -> Any:
        """Encode a value that is not null, for ``pyarrow.array``.

        Raises:
            TypeError, ValueError, OverflowError: the value does not fit the field; the message says
                why.
        """

    def encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        """Encode many values.

        Args:
            field: the field of the values.
            values: a sequence or an array, shape ``(n, ...)``. None and ``NaT`` are null.

        Raises:
            CellError: a value does not fit the field, or is null and the field is not nullable.
        """
        cells = self._encode_column(field, values)
        if not field.nullable:
            refuse_nulls(cells, "the field is not nullable")
        return cells

    def column(self, field: FieldLike, cells: pa.Array, *, has_nulls: bool) -> GroupColumn:
        """Make a column from the cells of a row group.

        Args:
            field: the field of the cells.
            cells: cells of :meth:`arrow_type`, or of the type that another writer chose.
            has_nulls: whether any row group of the dataset has nulls; then columns of all row
                groups are arrays of objects with None.

        Raises:
            CellError: a cell is damaged (also raised later, on access), or null in a field that is
                not nullable.
            ValueError: the type of the column does not fit the field.
        """
        if not field.nullable:
            refuse_nulls(cells, "the field is not nullable")
        elif not has_nulls:
            refuse_nulls(cells, "the footer counts no nulls")
        return self._column(field, cells, has_nulls)

    @abstractmethod
    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        """Make a column as :meth:`column`, which has checked for nulls."""

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        """Encode many values as :meth:`encode_column`, which checks for nulls."""
        cells: list[Any] = []
        for row, value in enumerate(values):
            if is_none_or_nat(value):
                cells.append(None)
                continue
            try:
                cells.append(self.encode(field, value))
            except UNSUITABLE as error:
                raise CellError(row, f"{error!s:.300}") from error
        return array_of_cells(cells, self.arrow_type(field))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the stored schema.

        :func:`~data_stack.formats.parquet.codecs.field_codec.read_codec` makes the codec again.
        """
        return {"codec": self.kind}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self.to_json().items()))))

    def __repr__(self) -> str:
        arguments = []
        for name, value in self.to_json().items():
            if name != "codec" and value is not None:
                arguments.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"
