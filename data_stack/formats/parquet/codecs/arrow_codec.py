"""The contract of codecs for Parquet columns, with checks that values have a field's dtype and shape."""

from __future__ import annotations

import contextlib
import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype, check_shape, fit_array
from data_stack.formats.parquet.columns import CellError, GroupColumn
from data_stack.formats.parquet.types import FieldLike, dtype_name, numpy_dtype
from data_stack.values.stacked_values import as_array, exact_array

Values: TypeAlias = "Sequence[Any] | npt.NDArray[Any]"
"""Values of a field: a sequence, or an array of shape ``(n, ...)``."""

#: Errors of pyarrow and Python for a value that does not fit a type.
UNSUITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError)


class ArrowCodec(ABC):
    """Encodes values of a field as cells, and decodes the cells of a row group to a column. It is stateless, pickles and compares
    by content. It never runs data.
    """

    #: The name of the codec in the stored schema.
    kind: ClassVar[str]
    #: As in :class:`~data_stack.codecs.Codec`.
    releases_gil: bool = False
    is_compressed: bool = False
    #: Whether columns without nulls are arrays of one dtype and shape, whose rows can be copied together.
    is_fixed: bool = False

    @abstractmethod
    def arrow_type(self, field: FieldLike) -> pa.DataType:
        """The type of the Parquet column.

        Raises:
            ConfigError: this codec cannot hold values of the field's dtype and shape.
        """

    def compares_cells(self, field: FieldLike, type_: pa.DataType) -> bool:
        """Whether Arrow compares cells exactly as Python compares the values that are read from them.

        Args:
            field: the field of the cells.
            type_: of the cells, without dictionaries and extension types.
        """
        return False

    def fill(self, field: FieldLike) -> Any:
        """What a null is read as: None, or a value of the field's dtype."""
        return None

    @abstractmethod
    def encode(self, field: FieldLike, value: Any) -> Any:
        """Encode a value that is not null, for ``pyarrow.array``.

        Raises:
            TypeError, ValueError, OverflowError: the value does not fit the field; the message says why.
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
            _refuse_nulls(cells, "the field is not nullable")
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
        if not (has_nulls and field.nullable):
            _refuse_nulls(
                cells,
                "the footer counts no nulls" if field.nullable else "the field is not nullable",
            )
        return self._column(field, cells, has_nulls)

    @abstractmethod
    def _column(self, field: FieldLike, cells: pa.Array, has_nulls: bool) -> GroupColumn:
        """As :meth:`column`, which has checked for nulls."""

    def _encode_column(self, field: FieldLike, values: Values) -> pa.Array:
        """As :meth:`encode_column`, which checks for nulls."""
        cells = []
        for row, value in enumerate(values):
            try:
                cells.append(None if is_missing(value) else self.encode(field, value))
            except UNSUITABLE as error:
                raise CellError(row, f"{error!s:.300}") from error
        type_ = self.arrow_type(field)
        try:
            return pa.array(cells, type_)
        except UNSUITABLE as error:
            for row, cell in enumerate(cells):  # pyarrow does not name the row
                try:
                    pa.array([cell], type_)
                except UNSUITABLE as why:
                    raise CellError(row, f"{why!s:.300}") from why
            raise CellError(0, f"all values together: {error!s:.300}") from error

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`~data_stack.formats.parquet.codecs.read_codec`."""
        return {"codec": self.kind}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self.to_json().items()))))

    def __repr__(self) -> str:
        arguments = {
            name: value
            for name, value in self.to_json().items()
            if name != "codec" and value is not None
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _refuse_nulls(cells: pa.Array, why: str) -> None:
    if cells.null_count:
        row = int(np.flatnonzero(np.asarray(cells.is_null()))[0])
        raise CellError(row, f"it is null, but {why}")


# ---------------------------------------------------------------------- checks


def is_missing(value: Any) -> bool:
    """Whether a value is None or ``NaT``. NaN is a number."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ == "NaTType"  # of pandas


def check_scalar(field: FieldLike, value: Any, *, is_instant: bool = False) -> Any:
    """Check a scalar of the field's dtype, and convert it for ``pyarrow.array``.

    Numbers may have any dtype if they fit.

    Args:
        field: the field of the value.
        value: any value that is not null.
        is_instant: whether the times of the column are instants, where a datetime without a time zone counts as UTC; otherwise
            none has a time zone.

    Raises:
        TypeError, ValueError: the value does not fit.
    """
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = as_array(value)
        if array.shape != ():
            raise ValueError(f"expected a scalar, got an array of shape {array.shape}")
        value = array[()]
    dtype = numpy_dtype(field.dtype)
    if dtype.kind in "mM":
        return _check_time(value, dtype, is_instant=is_instant)
    if field.dtype is Decimal and isinstance(value, Decimal) and not value.is_finite():
        raise ValueError(f"Parquet cannot store {value}; pass None for a missing value")
    types: Any = (
        (Decimal, int, np.integer) if field.dtype is Decimal else _TYPES.get(dtype.kind, object)
    )
    is_bool = isinstance(value, bool) and (dtype.kind in "iuf" or field.dtype is Decimal)
    is_span = isinstance(value, np.timedelta64)  # numpy calls it an integer
    if not isinstance(value, types) or is_bool or (is_span and types is not object):
        raise TypeError(f"expected a value of dtype {dtype_name(field.dtype)}, got {_show(value)}")
    if field.dtype is Decimal:
        return value if isinstance(value, Decimal) else Decimal(int(value))
    if dtype.kind in "US":
        return str(value) if dtype.kind == "U" else bytes(value)
    return _check_number(value, dtype) if dtype.kind in "biuf" else value


def check_array(field: FieldLike, value: Any) -> npt.NDArray[Any]:
    """Convert ``value`` to an array of the field's dtype and shape, see :func:`~data_stack.codecs.fitting.fit_array`; also text
    and times.

    Raises:
        TypeError, ValueError: the value does not fit.
    """
    dtype = numpy_dtype(field.dtype)
    has_dtype = (
        hasattr(value, "__array__")
        or hasattr(value, "__array_interface__")
        or hasattr(value, "detach")
    )
    if dtype.kind in "US":
        array = _check_text(as_array(value) if has_dtype else np.asarray(value, object), dtype.kind)
        check_shape(array.shape, field.shape)
        return array
    if not has_dtype and dtype.kind in "mM":
        value = _array_of_times(value, dtype)
    elif not has_dtype and exact_array(value) is None and np.asarray(value).dtype.kind in "fc":
        raise ValueError(f"no dtype holds the numbers {value!r:.60} exactly")
    array = fit_array(value, None, field.shape)
    if array.dtype.kind == "b" and dtype.kind in "iufc" and array.size:
        raise TypeError(f"expected an array of {dtype}, got truth values")
    return fit_array(value, dtype, field.shape)


def _check_text(array: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Convert to an array of numpy strings."""
    if array.dtype.kind == kind:
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "T" and kind == "U":  # variable-length strings of numpy
        return array.astype(np.str_)
    wanted = str if kind == "U" else bytes
    if array.dtype != object:
        raise TypeError(f"expected an array of {wanted.__name__}, got dtype {array.dtype}")
    flat = array.reshape(-1).tolist()
    for element in flat:
        if not isinstance(element, wanted):
            raise TypeError(
                f"expected an array of {wanted.__name__}, got {type(element).__name__} {element!r:.60}"
            )
        if element[-1:] in ("\0", b"\0"):
            raise ValueError(f"numpy would drop the zeros at the end of {element!r:.60}")
    return np.array(flat, np.dtype(kind)).reshape(array.shape)


_TYPES: Final[dict[str, Any]] = {
    "U": str,
    "S": (bytes, bytearray, memoryview),
    "b": (bool, np.bool_),
    "f": (int, float, np.integer, np.floating),
    **dict.fromkeys("iu", (int, np.integer)),
}
"""The types of scalars, by the kind of the dtype."""


def _check_number(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, np.integer):
        value = (
            value.item()
        )  # Python compares integers with floats exactly, numpy rounds them first
    number = None
    with np.errstate(over="ignore"), contextlib.suppress(OverflowError):
        number = np.array(value).astype(dtype).item()
    rounds = type(value) is float and number is not None and math.isfinite(number)
    if number != value and value == value and not rounds:
        raise ValueError(f"{_show(value)} does not fit into dtype {dtype}")
    return number


def _check_time(value: Any, dtype: np.dtype[Any], *, is_instant: bool = False) -> Any:
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise ValueError(f"{_show(value)} has a time zone, which a time of day would lose")
        midnight = datetime.datetime.combine(datetime.date.min, value)
        value = midnight - datetime.datetime.min
    elif isinstance(value, datetime.datetime):
        value = _without_zone(value, is_instant=is_instant)
    if hasattr(value, "to_numpy"):  # of pandas: in nanoseconds
        value = value.to_numpy()
    elif isinstance(value, datetime.date):
        value = np.datetime64(value)
    elif isinstance(value, datetime.timedelta):
        value = np.timedelta64(value)
    if not isinstance(value, dtype.type):
        raise TypeError(f"expected a time of dtype {dtype}, got {_show(value)}")
    return same_time(value, dtype)


def _without_zone(value: datetime.datetime, *, is_instant: bool) -> datetime.datetime:
    """A datetime in UTC for a column of instants; unchanged for a column of times without a zone.

    Raises:
        ValueError: it has a time zone, and the column has none.
    """
    if value.tzinfo is None:
        return value
    if not is_instant:
        raise ValueError(
            f"{_show(value)} has a time zone in a column of times without one: give all values a zone, "
            f"or declare the column as instants, ScalarCodec('timestamp')"
        )
    return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def _array_of_times(values: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Times in lists as an array; numpy alone would cut noon to the day."""
    given = np.asarray(values, object)
    times = [_check_time(value, dtype) for value in given.reshape(-1).tolist()]
    return np.array(times, dtype).reshape(given.shape)


def same_time(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a time or duration to another unit.

    Raises:
        ValueError: the unit cannot hold it exactly.
    """
    if np.datetime_data(value.dtype)[0] == "generic" and not np.isnat(value):
        raise ValueError(f"{value!r} has no unit: use a unit, such as {dtype}")
    return as_dtype(np.array(value), dtype)[()]


def _show(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"
