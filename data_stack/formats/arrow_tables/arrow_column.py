"""Reads a column of Arrow cells."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables.cell_types import (
    array_of_list,
    describe_values,
    has_python_values,
    is_list_of_numbers_or_text,
    is_number_of_python,
)
from data_stack.formats.arrow_tables.origin import IndexLevel, Origin
from data_stack.formats.arrow_tables.readable_cells import (
    is_extension,
    is_made_back,
    readable_chunks,
    readable_field,
)
from data_stack.formats.arrow_tables.values import (
    unshifted,
    update_digest,
    values_of,
)
from data_stack.formats.column_reader import ArrayReader, ColumnReader, list_values
from data_stack.formats.parquet.codecs.cells import python_scalars
from data_stack.formats.parquet.types import is_list
from data_stack.values.stacking import join_columns

_Array = npt.NDArray[Any]


class ArrowColumn(ColumnReader):
    """Reads values from Arrow cells, which are converted at each access.

    Numbers without nulls are not copied. Cells that pyarrow cannot take are converted at once, see
    :func:`~data_stack.formats.arrow_tables.readable_cells.readable_type`.

    Args:
        cells: the cells, in any number of chunks.
        field: name, type and metadata of the column.
        as_codes: whether a categorical column returns indices, int64.
        kind: see :class:`~data_stack.formats.arrow_tables.Origin`.
        shape: the shape of each value, if the type does not define it.
        level: see :class:`~data_stack.formats.arrow_tables.Origin`.

    Raises:
        ConfigError: the type is unsupported.
    """

    #: The names of the classes if the values are indices of categories; None otherwise.
    class_names: list[Any] | None

    #: The type of the column before it was read here.
    origin: Origin

    #: The cells, of a type that pyarrow can take.
    cells: pa.ChunkedArray

    #: The type that the digest is of.
    _type_of_digest: pa.DataType

    #: The name of the column.
    name: str

    #: The shape of each value; ``()`` if the type defines it.
    _shape: tuple[int, ...]

    #: What a schema says of the column.
    _declared: DeclaredColumn

    #: Whether the values are arrays of numbers or text.
    _is_flat_list: bool

    #: Whether the value of a cell is what ``as_py()`` returns, which takes a tenth of the time of
    #: reading a column of one row.
    _is_python: bool

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
        if not is_made_back(field.type):
            field = readable_field(field)
        stored_type = cells.type
        cells = unshifted(readable_chunks(cells))
        categories: Any = None
        if pa.types.is_dictionary(cells.type):
            cells = _with_one_dictionary(cells)
            if pa.types.is_dictionary(cells.type):
                categories = _categories_of(cells)
            elif as_codes:
                raise ConfigError(
                    f"column {field.name!r} has no class numbers: the dictionaries of its chunks "
                    "have nulls; cast it to the type of its values"
                )
            else:
                field = pa.field(field.name, cells.type, field.nullable, field.metadata)
        as_codes = as_codes and categories is not None

        self.class_names = None
        if as_codes:
            self.class_names = python_scalars(categories)
        self.origin = Origin(field, categories, as_codes, kind, level)
        self.cells = cells
        # The digest names an extension type, and not the type that it is stored as.
        self._type_of_digest = stored_type if is_extension(stored_type) else cells.type
        self.name = field.name
        self._shape = shape

        type_ = pa.int64() if as_codes else cells.type
        dtype, value_shape = describe_values(field.name, type_, shape)
        # A category may be null, too.
        has_nulls = bool(cells.null_count or (categories is not None and categories.null_count))
        self._declared = DeclaredColumn(dtype, value_shape, has_nulls, self.origin)
        is_text = dtype in ("str", "bytes") and not value_shape
        self._is_flat_list = not shape and is_list_of_numbers_or_text(type_)
        is_plain_struct = pa.types.is_struct(type_) and has_python_values(type_)
        # Numbers of a column with nulls are numpy's in samples.
        is_plain_number = is_number_of_python(type_) and not as_codes and not cells.null_count
        self._is_python = is_text or is_plain_struct or is_plain_number

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def has_cells_of_origin(self) -> bool:
        """Whether :attr:`cells` are those of the source, and :attr:`origin` says all of them."""
        origin = self.origin
        is_described = origin.field is not None and origin.kind is None and origin.level is None
        return is_described and origin.field.type == self.cells.type  # type: ignore[union-attr]

    def declare(self) -> DeclaredColumn:
        return self._declared

    def value(self, index: int) -> Any:
        if self._array_reader is not None:
            return self._array_reader.value(index)
        if self._is_python or self._is_flat_list:
            return self.value_of_cell(self.cells, index)
        return self.values(np.array([index]))[0]

    def value_of_cell(self, cells: pa.ChunkedArray, index: int) -> Any:
        """Return the value of a cell of this column, as :meth:`value` does.

        Args:
            cells: cells of the column, which may be elsewhere than the column itself.
            index: the position of the cell in ``cells``.
        """
        if self._is_python:
            return cells[index].as_py()
        if self._is_flat_list:
            value = array_of_list(cells[index])
            if value is not None:
                return value
        return self.values_of_cells(cells.slice(index, 1))[0]

    def values_of_cells(self, cells: pa.ChunkedArray) -> list[Any]:
        """Return the values of cells of this column, as :meth:`values` does."""
        return list_values(self.array_of_cells(cells))

    def read(self, indices: npt.NDArray[np.int64] | None) -> _Array:
        if self._array_reader is not None:
            return self._array_reader.read(indices)
        return self.array_of_cells(self._take(indices))

    def runs(self, starts: npt.NDArray[Any], length: int) -> _Array | None:
        if self._array_reader is None:
            return None
        return self._array_reader.runs(starts, length)

    def digest(self) -> str:
        """Return the SHA-256 of the values, whatever their chunks are."""
        digest = self.begin_digest()
        update_digest(digest, len(self), self._take)
        return str(digest.hexdigest())

    def begin_digest(self) -> Any:
        """Return the digest of the column before its first cell."""
        categories = None
        if self.origin.categories is not None:
            categories = python_scalars(self.origin.categories)
        digest = hashlib.sha256(repr((self._declared[:3], categories)).encode())
        if not _is_described_by_dtype(self._type_of_digest):
            digest.update(str(self._type_of_digest).encode())
        return digest

    @functools.cached_property
    def _array_reader(self) -> ArrayReader | None:
        """A reader of all values as one array; None if their shape or dtype varies."""
        if not self._declared.is_fixed:
            return None
        return ArrayReader(self.array_of_cells(self.cells, lent=True))

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        """Return the cells at indices; None for all. A subclass may read them from elsewhere."""
        if indices is None:
            return self.cells
        return self.cells.take(pa.array(indices))

    def array_of_cells(self, cells: pa.ChunkedArray, *, lent: bool = False) -> _Array:
        """Return the values of cells in any number of chunks; see :func:`values_of`."""
        # No values have no shape that others could be joined with.
        chunks = [chunk for chunk in cells.chunks if len(chunk)]
        if not chunks:
            # pa.array() makes no dictionaries of some types.
            chunks = [pa.nulls(0, cells.type)]
        return join_columns([self._decode(chunk, lent=lent) for chunk in chunks])

    def _decode(self, cells: pa.Array, *, lent: bool = False) -> _Array:
        """Return the values of cells in one chunk. A subclass may decode them in another way."""
        if self.origin.as_codes:
            cells = cells.indices.cast(pa.int64())
        return values_of(
            cells, self.name, has_nulls=self._declared.is_nullable, shape=self._shape, lent=lent
        )


# ---------------------------------------------------------------------- types


def _with_one_dictionary(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categorical cells whose chunks have one dictionary.

    Returns:
        The values of the cells, if pyarrow cannot join the dictionaries, as those with nulls.
    """
    try:
        return cells.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        chunks = [chunk.dictionary_decode() for chunk in cells.chunks]
        return pa.chunked_array(chunks, cells.type.value_type)


def _categories_of(cells: pa.ChunkedArray) -> pa.Array:
    """Return the categories of a column whose chunks have the same ones."""
    if cells.num_chunks:
        return cells.chunk(0).dictionary
    return pa.nulls(0, cells.type.value_type)


def _is_described_by_dtype(type_: pa.DataType) -> bool:
    """Return whether the declared dtype says all that the bytes of cells do not say.

    The dtype lacks the scale of decimals, the units and zones of times, and the names of fields.
    """
    if is_list(type_):
        return _is_described_by_dtype(type_.value_type)
    predicates = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_dictionary,
    )
    return any(is_described(type_) for is_described in predicates)
