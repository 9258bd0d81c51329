"""Tables of Arrow as dict samples."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.recipes.nodes import TABLE_FILE
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.column_reader import ArrayReader, ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.parquet.columns import ArrayColumn as ParquetColumn
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.schema import Field
from data_stack.formats.parquet.types import dtype_name, is_list
from data_stack.formats.targets import with_target
from data_stack.io.positional import PositionalFile
from data_stack.io.url import scheme_of
from data_stack.values.stacked_values import objects
from data_stack.values.stacking import join_columns

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingDependencyError("reading tables of Arrow", "pyarrow", "parquet") from error

_Array = npt.NDArray[Any]
#: Those of pyarrow for values, without that for memory.
ARROW_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowKeyError,
    pa.ArrowCapacityError,
)
#: The functions that read a file as a table, by their names in recipes.
READERS: dict[str, Callable[..., DatasetIteratorIF]] = {}
#: Types for which pyarrow lacks take(), and types to cast them to.
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


@dataclass(frozen=True, eq=False)
class Origin:
    """The type of a column in the library that it comes from, so that it can be converted back.

    Attributes:
        field: the Arrow field of the column; None if its cells are not the values.
        categories: the values of a categorical column; None for other columns.
        as_codes: whether samples hold the indices of the categories.
        kind: the dtype of pandas, or the feature of Hugging Face; None if ``field`` suffices.
        level: the level of pandas' index that the column was.
    """

    field: pa.Field | None
    categories: pa.Array | None = None
    as_codes: bool = False
    kind: Any = None
    level: IndexLevel | None = None


@dataclass(frozen=True)
class IndexLevel:
    """A level of the index of a frame of pandas.

    Attributes:
        number: 0 for the outermost.
        name: its name, None without one.
    """

    number: int
    name: Any


def field_of(name: str, type_: pa.DataType) -> Field:
    """The Parquet field of a column with cells of a type, including nulls.

    Raises:
        ConfigError: the type is unsupported.
    """
    try:
        return _field_of_type(type_)
    except ConfigError as error:
        raise ConfigError(
            f"column {name!r} has the unsupported type {type_!s:.80}: cast it, or drop it"
        ) from error


@functools.lru_cache(maxsize=1000)
def _field_of_type(type_: pa.DataType) -> Field:
    """See :func:`field_of`. Inferring the field of a struct takes 300 µs, which each sample would pay."""
    return infer_schema(pa.schema([pa.field("value", type_)]))["value"]


def _fixed_shape(type_: pa.DataType) -> tuple[int, ...]:
    """The shape of Arrow's tensors and nested lists of fixed size; ``()`` for other types."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return tuple(type_.shape)
    is_list_of_lists = pa.types.is_fixed_size_list(type_) and not pa.types.is_temporal(
        type_.value_type
    )
    return (type_.list_size, *_fixed_shape(type_.value_type)) if is_list_of_lists else ()


# ---------------------------------------------------------------------- reading


