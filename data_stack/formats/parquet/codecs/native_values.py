"""Converts Arrow arrays exactly to numpy arrays or Python objects, without pandas."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import (
    FieldDtype,
    dtype_name,
    dtype_of_arrow,
    is_bytes,
    is_list,
    is_text,
    kind_of,
    numpy_dtype,
)
from data_stack.values.stacked_values import objects


def plain_cells(cells: pa.Array) -> pa.Array:
    """Cells without extension types and dictionaries."""
    if isinstance(cells, pa.ExtensionArray):
        return plain_cells(cells.storage)
    return plain_cells(cells.dictionary_decode()) if pa.types.is_dictionary(cells.type) else cells


def as_binary(cells: pa.Array) -> pa.Array:
    """Convert cells of any bytes or text type to binary or large binary.

    Raises:
        ValueError: the column has another type.
    """
    cells = plain_cells(cells)
    type_ = cells.type
    if type_ in (pa.binary(), pa.large_binary()):
        return cells
    if type_ in (pa.string(), pa.null()):
        return cells.cast(pa.binary())
    if type_ == pa.string_view():
        cells = cells.cast(pa.large_string())
    elif not is_bytes(type_) and type_ != pa.large_string():
        raise ValueError(f"expected bytes, the column has type {type_}")
    return cells.cast(pa.large_binary())


def cell_bytes(cells: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All bytes of a column, and the offsets of its cells, shape ``(n + 1,)``.

    Raises:
        ValueError: the column does not hold bytes.
    """
    cells = as_binary(cells)
    if not len(cells):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offset_dtype: Any = np.int64 if pa.types.is_large_binary(cells.type) else np.int32
    _, offsets, data = cells.buffers()
    starts = np.frombuffer(offsets, offset_dtype, count=cells.offset + len(cells) + 1)[cells.offset :]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), starts.astype(np.int64)


class CellViews(Sequence[Any]):
    """The bytes of each cell; None for null.

    Args:
        cells: a column of bytes.

    Attributes:
        n_bytes: memory of the cells.

    Raises:
        ValueError: the column does not hold bytes.
    """

    def __init__(self, cells: pa.Array) -> None:
        cells = as_binary(cells)
        data, starts = cell_bytes(cells)
        self._data, self._starts = data.data, starts.data  # items of a memoryview are faster than of an array
        self._is_null = null_mask(cells) if cells.null_count else None
        self.n_bytes = cells.nbytes

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: Any) -> Any:
        if self._is_null is not None and self._is_null[row]:
            return None
        return self._data[self._starts[row] : self._starts[row + 1]].tobytes()


def numbers(cells: pa.Array) -> npt.NDArray[Any]:
    """Integers, floats or booleans as an array, shape ``(n,)``; read-only unless it is a copy.

    Args:
        cells: cells of such a type; nulls have any value.
    """
    if pa.types.is_boolean(cells.type):  # bits
        return numbers(cells.cast(pa.uint8())).view(bool)
    buffer, dtype = cells.buffers()[1], np.dtype(cells.type.to_pandas_dtype())
    if buffer is None or not len(cells):
        return np.zeros(len(cells), dtype)
    return np.frombuffer(buffer, dtype, len(cells), cells.offset * dtype.itemsize)


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Which cells are null, shape ``(n,)``; without pandas, which pyarrow would import for arrays of booleans."""
    return numbers(cells.is_null())


class Values(NamedTuple):
    """Values of one dtype.

    Attributes:
        array: shape ``(n,)``; any content where a value is null.
        is_null: shape ``(n,)``; None: no nulls.
    """

    array: npt.NDArray[Any]
    is_null: npt.NDArray[np.bool_] | None

    def as_objects(self) -> npt.NDArray[np.object_]:
        """The values as objects: numpy scalars, so that a number keeps its dtype; None for null."""
        if self.array.dtype == object and self.is_null is None:
            return self.array
        found = objects(list(self.array))
        if self.is_null is not None:
            found[self.is_null] = None
        return found


def read_scalars(cells: pa.Array, dtype: FieldDtype) -> Values:
    """Read scalars of any Arrow type as values of a dtype, without a change.

    Raises:
        CellError: a value does not fit.
        ValueError: the cells are not scalars, are of another kind, or are not valid text.
    """
    cells = plain_cells(cells)
    wanted = numpy_dtype(dtype)
    is_null = null_mask(cells) if cells.null_count else None
    if pa.types.is_null(cells.type) or (wanted.kind not in "USO" and is_null is not None and is_null.all()):
        return Values(np.empty(len(cells), object if wanted.kind in "US" else wanted), is_null)
    found = dtype_of_arrow(cells.type)
    if kind_of(found) == "O" or kind_of(dtype) not in (kind_of(found), "O"):
        raise ValueError(f"expected values of dtype {dtype_name(dtype)}, the column has type {cells.type}")
    if found is Decimal:
        if wanted.kind != "O":
            return Values(numbers(cells.cast(pa.from_numpy_dtype(wanted))), is_null)
        return Values(objects(cells.to_pylist()), is_null)
    kind = numpy_dtype(found).kind
    if kind in "US":
        return Values(_texts(cells, wanted.kind), is_null)
    array = _times(cells) if kind in "mM" else numbers(cells)
    if dtype is Decimal and kind in "iu":
        return Values(objects(list(map(Decimal, array.tolist()))), is_null)
    return Values(array if array.dtype == wanted or kind_of(dtype) == "O" else _cast(array, is_null, wanted), is_null)


def _texts(cells: pa.Array, kind: str) -> npt.NDArray[Any]:
    """Text or bytes as objects, converted to the kind "U" or "S".

    Raises:
        pyarrow.ArrowException: the cells are not valid text.
        MemoryError: not enough memory.
    """
    if kind == "U" and is_bytes(cells.type):
        cells = as_binary(cells)
        cells = cells.cast(pa.large_string() if pa.types.is_large_binary(cells.type) else pa.string())
    elif kind == "S" and is_text(cells.type):
        cells = as_binary(cells)
    try:
        return cells.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # an array
    except pa.ArrowException:  # raised also without memory for a str
        cells.validate(full=True)
        raise MemoryError(f"not enough memory for {len(cells):,} texts") from None


def _cast(array: npt.NDArray[Any], is_null: npt.NDArray[np.bool_] | None, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert numbers or times.

    Raises:
        CellError: a value does not fit.
        ValueError: the values are of another kind.
    """
    if dtype.kind == "O":
        raise ValueError(f"expected decimals, the column has values of dtype {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if dtype.kind not in "mM" and np.can_cast(array.dtype, dtype, "safe"):
            return cast
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
    return cast


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
    is_time = pa.types.is_temporal(type_) and not pa.types.is_interval(type_)
    found: list[Any] = Values(_times(cells), null_mask(cells)).as_objects().tolist() if is_time else cells.to_pylist()
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


def _times(cells: pa.Array) -> npt.NDArray[Any]:
    """Dates and times as datetime64, times of day and durations as timedelta64."""
    type_ = cells.type
    is_narrow = pa.types.is_date32(type_) or pa.types.is_time32(type_)
    integers = cells.view(pa.int32() if is_narrow else pa.int64())
    array: npt.NDArray[Any] = numbers(integers).astype(np.int64, copy=False).view(time_dtype(type_))
    return array.astype("M8[D]") if pa.types.is_date64(type_) else array
