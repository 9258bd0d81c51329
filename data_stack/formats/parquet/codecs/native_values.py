"""Converts Arrow arrays exactly to numpy arrays or Python objects."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.codecs.cells import as_binary, null_mask, numbers, plain_cells
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import FieldDtype, dtype_name, is_bytes, is_list, is_text
from data_stack.values.stacked_values import objects


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one dtype.

    Attributes:
        array: shape ``(n,)``; any content where a value is null.
        is_null: shape ``(n,)``; None: no nulls.
    """

    array: npt.NDArray[Any]
    is_null: npt.NDArray[np.bool_] | None

    def as_objects(self) -> npt.NDArray[np.object_]:
        """The values as objects: numpy scalars, so that a number keeps its dtype; None for null."""
        if self.array.dtype == object:
            if self.is_null is None:
                return self.array
            found: npt.NDArray[np.object_] = self.array.copy()
        else:
            found = np.empty(len(self.array), dtype=object)
            found[:] = list(self.array)
        if self.is_null is not None:
            found[self.is_null] = None
        return found


def _texts(cells: pa.Array) -> npt.NDArray[Any]:
    """Text or bytes as objects.

    Raises:
        pyarrow.ArrowException: the cells are not valid text.
        MemoryError: not enough memory.
    """
    try:
        return cells.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # an array
    except pa.ArrowException:  # raised also without memory for a str
        cells.validate(full=True)
        raise MemoryError(f"not enough memory for {len(cells):,} texts") from None


def plain_values(cells: pa.Array, dtype: FieldDtype | None = None) -> Values:
    """Convert scalars to an array of the dtype of their Arrow type.

    Args:
        cells: cells of any scalar type.
        dtype: the wanted dtype; bytes are read as text, and text as bytes, accordingly.

    Raises:
        ValueError: the cells are not scalars, or not valid text.
    """
    if isinstance(cells, pa.ExtensionArray):
        return plain_values(cells.storage, dtype)
    if pa.types.is_dictionary(cells.type):
        return _values_of_dictionary(cells, dtype)
    type_ = cells.type
    is_null = null_mask(cells) if cells.null_count else None
    if is_text(type_) or is_bytes(type_):
        wants_text = isinstance(dtype, np.dtype) and dtype.kind == "U"
        wants_bytes = isinstance(dtype, np.dtype) and dtype.kind == "S"
        if wants_text and is_bytes(type_):
            cells = as_binary(cells)
            cells = cells.cast(pa.large_string() if pa.types.is_large_binary(cells.type) else pa.string())
        elif wants_bytes and is_text(type_):
            cells = as_binary(cells)
        return Values(_texts(cells), is_null)
    if pa.types.is_null(type_):
        return Values(np.empty(len(cells), dtype=object), is_null)
    if pa.types.is_decimal(type_):
        return Values(objects(cells.to_pylist()), is_null)
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return Values(numbers(cells), is_null)
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return Values(_times(cells), is_null)
    raise ValueError(f"expected scalars, the column has type {type_}")


def conform(values: Values, dtype: FieldDtype) -> Values:
    """Convert values to the dtype of a field without a change.

    Raises:
        CellError: a value does not fit.
        ValueError: the values are of another kind.
    """
    array, is_null = values.array, values.is_null
    if array.dtype == dtype or (isinstance(dtype, np.dtype) and dtype.kind == "O"):
        return values
    if is_null is not None and is_null.all() and array.dtype == object:
        # only nulls, of any type
        plain = isinstance(dtype, np.dtype) and dtype.kind not in "USO"
        return Values(np.zeros(len(array), dtype), is_null) if plain else values
    if array.dtype == object:
        return Values(_conform_objects(array, is_null, dtype), is_null)
    if dtype is Decimal and array.dtype.kind in "iu":
        return Values(objects([Decimal(number) for number in array.tolist()]), is_null)
    is_other_time = isinstance(dtype, np.dtype) and dtype.kind != array.dtype.kind and {dtype.kind, array.dtype.kind} & {*"mM"}
    if not isinstance(dtype, np.dtype) or dtype.kind in "US" or is_other_time:
        raise ValueError(f"expected values of dtype {dtype_name(dtype)}, the column has {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if dtype.kind not in "mM" and np.can_cast(array.dtype, dtype, "safe"):
            return Values(cast, is_null)
        is_same = cast.astype(array.dtype) == array
        if dtype.kind not in "mM":  # a number that is too large may wrap around twice
            is_same &= (cast < 0) == (array < 0)
    if array.dtype.kind == "f":
        is_same |= np.isnan(array) & (np.isnan(cast) if dtype.kind == "f" else False)
    if is_null is not None:
        is_same |= is_null
    if not is_same.all():
        row = int(np.flatnonzero(~is_same)[0])
        raise CellError(row, f"{array[row]} does not fit into dtype {dtype}")
    return Values(cast, is_null)


def time_dtype(type_: pa.DataType) -> np.dtype[Any]:
    """The dtype of dates, times and durations of an Arrow type."""
    kind = "m" if pa.types.is_duration(type_) or pa.types.is_time(type_) else "M"
    unit = "D" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else type_.unit
    return np.dtype(f"{kind}8[{unit}]")


def plain_objects(cells: pa.Array) -> list[Any]:
    """Convert values of any type to new objects: dicts for structs, lists of pairs for maps, lists, None for null.

    Scalars are Python objects; times and durations are numpy's, because Python's have no nanoseconds.
    """
    cells = plain_cells(cells)
    type_ = cells.type
    is_null = null_mask(cells).tolist()
    if pa.types.is_struct(type_):
        names = [type_.field(number).name for number in range(type_.num_fields)]
        # field() would ignore the offset of a slice
        columns = [plain_objects(child) for child in cells.flatten()]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(cells))
        return [None if null else dict(zip(names, row, strict=True)) for null, row in zip(is_null, rows, strict=True)]
    if pa.types.is_map(type_) or is_list(type_):
        children, offsets = list_parts(cells)
        plain = [plain_objects(child) for child in children]
        elements = plain[0] if is_list(type_) else list(zip(*plain, strict=True))
        ends = offsets.tolist()
        return [None if null else elements[ends[row] : ends[row + 1]] for row, null in enumerate(is_null)]
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        times: list[Any] = Values(_times(cells), null_mask(cells)).as_objects().tolist()
        return times
    found: list[Any] = cells.to_pylist()
    return found