def unshifted(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells, copied if pyarrow might take wrong ones: it overlooks where lists of fixed size within such lists begin."""
    is_slice = (each.nbytes < each.get_total_buffer_size() for each in cells.chunks)
    is_at_risk = str(cells.type).count("fixed_size_list") > 1 and any(is_slice)
    return (
        pa.chunked_array([pa.concat_arrays([chunk]) for chunk in cells.chunks])
        if is_at_risk
        else cells
    )


def values_of(
    cells: pa.Array, name: str, *, has_nulls: bool, shape: tuple[int, ...] = (), lent: bool = False
) -> _Array:
    """Values of a column, shape ``(n, ...)``.

    Args:
        cells: cells of any type.
        name: name of the column.
        has_nulls: whether the column has nulls anywhere; then the result is an array of objects, with None for each null.
        shape: shape of each value, if the type does not define it.
        lent: whether the array may share the memory of the cells; then do not write to it.

    Raises:
        ConfigError: the type is unsupported, or the cells are invalid.
    """
    shape = shape or _fixed_shape(cells.type)
    tensors = _tensors(cells, shape) if len(shape) > 1 else None
    if tensors is None:
        field = field_of(name, cells.type)
        try:
            column = field.cells.column(field, cells, has_nulls=has_nulls)
            return (
                column.array
                if lent and isinstance(column, ParquetColumn)
                else column.take(np.arange(len(cells)))
            )
        except (CellError, ValueError, *ARROW_ERRORS) as error:
            raise ConfigError(
                f"column {name!r} of type {cells.type!s:.80} cannot be read: {error!s:.200}; drop it"
            ) from error
    tensors = tensors if lent else tensors.copy()
    rest = iter(tensors)
    return (
        objects([next(rest) if valid else None for valid in cells.is_valid().to_pylist()])
        if has_nulls
        else tensors
    )


def _tensors(cells: pa.Array, shape: tuple[int, ...]) -> _Array | None:
    """The non-null values; None if a value contains a null, has another shape, or does not hold numbers."""
    valid = cells.drop_null() if cells.null_count else cells
    if (
        isinstance(valid, pa.FixedShapeTensorArray)
        and valid.type.permutation is not None
        and len(valid)
    ):
        return valid.to_numpy_ndarray()  # type: ignore[no-any-return]  # an array
    flat = valid.storage if isinstance(valid, pa.ExtensionArray) else valid
    while is_list(flat.type):
        flat = flat.flatten()
    if (
        flat.null_count
        or len(flat) != len(valid) * math.prod(shape)
        or not pa.types.is_primitive(flat.type)
    ):
        return None
    return flat.to_numpy(zero_copy_only=False).reshape(-1, *shape)  # type: ignore[no-any-return]  # an array


class PlainColumn(ArrayReader):
    """An array of numpy as a column of a table.

    Args:
        array: the values, shape ``(n, ...)``.
        level: see :class:`Origin`.
    """

    def __init__(self, array: _Array, level: IndexLevel | None = None) -> None:
        super().__init__(array)
        self._origin = None if level is None else Origin(None, level=level)

    def declare(self) -> DeclaredColumn:
        return DeclaredColumn(self._array.dtype.name, self._array.shape[1:], origin=self._origin)

    def digest(self) -> str:
        """SHA-256 of the values."""
        return json_digest(content_of(self._array, of_samples=True))


class ArrowColumn(ColumnReader):
    """Arrow cells, converted to values when they are read. Numbers without nulls are not copied.

    Args:
        cells: the cells, in any number of chunks.
        field: name, type and metadata of the column.
        as_codes: whether a categorical column returns indices, int64.
        kind: see :class:`~data_stack.formats.arrow_tables.Origin`.
        shape: shape of each value, if the type does not define it.
        level: see :class:`~data_stack.formats.arrow_tables.Origin`.

    Raises:
        ConfigError: the type is unsupported.
    """

    def __init__(
        self,
        cells: pa.ChunkedArray,
        field: pa.Field,
        *,
        as_codes: bool = False,
        kind: Any = None,
        shape: tuple[int, ...] = (),
        level: IndexLevel | None = None,
    ) -> None:
        categories: Any = None
        cells = unshifted(cells.cast(_VIEWS[cells.type]) if cells.type in _VIEWS else cells)
        if pa.types.is_dictionary(cells.type):
            cells = cells.unify_dictionaries()
            categories = (
                cells.chunk(0).dictionary
                if cells.num_chunks
                else pa.array([], cells.type.value_type)
            )
        as_codes = as_codes and categories is not None
        self.class_names = categories.to_pylist() if as_codes else None
        self._cells, self._name, self._shape = cells, field.name, shape
        self.origin = Origin(field, categories, as_codes, kind, level)
        type_ = pa.int64() if as_codes else cells.type
        parsed, empty = (
            field_of(field.name, type_),
            values_of(pa.nulls(0, type_), field.name, has_nulls=False, shape=shape),
        )
        dtype, value_shape = (
            (empty.dtype.name, empty.shape[1:])
            if empty.ndim > 2
            else (dtype_name(parsed.dtype), parsed.shape)
        )
        self._declared = DeclaredColumn(dtype, value_shape, bool(cells.null_count), self.origin)
        is_text = dtype in ("str", "bytes") and not value_shape
        is_list_of_one_level = pa.types.is_list(type_) or pa.types.is_large_list(type_)
        #: Whether the values are arrays of numbers or text.
        self._is_flat_list = is_list_of_one_level and not shape and _is_number_or_text(type_)
        #: Whether the values are those that pyarrow makes of one cell, in a tenth of the time of a column.
        self._is_python = is_text or (pa.types.is_struct(type_) and _has_python_values(type_))

    def __len__(self) -> int:
        return len(self._cells)

    def declare(self) -> DeclaredColumn:
        return self._declared

    def value(self, index: int) -> Any:
        if self._plain is not None:
            return self._plain.value(index)
        if self._is_python:
            return self._cells[index].as_py()
        if self._is_flat_list:
            value = _array_of_list(self._cells[index])
            if value is not None:
                return value
        return self.values(np.array([index]))[0]

    def read(self, indices: npt.NDArray[np.int64] | None) -> _Array:
        return (
            self._values(self._take(indices)) if self._plain is None else self._plain.read(indices)
        )

    def runs(self, starts: npt.NDArray[Any], length: int) -> _Array | None:
        return None if self._plain is None else self._plain.runs(starts, length)

    @functools.cached_property
    def _plain(self) -> ArrayReader | None:
        return (
            ArrayReader(self._values(self._cells, lent=True)) if self._declared.is_fixed else None
        )

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        return self._cells if indices is None else self._cells.take(pa.array(indices))

    def _values(self, cells: pa.ChunkedArray, *, lent: bool = False) -> _Array:
        return join_columns(
            [self._decode(chunk, lent=lent) for chunk in cells.chunks or [pa.array([], cells.type)]]
        )

    def _decode(self, cells: pa.Array, *, lent: bool = False) -> _Array:
        """The values of cells; see :func:`values_of`."""
        cells = cells.indices.cast(pa.int64()) if self.origin.as_codes else cells
        return values_of(
            cells, self._name, has_nulls=self._declared.is_nullable, shape=self._shape, lent=lent
        )

    def digest(self) -> str:
        """SHA-256 of the values, independent of chunks."""
        categories = None if self.origin.categories is None else self.origin.categories.to_pylist()
        digest = hashlib.sha256(repr((self._declared[:3], categories)).encode())
        if not _is_told_by_dtype(self._cells.type):
            digest.update(str(self._cells.type).encode())
        for start in range(0, len(self), 1 << 16):
            piece = pa.concat_arrays(
                self._take(np.arange(start, min(start + (1 << 16), len(self)))).chunks
            )
            digest.update(pa.record_batch([piece], ["values"]).serialize())
        return digest.hexdigest()


def _is_number_or_text(type_: pa.DataType) -> bool:
    """Whether a list holds integers, floats or text."""
    inner = type_.value_type
    return bool(
        pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_string(inner)
    )


def _array_of_list(cell: Any) -> _Array | None:
    """A list of numbers or text as an array; None if it is null or holds a null number."""
    elements = cell.values
    if elements is None:
        return None
    if pa.types.is_string(elements.type):
        return objects(elements.to_pylist())
    if elements.null_count:
        return None
    return elements.to_numpy(zero_copy_only=False).copy()  # type: ignore[no-any-return]  # an array


def _has_python_values(type_: pa.DataType) -> bool:
    """Whether ``as_py()`` makes the values of structs, lists and scalars that a column has: times are numpy's there."""
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        are_distinct = len({field.name for field in fields}) == len(fields)
        return are_distinct and all(_has_python_values(field.type) for field in fields)
    if is_list(type_):
        return _has_python_values(type_.value_type)
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return bool(is_number or pa.types.is_boolean(type_) or pa.types.is_string(type_))


def _is_told_by_dtype(type_: pa.DataType) -> bool:
    """Whether the declared dtype says what the bytes of cells do not: the scale of decimals, units, zones, names of fields."""
    told_by_dtype = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_dictionary,
    )
    if is_list(type_):
        return _is_told_by_dtype(type_.value_type)
    return any(is_told(type_) for is_told in told_by_dtype)


