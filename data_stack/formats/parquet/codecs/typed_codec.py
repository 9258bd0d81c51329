"""The base of codecs whose values, or the elements of these, have a type of Arrow's."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.list_arrays import row_of_element
from data_stack.formats.parquet.codecs.scalar_values import ValuesAndNulls, read_scalars
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import FieldLike

#: Kinds of dtypes that have a value for null, by how nulls are read.
_KINDS_WITH_FILL: Final = {"nan": "fmM", "zero": "biufmM"}


class TypedCodec(ArrowCodec):
    """Stores scalars, or lists of scalars, with a given Arrow type.

    Args:
        type: the type of the scalars, see :class:`~data_stack.formats.parquet.codecs.ScalarCodec`;
            None: derived from the dtype of the field.
        nulls: how missing scalars are read: "none" as None, "nan" as NaN or NaT, "zero" as 0.

    Attributes:
        type: the name of the type; None: derived from the dtype of the field.
        nulls: how missing scalars are read.

    Raises:
        ConfigError: the type is unknown, or ``nulls`` is invalid.
    """

    type: Any
    nulls: Literal["none", "nan", "zero"]

    def __init__(
        self,
        type: Any = None,  # noqa: A002  # its name in the stored schema
        *,
        nulls: Literal["none", "nan", "zero"] = "none",
    ) -> None:
        if nulls not in ("none", "nan", "zero"):
            raise ConfigError(f"nulls must be 'none', 'nan' or 'zero', got {nulls!r:.40}")
        if hasattr(type, "simpleString"):  # of pyspark
            type = type.simpleString()  # noqa: A001  # likewise
        elif isinstance(type, pa.DataType):
            type = types.describe_type(type)  # noqa: A001  # likewise
        if type is not None:
            types.arrow_type_named(type)  # raises if it is unknown
        self.type = type
        self.nulls = nulls

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"codec": self.kind}
        # Older files lack the keys of defaults, and the schemas of new files must equal theirs.
        if self.type is not None:
            content["type"] = self.type
        if self.nulls != "none":
            content["nulls"] = self.nulls
        return content

    def with_nulls(self, nulls: Literal["none", "nan", "zero"]) -> TypedCodec:
        """Return the same codec, which reads missing scalars in another way."""
        return type(self)(self.type, nulls=nulls)

    def _element_type(self, field: FieldLike) -> pa.DataType:
        """Return the type of scalars.

        Raises:
            ConfigError: the type cannot hold values of the field's dtype, or the dtype has no value
                for null that ``nulls`` names.
        """
        dtype = types.numpy_dtype(field.dtype)
        if self.nulls != "none" and dtype.kind not in _KINDS_WITH_FILL[self.nulls]:
            kinds = "floats and times" if self.nulls == "nan" else "numbers and times"
            raise ConfigError(
                f"nulls={self.nulls!r} is for {kinds}, "
                f"not for values of dtype {types.dtype_name(field.dtype)}"
            )
        if self.type is None:
            return types.arrow_type_of_dtype(field.dtype)
        type_ = types.arrow_type_named(self.type)
        kind_of_type = types.kind_of(types.dtype_of_arrow(type_))
        if types.kind_of(field.dtype) not in (kind_of_type, "O"):
            raise ConfigError(
                f"a column of type {type_} cannot hold values of dtype "
                f"{types.dtype_name(field.dtype)}"
            )
        return type_

    def _fill(self, field: FieldLike) -> Any:
        """Return what a missing scalar is read as."""
        if self.nulls == "none":
            return None
        dtype = types.numpy_dtype(field.dtype)
        fill: Any = 0
        if self.nulls == "nan":
            fill = np.nan if dtype.kind == "f" else "NaT"
        return np.array(fill).astype(dtype)[()]

    def _read(self, field: FieldLike, cells: pa.Array) -> ValuesAndNulls:
        """Read scalars of the dtype of a field, with nulls filled.

        Raises:
            CellError, ValueError: see :func:`read_scalars`.
        """
        try:
            scalars = read_scalars(cells, field.dtype)
        except CellError as error:
            why = error.why
            if self.nulls == "nan" and field.dtype == np.float64:
                why += "; read it exactly with nulls='mask'"
            raise CellError(error.row, why) from error
        if self.nulls == "none" or scalars.is_null is None:
            return scalars
        values = scalars.values
        if not values.flags.writeable:
            values = values.copy()
        np.putmask(values, scalars.is_null, self._fill(field))
        return ValuesAndNulls(values, None)

    def _read_elements(
        self, field: FieldLike, elements: pa.Array, offsets: npt.NDArray[np.int64]
    ) -> ValuesAndNulls:
        """Read the elements of lists as scalars.

        Args:
            field: the field of the lists.
            elements: the elements of all lists, one list after the other.
            offsets: where each list begins in them, shape ``(n_lists + 1,)``.

        Raises:
            CellError, ValueError: as for :meth:`_read`; the row is that of the list.
        """
        try:
            return self._read(field, elements)
        except CellError as error:
            raise CellError(row_of_element(offsets, error.row), error.why) from error