def list_parts(cells: pa.Array) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """The elements of lists (of maps: keys and items), and the offsets of the lists.

    Raises:
        ValueError: the cells are not lists.
    """
    type_ = cells.type
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        elements = cells.values.slice(cells.offset * size, len(cells) * size)
        return [elements], np.arange(len(cells) + 1, dtype=np.int64) * size
    if not (pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_)):
        raise ValueError(f"expected lists, the column has type {type_}")
    offsets = numbers(cells.offsets).astype(np.int64) if len(cells) else np.zeros(1, np.int64)
    children = [cells.keys, cells.items] if pa.types.is_map(type_) else [cells.values]
    return [child.slice(offsets[0], offsets[-1] - offsets[0]) for child in children], offsets - offsets[0]


def _values_of_dictionary(cells: pa.DictionaryArray, dtype: FieldDtype | None) -> Values:
    """Convert each value of the dictionary once."""
    values = plain_values(cells.dictionary, dtype)
    is_null = null_mask(cells.indices)
    if not len(values.array):
        return Values(np.empty(len(cells), dtype=object), is_null if len(cells) else None)
    places = np.where(is_null, 0, numbers(cells.indices))
    if values.is_null is not None:
        is_null = is_null | values.is_null[places]
    return Values(values.array[places], is_null if is_null.any() else None)


def _times(cells: pa.Array) -> npt.NDArray[Any]:
    """Dates and times as datetime64, times of day and durations as timedelta64."""
    type_ = cells.type
    is_narrow = pa.types.is_date32(type_) or pa.types.is_time32(type_)
    integers = cells.view(pa.int32() if is_narrow else pa.int64())
    array: npt.NDArray[Any] = numbers(integers).astype(np.int64, copy=False).view(time_dtype(type_))
    return array.astype("M8[D]") if pa.types.is_date64(type_) else array


def _conform_objects(
    array: npt.NDArray[np.object_], is_null: npt.NDArray[np.bool_] | None, dtype: FieldDtype
) -> npt.NDArray[Any]:
    """Convert text, bytes and decimals to a dtype.

    Raises:
        CellError, ValueError: as :func:`conform`.
    """
    first = next((value for value in array if value is not None), None)
    if first is None:
        return array
    wanted: Any = Decimal if dtype is Decimal else {"U": str, "S": bytes}.get(dtype.kind)  # type: ignore[union-attr]
    if wanted is not None and isinstance(first, wanted):
        return array
    if not isinstance(first, Decimal) or not isinstance(dtype, np.dtype) or dtype.kind not in "iuf":
        raise ValueError(f"expected values of dtype {dtype_name(dtype)}, the column has {type(first).__name__}")
    found = np.zeros(len(array), dtype)
    for row, value in enumerate(array):
        if value is None:
            continue
        try:
            found[row] = float(value) if dtype.kind == "f" else int(value)
        except (OverflowError, ValueError) as error:
            raise CellError(row, f"{value} does not fit into dtype {dtype}") from error
        if dtype.kind != "f" and int(found[row]) != value:
            raise CellError(row, f"{value} does not fit into dtype {dtype}")
    return found