#: The kind of the origin of a column of JSON text.
JSON_TEXT: Final = "json"


class JsonColumn(ColumnReader):
    """Cells of JSON text, whose values are parsed when they are read: dicts, lists, text, numbers.

    Args:
        cells: text, in any number of chunks.
        name: name of the column.
    """

    class_names = None

    def __init__(self, cells: pa.ChunkedArray, name: str) -> None:
        self._cells = cells
        self.origin = Origin(None, kind=JSON_TEXT)
        self._declared = DeclaredColumn("object", (), bool(cells.null_count), self.origin)

    def __len__(self) -> int:
        return len(self._cells)

    def declare(self) -> DeclaredColumn:
        return self._declared

    def value(self, index: int) -> Any:
        return _parse_cell(self._cells[index].as_py())

    def read(self, indices: npt.NDArray[np.int64] | None) -> _Array:
        cells = self._cells if indices is None else self._cells.take(pa.array(indices))
        return objects([_parse_cell(text) for text in cells.to_pylist()])

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return [self.value(index) for index in indices.tolist()]

    def digest(self) -> str:
        """SHA-256 of the text."""
        digest = hashlib.sha256(repr(self._declared[:3]).encode())
        for start in range(0, len(self), 1 << 16):
            piece = pa.concat_arrays(self._cells.slice(start, 1 << 16).chunks)
            digest.update(pa.record_batch([piece], ["values"]).serialize())
        return digest.hexdigest()


def _parse_cell(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@layer(TABLE_FILE)
class TableIterator(ColumnsDatasetIterator):
    """Samples ``{column: value}`` of a table in memory, which is not copied.

    Args:
        columns: columns of one length by name.
        read_from: the file of the table for recipes: ``path``, ``sha256``, ``function`` and ``options``; None if no recipe can
            make the table.

    Attributes:
        column_types: dtype of each column as text, with the shape of arrays, and ``or None`` if values are missing.

    Raises:
        ConfigError: there are no columns, or two have the same name, or a name is not text.
    """

    def __init__(
        self,
        columns: Mapping[str, ArrowColumn | JsonColumn | PlainColumn],
        read_from: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__({name: name for name in columns})
        self._columns_in_memory, self._read_from = columns, read_from

    @of_files_only  # or memory: only the values decide the samples
    def _open_columns(self) -> list[ColumnReader]:
        return list(self._columns_in_memory.values())

    def _content_of_files(self) -> list[str]:
        return [column.digest() for column in self._columns_in_memory.values()]

    def _arguments(self) -> dict[str, Any]:
        return {"columns": self.column_types}

    @classmethod
    def _from_arguments(
        cls, underlying: list[Any], arguments: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        path, function, options = (arguments[name] for name in ("path", "function", "options"))
        if function not in READERS or "target" in options or scheme_of(path) is not None:
            raise ConfigError(
                f"tables are read by {' or '.join(READERS)} from a path, not {path!r:.200} by {function!r:.80}"
            )
        file = PositionalFile(path)
        if (sha256 := hashlib.sha256(file.read_at(0, file.size)).hexdigest()) != arguments[
            "sha256"
        ]:
            raise ConfigError(
                f"file {path!r:.200} has changed: its SHA-256 is {sha256}; restore it, or create the recipe again"
            )
        return READERS[function](path, **options)

    @property
    def column_types(self) -> dict[str, str]:
        """Dtype of each column as text; ``array`` if it varies."""
        declared = {name: column.declare() for name, column in self._columns_in_memory.items()}
        shapes = {
            name: str(each.shape).replace("None", "…") if each.shape else ""
            for name, each in declared.items()
        }
        return {
            name: f"{each.dtype or 'array'}{shapes[name]}{' or None' * each.is_nullable}"
            for name, each in declared.items()
        }

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {kind}" for name, kind in self.column_types.items())
        return super().__repr__().replace(">", f", {types:.1000}>")


def check_names(names: list[Any]) -> None:
    """Check the names of columns.

    Raises:
        ConfigError: there are no names, or one is not text, or two are equal.
    """
    # values that are not text may not hash
    counts = Counter(name for name in names if isinstance(name, str))
    wrong = [name for name in names if not isinstance(name, str) or counts[name] > 1]
    if wrong or not names:
        raise ConfigError(
            f"the columns of a table need different names of text, got {wrong[:1] or 'no columns'}; rename them"
        )


def iterator_of_table(
    table: pa.Table,
    source: str,
    target: str | None,
    read_from: Mapping[str, Any] | None = None,
    json_columns: Collection[str] = (),
) -> DatasetIteratorIF:
    """The rows of a table as dict samples, with a meta if there is a target; ``read_from`` as for TableIterator.

    Text in ``json_columns`` is JSON, whose values are the samples' values.
    """
    check_names(table.column_names)
    columns: dict[str, ArrowColumn | JsonColumn | PlainColumn] = {}
    class_names = None
    for field, cells in zip(table.schema, table.columns, strict=True):
        if field.name in json_columns:
            columns[field.name] = JsonColumn(cells, field.name)
            continue
        column = ArrowColumn(cells, field, as_codes=field.name == target)
        columns[field.name] = column
        if field.name == target:
            class_names = column.class_names
    return with_target(
        TableIterator(columns, read_from), source, list(columns), target, class_names
    )
